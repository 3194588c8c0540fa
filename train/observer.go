package train

import (
	"encoding/json"

	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
	"github.com/tierlora/tierlora/train/track"
)

// Observers are the values of training.report_to: what else sees a run besides metrics.jsonl and the terminal.
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

// Observer sees a run. The calls come from one goroutine: Start, then after each step Step, Eval and
// Save where these happen, in this order, at last End. An error ends the run.
type Observer interface {
	Start(RunInfo) error
	Step(StepInfo) error
	Eval(EvalMetrics) error
	Save(SaveInfo) error
	End(EndInfo) error
}

// EvalWatcher is an Observer that is told how far an evaluation is.
type EvalWatcher interface {
	Evaluating(step, batches, of int)
}

// EndWatcher is an Observer that is told of the end before any is asked to End.
type EndWatcher interface {
	Ending(EndInfo)
}

// SampleWatcher is an Observer that is told what the model answers to training.sample_prompts. An error ends the run.
type SampleWatcher interface {
	Sample(SampleInfo) error
}

// TaskWatcher is an Observer that is told how the model answers training.eval_tasks. An error ends the run.
type TaskWatcher interface {
	Task(TaskMetrics) error
}

// SampleInfo is a sample's answer after a step; 0 is before the first.
type SampleInfo struct {
	Step           int
	Prompt, Answer string
}

// Silent is an Observer to embed: it does nothing.
type Silent struct{}

func (Silent) Start(RunInfo) error    { return nil }
func (Silent) Step(StepInfo) error    { return nil }
func (Silent) Eval(EvalMetrics) error { return nil }
func (Silent) Save(SaveInfo) error    { return nil }
func (Silent) End(EndInfo) error      { return nil }

// RunInfo is a run at its start.
type RunInfo struct {
	Dir       string             // its output folder
	Total     int                // optimizer steps
	Done      int                // of them, before this start
	History   []json.RawMessage  // lines that metrics.jsonl had at that step
	HeldBytes int64              // memory of the plan
	Numbers   []objective.Number // what the objective reports beside the loss
}

// StepInfo is one optimizer step.
type StepInfo struct {
	Step            int // from 1
	Epoch           float64
	Loss            float64           // mean over what the objective divides by, such as the step's trained tokens, before the update
	MeanLoss        float64           // the same mean over the steps since the last line of metrics.jsonl, this step's line included
	Numbers         Values            // of the objective, in this step
	GradNorm        float64           // before clipping
	GradNormClipped float64           // after it; 0 where the step was left out
	TensorNorms     []step.TensorNorm // every grad_norm_steps; else nil
	LearningRate    float64
	Tokens          int64        // of the step, without padding
	TokensPerSecond float64      // of the run so far, evaluations and saves left out
	LossScale       float64      // of the next step; 0 without loss scaling
	Skipped         int          // steps so far whose gradient overflowed
	Logged          *StepMetrics // the line of metrics.jsonl, every logging_steps; else nil
}

// SaveInfo is a checkpoint that was written.
type SaveInfo struct {
	Step int
	Path string
}

// EndInfo is how a run ended.
type EndInfo struct {
	Logged *EndMetrics // the last line of metrics.jsonl; nil where the run did not reach its last step now
	Err    error       // nil = done, or stopped by the user
}

// observers are all that see a run.
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
