package train

import (
	"encoding/json"

	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
	"github.com/tierlora/tierlora/train/track"
)

// Observers maps the values of training.report_to to observers that a run reports to besides metrics.jsonl and the
// terminal.
var Observers = map[string]func(opened) Observer{
	"csv":         newCSV,
	"kubeflow":    tracker("kubeflow", track.NewKubeflow),
	"mlflow":      tracker("mlflow", track.NewMLflow),
	"prometheus":  tracker("prometheus", track.NewPrometheus),
	"tensorboard": tracker("tensorboard", track.NewTensorBoard),
	"trackio":     tracker("trackio", track.NewTrackio),
	"wandb":       tracker("wandb", track.NewWandb),
	"webhook":     tracker("webhook", track.NewWebhook),
}

// Observer receives the events of a run. The calls come from one goroutine: Start, then after each step Step, Eval and
// Save as these happen, in this order, and at last End. An error ends the run.
type Observer interface {
	Start(RunInfo) error
	Step(StepInfo) error
	Eval(EvalMetrics) error
	Save(SaveInfo) error
	End(EndInfo) error
}

// EvalWatcher is an Observer that receives the progress of evaluations.
type EvalWatcher interface {
	Evaluating(step, batches, of int)
}

// EndWatcher is an Observer whose Ending is called before End of any observer.
type EndWatcher interface {
	Ending(EndInfo)
}

// SampleWatcher is an Observer that receives the model's answers to training.sample_prompts. An error ends the run.
type SampleWatcher interface {
	Sample(SampleInfo) error
}

// TaskWatcher is an Observer that receives the results of training.eval_tasks. An error ends the run.
type TaskWatcher interface {
	Task(TaskMetrics) error
}

// SampleInfo is the model's answer to a sample prompt after a step; step 0 is before the first.
type SampleInfo struct {
	Step           int
	Prompt, Answer string
}

// Silent is an Observer that does nothing. Other observers embed it.
type Silent struct{}

// Start ignores the start of a run.
func (Silent) Start(RunInfo) error { return nil }

// Step ignores the step.
func (Silent) Step(StepInfo) error { return nil }

// Eval ignores the evaluation.
func (Silent) Eval(EvalMetrics) error { return nil }

// Save ignores the checkpoint.
func (Silent) Save(SaveInfo) error { return nil }

// End ignores the end of a run.
func (Silent) End(EndInfo) error { return nil }

// RunInfo describes a run at its start.
type RunInfo struct {
	Dir       string             // output folder
	Total     int                // optimizer steps of the run
	Done      int                // optimizer steps done before this start
	History   []json.RawMessage  // lines of metrics.jsonl up to step Done
	HeldBytes int64              // planned memory in bytes
	Numbers   []objective.Number // numbers that the objective reports beside the loss
}

// StepInfo describes one optimizer step.
type StepInfo struct {
	Step  int // index of the step, from 1
	Epoch float64
	// Mean over the objective's divisor, such as the step's trained tokens, before the update.
	Loss float64
	// The same mean over the steps since the last line of metrics.jsonl, including this step.
	MeanLoss        float64
	Numbers         Values            // the objective's numbers in this step
	GradNorm        float64           // global norm before clipping
	GradNormClipped float64           // global norm after clipping; 0 if the step was left out
	TensorNorms     []step.TensorNorm // norm of each tensor's gradient, every grad_norm_steps; else nil
	LearningRate    float64
	Tokens          int64        // tokens of the step, without padding
	TokensPerSecond float64      // throughput of the run so far, without evaluations and saves
	LossScale       float64      // loss scale of the next step; 0 without loss scaling
	Skipped         int          // steps so far whose gradient overflowed
	Logged          *StepMetrics // line of metrics.jsonl, every logging_steps; else nil
}

// SaveInfo describes a checkpoint that was written.
type SaveInfo struct {
	Step int
	Path string
}

// EndInfo describes how a run ended.
type EndInfo struct {
	Logged *EndMetrics // last line of metrics.jsonl; nil if this process did not reach the last step
	Err    error       // nil = the run is done, or the user stopped it
}

// observers are all observers of a run.
type observers []Observer

func (all observers) each(call func(Observer) error) error {
	for _, o := range all {
		if err := call(o); err != nil {
			return err
		}
	}
	return nil
}

func (all observers) evaluating(step, batches, of int) {
	for _, o := range all {
		if w, ok := o.(EvalWatcher); ok {
			w.Evaluating(step, batches, of)
		}
	}
}
