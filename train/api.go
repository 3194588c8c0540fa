package train

import (
	"io/fs"
	"time"

	"github.com/tierlora/tierlora/model/hub"
)

// Env is what a run takes from the program around it. The zero value works: no embedded files, all cores, silent.
type Env struct {
	Version  string                           // of the program, for the run's manifest
	Commit   string                           // that the program was built from, for the manifest; "" = not known
	Dirty    bool                             // files differed from the commit
	Workers  int                              // CPU threads; 0 = one for each core
	Model    func(name string) (fs.FS, error) // folder of an embedded model; nil = there are none
	Data     func(name string) (fs.FS, error) // file system whose file `name` is an embedded data set; nil = there are none
	Hub      hub.Options                      // where "org/name" is looked for
	Log      func(line string)                // one line for the user; nil = dropped
	Progress Progress                         // nil = not shown
	Config   []byte                           // effective configuration as YAML, saved with the run
	// Interrupted says that the user asked to stop: the run finishes its step, saves, and returns with
	// Result.Stopped set. Cancelling the context stops without saving. nil = never.
	Interrupted <-chan struct{}
}

// Progress shows a run while it goes on. The calls come from one goroutine.
type Progress interface {
	// Start says how many steps the run has and how many of them are done already.
	Start(total, done int)
	// Step comes after every optimizer step.
	Step(s StepInfo)
	// End comes once, whether the run succeeded or not.
	End()
}

// StepInfo is one optimizer step.
type StepInfo struct {
	Step            int // from 1
	Epoch           float64
	Loss            float64 // mean over the step's trained tokens, before the update
	MeanLoss        float64 // mean over the trained tokens since the last line of metrics.jsonl, this step's line included
	GradNorm        float64 // before clipping
	LearningRate    float64
	Tokens          int64   // of the step, without padding
	TokensPerSecond float64 // of the run so far
	EvalLoss        float64 // NaN where the step was not followed by an evaluation
	LossScale       float64 // of the next step; 0 without loss scaling
	Skipped         int     // steps so far whose gradient overflowed
}

// Result is what Start did.
type Result struct {
	Steps      int           `json:"steps"` // optimizer steps done, earlier ones of a resumed run included
	MaxSteps   int           `json:"max_steps"`
	Resumed    int           `json:"resumed_from"` // step that the run began after; 0 = from the start
	FirstLoss  float64       `json:"first_loss"`
	LastLoss   float64       `json:"last_loss"`
	MeanLoss   float64       `json:"train_loss"` // over the run's trained tokens
	EvalLoss   *float64      `json:"eval_loss,omitempty"`
	Tokens     int64         `json:"tokens"`
	Duration   time.Duration `json:"duration_ns"`
	HeldBytes  int64         `json:"held_bytes"` // memory of the plan
	StepMs     *StepTimes    `json:"step_ms,omitempty"`
	Expect     []Judged      `json:"expect,omitempty"` // of a run that did all its steps
	AdapterDir string        `json:"adapter_dir"`
	Checkpoint string        `json:"checkpoint,omitempty"` // newest one
	// Stopped: the user interrupted the run after Steps steps; Checkpoint continues it.
	Stopped bool `json:"stopped,omitempty"`
	// Losses of every step, the whole run where it was resumed.
	Losses []float64 `json:"-"`
}

// StepTimes are medians of steps in milliseconds, evaluations and saves not counted.
type StepTimes struct {
	Median     float64 `json:"median"`
	FirstTenth float64 `json:"first_tenth"` // of the steps timed
	LastTenth  float64 `json:"last_tenth"`
}

// PlanReport is the memory that a run will hold, before it holds any.
type PlanReport struct {
	Model             string         `json:"model"`
	Device            string         `json:"device"`
	Parameters        int64          `json:"parameters"`
	TrainedParameters int64          `json:"trained_parameters"`
	Batch             int            `json:"batch"`           // B, sequences of a micro-batch
	SequenceLength    int            `json:"sequence_length"` // T
	Steps             int            `json:"steps"`
	Categories        []PlanCategory `json:"categories"`
	TotalBytes        int64          `json:"total_bytes"`            // sum of the categories: what the run holds
	Precision         string         `json:"precision"`              // in effect: bf16, fp16, tf32, fp32
	PrecisionAuto     bool           `json:"precision_auto"`         // chosen for the device, not asked for
	Checkpointing     string         `json:"gradient_checkpointing"` // none, selective, full or offload, as chosen
	Limit             int64          `json:"limit_bytes,omitempty"`  // what the run may hold: vram, or what is free; 0 = not known
	Tried             []PlanTried    `json:"tried,omitempty"`        // faster ways that do not fit, fastest first
	Notes             []string       `json:"notes,omitempty"`
}

// PlanTried is a way to lay out the step that needs more than may be held.
type PlanTried struct {
	Way   string `json:"way"`
	Bytes int64  `json:"bytes"`
}

// PlanCategory is one kind of memory.
type PlanCategory struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// EvalReport is the loss of a model, with or without adapter, over a data set.
type EvalReport struct {
	Data          string        `json:"data"`
	Adapter       string        `json:"adapter,omitempty"`
	Rows          int           `json:"rows"`
	Tokens        int64         `json:"tokens"`         // without padding
	TrainedTokens int64         `json:"trained_tokens"` // those that are counted
	NLL           float64       `json:"nll"`            // sum over the trained tokens
	Loss          float64       `json:"eval_loss"`      // NLL / TrainedTokens
	Perplexity    float64       `json:"perplexity"`     // exp(Loss)
	Duration      time.Duration `json:"duration_ns"`
}

// GenerateOptions steer the choice of tokens.
type GenerateOptions struct {
	MaxTokens   int
	Temperature float64 // 0 = the likeliest token
	TopP        float64 // least part of the probability to choose from; 0 or 1 = all
	TopK        int     // most tokens to choose from; 0 = all
	Seed        uint64
}

// Generated is one answer.
type Generated struct {
	Text            string        `json:"text"`
	IDs             []int32       `json:"ids"`
	PromptTokens    int           `json:"prompt_tokens"`
	Stopped         string        `json:"stopped"` // "end" at the model's end token, "length" at MaxTokens
	Duration        time.Duration `json:"duration_ns"`
	TokensPerSecond float64       `json:"tokens_per_second"`
}
