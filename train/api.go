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
	Observers []Observer // observers of the run; metrics.jsonl is always written
	Config    []byte     // effective configuration as YAML, saved with the run
	// Groups are this process's ranks in a run of several processes, one for each of its devices, in the order of their
	// ranks; nil = the run is this process's alone.
	Groups []ranks.Group
	// Interrupted says that the user asked to stop: the run finishes its step, saves, and returns with Result.Stopped
	// set; before its first step it ends at once with an error *Stopped. Cancelling the context stops without saving.
	// nil = never.
	Interrupted <-chan struct{}
	// Taken is called once when the output folder belongs to this run, before anything is written there: the folder is
	// locked, and holds no run but the one to resume. In a run of several ranks only the process's first rank calls it.
	// nil = no call.
	Taken func(dir string)
	// Details receives the full reports on data and plan; Log then gets a summary of a few lines. nil = Log gets the
	// full reports.
	Details func(text string)
	// Failed is called with the error of each rank of this process that fails, in a run on several devices. nil = no
	// call.
	Failed func(rank int, err error)

	// Windows names a WindowsFile whose micro-batches are trained in place of those of the data set. The data set is
	// still read, because the run is planned for it. "" = none.
	Windows string

	team   *team       // this rank's view of the ranks of the run; nil = the run has one rank
	ranks  int         // number of ranks that a plan is for, used if team is nil; 0 = one
	phases func(phase) // receives each phase, for tests; nil = no call
	silent bool        // makes no samples and asks no tasks: a replay only keeps their planned memory
	// Number of micro-batches that each batch is split into, as in the run that is verified; 0 = as many as fit.
	pieces int
	// lossRows is the number of rows per loss chunk on each rank of a run that is verified on fewer ranks than it had,
	// whose vram applied to each of those ranks. nil = no such run.
	lossRows *int
}

// Result is the outcome of Start.
type Result struct {
	Steps      int           `json:"steps"` // optimizer steps done, including those before a resume
	MaxSteps   int           `json:"max_steps"`
	Resumed    int           `json:"resumed_from"` // step that the run resumed after; 0 = the run began from the start
	FirstLoss  float64       `json:"first_loss"`
	LastLoss   float64       `json:"last_loss"`
	MeanLoss   float64       `json:"train_loss"`                 // mean over the trained tokens of the run
	EvalBefore *float64      `json:"eval_loss_before,omitempty"` // evaluation loss before the first step
	EvalLoss   *float64      `json:"eval_loss,omitempty"`
	Tokens     int64         `json:"tokens"`
	Duration   time.Duration `json:"duration_ns"`
	HeldBytes  int64         `json:"held_bytes"` // planned memory in bytes
	StepMs     *StepTimes    `json:"step_ms,omitempty"`
	DataMs     *float64      `json:"data_ms,omitempty"` // median of the host's time to make a step's batches, in ms
	Expect     []Judged      `json:"expect,omitempty"`  // criteria of expect, judged if the run did all its steps
	AdapterDir string        `json:"adapter_dir"`
	Checkpoint string        `json:"checkpoint,omitempty"` // path of the newest checkpoint
	// Stopped says that the user interrupted the run after Steps steps; Checkpoint is the one to resume from.
	Stopped bool `json:"stopped,omitempty"`
	// EndedEarly says why the run ended before its last step, by early stopping or the loss watchdog; "" = it did not.
	EndedEarly string `json:"ended_early,omitempty"`
	// ResultStep is the step whose weights are the result, if training.load_best_model_at_end chose others than the
	// last ones; else 0.
	ResultStep int `json:"result_step,omitempty"`
	// Skipped lists the steps of the whole run that were left out because loss or gradient was not finite.
	Skipped []int `json:"skipped_steps,omitempty"`
	// Losses has the loss of every step, including the steps before a resume.
	Losses []float64 `json:"-"`
}

// StepTimes are medians of the time of whole steps in milliseconds, without evaluations and saves.
type StepTimes struct {
	Median     float64 `json:"median"`
	FirstTenth float64 `json:"first_tenth"` // median over the first tenth of the timed steps
	LastTenth  float64 `json:"last_tenth"`
}

// PlanReport is the planned memory of a run, known before anything is allocated.
type PlanReport struct {
	Model             string `json:"model"`
	Device            string `json:"device"`
	Parameters        int64  `json:"parameters"`
	TrainedParameters int64  `json:"trained_parameters"`
	Batch             int    `json:"batch"`           // rows of a micro-batch, or packed sequences
	SequenceLength    int    `json:"sequence_length"` // tokens of the longest row, or of a packed sequence
	Flat              bool   `json:"end_to_end"`      // rows are stored end to end, without packing and padding
	Budgets           []int  `json:"token_budgets"`   // token budgets of the micro-batches, ascending
	// Share of the tokens computed in the first epoch that is padding, 0 to 1.
	Padding float64 `json:"padding"`
	Steps   int     `json:"steps"`
	// Devices that share a step; all bytes are per device. 0 = one.
	Ranks    int           `json:"ranks,omitempty"`
	Sharding *PlanSharding `json:"base_sharding,omitempty"` // nil = each device has the whole base model
	// StateSharding says how the optimizer's states lie in slices; nil = each device has them whole.
	StateSharding *PlanStates    `json:"optimizer_sharding,omitempty"`
	Context       *PlanContext   `json:"context_parallel,omitempty"` // nil = each device has whole rows
	Categories    []PlanCategory `json:"categories"`
	// Sum of the categories: the planned memory in bytes.
	TotalBytes int64 `json:"total_bytes"`
	// Bytes of host memory that hold the optimizer's states; 0 = the device holds them.
	OffloadedBytes int64  `json:"offloaded_optimizer_bytes,omitempty"`
	Precision      string `json:"precision"` // precision in effect: bf16, fp16, tf32 or fp32
	// The precision was chosen for the device, not configured.
	PrecisionAuto bool   `json:"precision_auto"`
	Checkpointing string `json:"gradient_checkpointing"` // mode in effect: graph.Recompute.String
	// Memory limit: vram, or the free memory; 0 = not known.
	Limit int64       `json:"limit_bytes,omitempty"`
	Tried []PlanTried `json:"tried,omitempty"` // faster layouts that do not fit, fastest first
	Notes []string    `json:"notes,omitempty"`
	// Slow lists the fast paths that the run does not take although no key switches them off.
	Slow []graph.SlowPath `json:"slow_paths,omitempty"`
	// Estimate is how long the run takes; nil = not estimated.
	Estimate *PlanEstimate `json:"estimate,omitempty"`
}

// PlanSharding describes a base model that is sharded over several devices: each device stores one slice.
type PlanSharding struct {
	Devices       int   `json:"devices"`
	SliceBytes    int64 `json:"slice_bytes"`    // bytes of the base model's slice on each device
	Gathers       int   `json:"gathers"`        // all-gather operations per step
	ReceivedBytes int64 `json:"received_bytes"` // bytes per step that each device receives from the others
}

// PlanStates describes an optimizer's states that are sharded over several devices: each device stores one slice.
type PlanStates struct {
	Devices       int   `json:"devices"`
	SliceBytes    int64 `json:"slice_bytes"`    // bytes of the states on each device
	WholeBytes    int64 `json:"whole_bytes"`    // bytes that the states would take on each device without slices
	ReceivedBytes int64 `json:"received_bytes"` // bytes of updated weights per step that each device receives
}

// PlanContext describes context parallelism: several devices share the tokens of each row.
type PlanContext struct {
	Devices       int   `json:"devices"`
	Tokens        int   `json:"tokens"` // tokens of a micro-batch on each device
	Heads         int   `json:"heads"`  // attention heads on each device, computed over all tokens
	Exchanges     int   `json:"exchanges"`
	ReceivedBytes int64 `json:"received_bytes"` // bytes per step that each device receives from the others
}

// PlanTried is a memory layout that needs more than the memory limit.
type PlanTried struct {
	Way   string `json:"way"`
	Bytes int64  `json:"bytes"`
}

// PlanCategory is the planned memory of one kind.
type PlanCategory struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}
