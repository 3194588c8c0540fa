package train

import (
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/ranks"
)

// Env is what a run takes from the program around it. The zero value works: no embedded files, all cores, silent.
type Env struct {
	session.Env
	Observers []Observer // who sees the run; metrics.jsonl always does
	Config    []byte     // effective configuration as YAML, saved with the run
	// Groups are this process's ranks in a run of several processes, one for each of its devices, in the order of their
	// ranks; nil = the run is this process's alone.
	Groups []ranks.Group
	// Interrupted says that the user asked to stop: the run finishes its step, saves, and returns with
	// Result.Stopped set; before its first step it ends at once with an error *Stopped. Cancelling the context stops without saving. nil = never.
	Interrupted <-chan struct{}
	// Taken is called once, before anything is written there, when the output folder is this run's: its lock is held, and it
	// holds no run but the one to resume. Of several ranks the first calls it. nil = nobody is told.
	Taken func(dir string)
	// Details receives the reports on data and plan in full; Log then has them in a few lines. nil = Log has them in full.
	Details func(text string)
	// Failed is called with the error of each rank of this process that fails, of a run on several devices. nil = nobody is
	// told.
	Failed func(rank int, err error)

	// Windows is a WindowsFile whose micro-batches are trained in place of those of the data set, which is read all the same:
	// the run is planned for it. "" = none.
	Windows string

	team     *team       // the ranks of the run as one of them sees them; nil = it is alone
	ranks    int         // that a plan is for, where there is no team; 0 = one
	phases   func(phase) // told of each phase, by tests; nil = nobody
	silent   bool        // makes no samples and asks no tasks: a replay keeps their plan alone
	pieces   int         // that each batch is dealt in, as in the run that is verified; 0 = what fits
	lossRows *int        // those of a run that is verified on fewer ranks than it had: vram was of each of those; nil = no such run
}

// Result is what Start did.
type Result struct {
	Steps      int           `json:"steps"` // optimizer steps done, earlier ones of a resumed run included
	MaxSteps   int           `json:"max_steps"`
	Resumed    int           `json:"resumed_from"` // step that the run began after; 0 = from the start
	FirstLoss  float64       `json:"first_loss"`
	LastLoss   float64       `json:"last_loss"`
	MeanLoss   float64       `json:"train_loss"`                 // over the run's trained tokens
	EvalBefore *float64      `json:"eval_loss_before,omitempty"` // before the first step
	EvalLoss   *float64      `json:"eval_loss,omitempty"`
	Tokens     int64         `json:"tokens"`
	Duration   time.Duration `json:"duration_ns"`
	HeldBytes  int64         `json:"held_bytes"` // memory of the plan
	StepMs     *StepTimes    `json:"step_ms,omitempty"`
	DataMs     *float64      `json:"data_ms,omitempty"` // median of the host's time for a step's batches
	Expect     []Judged      `json:"expect,omitempty"`  // of a run that did all its steps
	AdapterDir string        `json:"adapter_dir"`
	Checkpoint string        `json:"checkpoint,omitempty"` // newest one
	// Stopped: the user interrupted the run after Steps steps; Checkpoint continues it.
	Stopped bool `json:"stopped,omitempty"`
	// Skipped are the steps of the whole run that were left out because loss or gradient was not finite.
	Skipped []int `json:"skipped_steps,omitempty"`
	// Losses of every step, the whole run where it was resumed.
	Losses []float64 `json:"-"`
}

// StepTimes are medians of whole steps in milliseconds, without evaluations and saves.
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
	Batch             int            `json:"batch"`           // rows of a micro-batch, or packed sequences
	SequenceLength    int            `json:"sequence_length"` // tokens of the longest row, or of a packed sequence
	Flat              bool           `json:"end_to_end"`      // rows lie end to end, unpacked and not padded
	Budgets           []int          `json:"token_budgets"`   // tokens of a micro-batch, ascending
	Padding           float64        `json:"padding"`         // part of the tokens computed in the first epoch
	Steps             int            `json:"steps"`
	Ranks             int            `json:"ranks,omitempty"`            // devices that share a step; the bytes are each one's. 0 = one
	Sharding          *PlanSharding  `json:"base_sharding,omitempty"`    // nil = each device holds the whole base model
	Context           *PlanContext   `json:"context_parallel,omitempty"` // nil = each device has whole rows
	Categories        []PlanCategory `json:"categories"`
	TotalBytes        int64          `json:"total_bytes"`            // sum of the categories: what the run holds
	Precision         string         `json:"precision"`              // in effect: bf16, fp16, tf32, fp32
	PrecisionAuto     bool           `json:"precision_auto"`         // chosen for the device, not asked for
	Checkpointing     string         `json:"gradient_checkpointing"` // none, selective, full or offload, as chosen
	Limit             int64          `json:"limit_bytes,omitempty"`  // what the run may hold: vram, or what is free; 0 = not known
	Tried             []PlanTried    `json:"tried,omitempty"`        // faster layouts that do not fit, fastest first
	Notes             []string       `json:"notes,omitempty"`
	// Slow are the fast paths that the run leaves without being asked.
	Slow []graph.SlowPath `json:"slow_paths,omitempty"`
}

// PlanSharding is how several devices hold a base model of which each has a slice.
type PlanSharding struct {
	Devices       int   `json:"devices"`
	SliceBytes    int64 `json:"slice_bytes"`    // of the base model, held by each
	Gathers       int   `json:"gathers"`        // operations of a step
	ReceivedBytes int64 `json:"received_bytes"` // of a step, by each device from the others
}

// PlanContext is how several devices share the tokens of rows.
type PlanContext struct {
	Devices       int   `json:"devices"`
	Tokens        int   `json:"tokens"` // of a micro-batch, of each device
	Heads         int   `json:"heads"`  // of attention, of each device, over all tokens
	Exchanges     int   `json:"exchanges"`
	ReceivedBytes int64 `json:"received_bytes"` // of a step, by each device from the others
}

// PlanTried is a layout of the step that needs more than may be held.
type PlanTried struct {
	Way   string `json:"way"`
	Bytes int64  `json:"bytes"`
}

// PlanCategory is one kind of memory.
type PlanCategory struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}
