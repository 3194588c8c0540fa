// Package train is the training run: the step as a plan, the loop around it, schedule, checkpoints, metrics.
package train

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/optimizer"
)

// Config is the `training:` section of a run's YAML.
type Config struct {
	// MaxSteps is the number of optimizer steps; it wins over Epochs. 0 lets Epochs decide.
	MaxSteps int `mapstructure:"max_steps" yaml:"max_steps"`
	// Epochs is the number of passes over the data; 0.5 is half a pass.
	Epochs float64 `mapstructure:"epochs" yaml:"epochs"`
	// BatchSize is the number of rows (or packed sequences) in a micro-batch.
	BatchSize int `mapstructure:"batch_size" yaml:"batch_size"`
	// GradientAccumulationSteps is the number of micro-batches that each device has in an optimizer step; the loss is divided
	// by the trained tokens of them all.
	GradientAccumulationSteps int `mapstructure:"gradient_accumulation_steps" yaml:"gradient_accumulation_steps"`
	// GlobalBatchSize is the number of rows (or packed sequences) in an optimizer step over all devices; it sets
	// GradientAccumulationSteps, so that a run resumes with the same steps on another number of devices. 0 = the step has
	// batch_size x gradient_accumulation_steps rows on each device.
	GlobalBatchSize int `mapstructure:"global_batch_size" yaml:"global_batch_size"`

	// Objective is what training minimises.
	Objective string `mapstructure:"objective" yaml:"objective"`
	// Optimizer that updates the adapter. adamw_8bit is adamw with both moments in 8 bits, as bitsandbytes has it: 2 bytes for
	// a trained number in place of 8, in tensors of 4096 numbers or more. lion keeps one moment.
	Optimizer string `mapstructure:"optimizer" yaml:"optimizer"`
	// LearningRate is the peak rate, which the schedule scales. LoRA usually wants 1e-4 to 1e-3.
	LearningRate float64 `mapstructure:"learning_rate" yaml:"learning_rate"`
	// LRScheduler is the schedule of the learning rate, by the names that transformers uses; wsd is warm-up, stable, decay.
	LRScheduler string `mapstructure:"lr_scheduler" yaml:"lr_scheduler"`
	// WarmupRatio is the part of all steps in which the learning rate rises to its peak.
	WarmupRatio float64 `mapstructure:"warmup_ratio" yaml:"warmup_ratio"`
	// WarmupSteps is the number of steps of the warm-up; it wins over WarmupRatio. 0 lets WarmupRatio decide.
	WarmupSteps int `mapstructure:"warmup_steps" yaml:"warmup_steps"`
	// MinLRRatio is the floor of the learning rate as a part of its peak, for cosine_with_min_lr and wsd.
	MinLRRatio float64 `mapstructure:"min_lr_ratio" yaml:"min_lr_ratio"`
	// DecayRatio is the part of all steps, at the end, in which wsd lowers the learning rate.
	DecayRatio float64 `mapstructure:"decay_ratio" yaml:"decay_ratio"`
	// WeightDecay is the optimizer's decoupled weight decay, on all trained tensors.
	WeightDecay float64 `mapstructure:"weight_decay" yaml:"weight_decay"`
	// AdamBeta1 is the decay rate of the mean of the gradients.
	AdamBeta1 float64 `mapstructure:"adam_beta1" yaml:"adam_beta1"`
	// AdamBeta2 is the decay rate of the mean of the squared gradients.
	AdamBeta2 float64 `mapstructure:"adam_beta2" yaml:"adam_beta2"`
	// AdamEpsilon is added to the denominator of the update.
	AdamEpsilon float64 `mapstructure:"adam_epsilon" yaml:"adam_epsilon"`
	// MaxGradNorm clips the global norm of the gradients; 0 turns clipping off.
	MaxGradNorm float64 `mapstructure:"max_grad_norm" yaml:"max_grad_norm"`

	// Precision is how a GPU stores activations and multiplies: bf16; fp16 with loss scaling; fp32; tf32, which is
	// fp32 whose GEMMs use 10 bits of mantissa; auto is bf16 where the GPU has it, else fp16. Parameters, sums and
	// statistics are fp32 in all of them. A CPU computes in fp32.
	Precision string `mapstructure:"precision" yaml:"precision"`
	// LossScale is the initial loss scale of fp16, a power of two; it halves when a gradient overflows, whose step is
	// skipped, and doubles after LossScaleInterval steps without.
	LossScale float64 `mapstructure:"loss_scale" yaml:"loss_scale"`
	// LossScaleInterval is the number of steps without overflow after which fp16's loss scale doubles.
	LossScaleInterval int `mapstructure:"loss_scale_interval" yaml:"loss_scale_interval"`

	// GradientCheckpointing saves memory by recomputing activations in the backward pass, without changing a number:
	// none keeps all activations, selective recomputes norms, gates and rotations of normed heads, full recomputes whole
	// layers, offload keeps the layers' inputs in host memory besides, auto takes the first of them that fits.
	GradientCheckpointing string `mapstructure:"gradient_checkpointing" yaml:"gradient_checkpointing"`

	// DequantisedWeights keeps quantised base weights dequantised in memory, so that no step dequantises them: the same
	// results, faster, in four times the memory or more. auto does so where a GPU has enough free memory without
	// gradient checkpointing. gpt-oss' experts in MXFP4 stay so, unless this is always.
	DequantisedWeights string `mapstructure:"dequantised_weights" yaml:"dequantised_weights"`

	// BaseSharding is whether each of several devices holds a slice of the frozen base model alone, as with FSDP's full
	// sharding or stage 3 of deepspeed, and gathers a layer ahead of its use: the same results, slower, for models larger than
	// a card. auto does so where the whole base fits on no device in any layout.
	BaseSharding string `mapstructure:"base_sharding" yaml:"base_sharding"`

	// ContextParallelSize is how many devices share the tokens of each row: every one holds the activations of its part of them,
	// and of attention some heads over the whole row, so that rows may be as many times as long. It divides the number of
	// devices, and the model's attention heads. batch_size rows belong to such a group of devices then, not to each.
	ContextParallelSize int `mapstructure:"context_parallel_size" yaml:"context_parallel_size"`

	// OnNonFinite is what becomes of a step whose loss or gradient is not finite: stop saves the state before it and ends
	// the run, skip leaves the step out.
	OnNonFinite string `mapstructure:"on_nonfinite" yaml:"on_nonfinite"`
	// MaxSkippedSteps is how many steps in a row on_nonfinite: skip may leave out; one more saves the state before it and
	// ends the run. 0 sets no limit.
	MaxSkippedSteps int `mapstructure:"max_skipped_steps" yaml:"max_skipped_steps"`

	// OnOOM is what becomes of a run that does not fit in memory as configured, before its first step: stop refuses it and
	// says what would fit; shrink takes smaller batches with more accumulation, and more gradient checkpointing, which
	// leaves the rows of a step and its loss as they are, to rounding. Later a run takes no memory.
	OnOOM string `mapstructure:"on_oom" yaml:"on_oom"`

	// Strict refuses a run that would leave a fast path without being asked: a library that is missing, a kernel that is not
	// the device's fastest, a leaner memory layout than the first that auto tries. The error names each with its cost and
	// remedy. Without it the plan says so and the run goes on.
	Strict bool `mapstructure:"strict" yaml:"strict"`

	// DeviceTimeout is the seconds that the run waits for one answer of a GPU: a device that hangs ends it then, with exit
	// code 1. A step with all its micro-batches is one answer. 0 waits for ever.
	DeviceTimeout int `mapstructure:"device_timeout" yaml:"device_timeout"`

	// DDPTimeout is the seconds after which a process of a run of several is given up: it does not answer, or does not get on
	// in a step that others have done. The others end then, with exit code 1.
	DDPTimeout int `mapstructure:"ddp_timeout" yaml:"ddp_timeout"`

	// EvalSteps is the number of optimizer steps between evaluations on the validation rows. Where there are any, they are
	// evaluated after the last step too; with 0 only then.
	EvalSteps int `mapstructure:"eval_steps" yaml:"eval_steps"`
	// EvalsPerEpoch is how many evaluations an epoch has, evenly apart, in place of EvalSteps; 0 leaves it to EvalSteps. It
	// needs rows that are counted, so not dataset.streaming.
	EvalsPerEpoch int `mapstructure:"evals_per_epoch" yaml:"evals_per_epoch,omitempty"`
	// EvalOnStart evaluates on the validation rows before the first step too.
	EvalOnStart bool `mapstructure:"eval_on_start" yaml:"eval_on_start"`
	// SamplePrompts are texts that the model continues for the log, greedily, before the first step, every EvalSteps and after
	// the last step; where the rows are conversations, messages that it answers.
	SamplePrompts []string `mapstructure:"sample_prompts" yaml:"sample_prompts,omitempty"`
	// SampleMaxTokens is the most tokens of a sample's answer.
	SampleMaxTokens int `mapstructure:"sample_max_tokens" yaml:"sample_max_tokens"`
	// EvalTasks are tasks, built-in ones or files, whose questions the model is asked when the samples are made
	// (docs/EVALUATION.md); metrics.jsonl has the part that it answers right.
	EvalTasks []string `mapstructure:"eval_tasks" yaml:"eval_tasks,omitempty"`
	// SaveSteps is the number of optimizer steps between checkpoints; 0 saves at the end of the run only.
	SaveSteps int `mapstructure:"save_steps" yaml:"save_steps"`
	// SavesPerEpoch is how many checkpoints an epoch has, evenly apart, in place of SaveSteps; 0 leaves it to SaveSteps. It
	// needs rows that are counted, so not dataset.streaming.
	SavesPerEpoch int `mapstructure:"saves_per_epoch" yaml:"saves_per_epoch,omitempty"`
	// SaveTotalLimit is the number of newest checkpoints that are kept, the best evaluated one besides; 0 keeps all.
	SaveTotalLimit int `mapstructure:"save_total_limit" yaml:"save_total_limit"`
	// LoggingSteps is the number of optimizer steps between lines of metrics.jsonl and of the terminal.
	LoggingSteps int `mapstructure:"logging_steps" yaml:"logging_steps"`
	// GradNormSteps is the number of optimizer steps between lines of grad_norms.jsonl, which have the norm of each
	// trained tensor's gradient before clipping; 0 writes none.
	GradNormSteps int `mapstructure:"grad_norm_steps" yaml:"grad_norm_steps"`
	// AllowZeroGradients lets a run go on in which a trained tensor had no gradient in the first three steps, with a
	// warning in place of the error.
	AllowZeroGradients bool `mapstructure:"allow_zero_gradients" yaml:"allow_zero_gradients"`
	// ReportTo is who else is told of the run besides metrics.jsonl: a table (csv), and trackers (docs/TRACKERS.md).
	ReportTo []string `mapstructure:"report_to" yaml:"report_to,omitempty"`
	// Resume continues an interrupted run: auto takes the newest complete checkpoint of the output folder, if any; a path
	// names a checkpoint folder. Empty refuses to overwrite a run that is there.
	Resume string `mapstructure:"resume" yaml:"resume"`
}

// Expect is the `expect:` section: criteria checked at the end of a run.
type Expect struct {
	// LossDecrease is the least fall of the mean training loss, last tenth of the steps against the first tenth,
	// as a part of the first: 0.30 is 30 %. 0 is not checked.
	LossDecrease float64 `mapstructure:"loss_decrease" yaml:"loss_decrease,omitempty"`
	// EvalLossDecrease is the least fall of the loss on the validation rows, at the end of the run against before its first
	// step, as a part of the latter. It needs training.eval_on_start. 0 is not checked.
	EvalLossDecrease float64 `mapstructure:"eval_loss_decrease" yaml:"eval_loss_decrease,omitempty"`
	// EvalLossMax is the most that the loss on the validation rows may be at the end of the run. 0 is not checked.
	EvalLossMax float64 `mapstructure:"eval_loss_max" yaml:"eval_loss_max,omitempty"`
	// Reference is the learning curve of another implementation that the run must not leave, neither up nor down: a file
	// of scripts/reference_curve.py, or embedded:NAME. Empty is not checked.
	Reference string `mapstructure:"reference" yaml:"reference,omitempty"`
	// MaxVRAM is the most memory that the run may hold on its device, such as 256MiB. Empty is not checked.
	MaxVRAM string `mapstructure:"max_vram" yaml:"max_vram,omitempty"`
}

// Default is the one place where defaults of the section stand.
func Default() Config {
	return Config{
		Epochs: 1, BatchSize: 1, GradientAccumulationSteps: 1,
		Objective: objective.Default, Optimizer: "adamw", LearningRate: 2e-4, LRScheduler: "cosine", WarmupRatio: 0, MinLRRatio: 0.1, DecayRatio: 0.1,
		WeightDecay: 0.01, AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: 1,
		Precision: "auto", LossScale: 1 << 16, LossScaleInterval: 2000, // torch's GradScaler
		GradientCheckpointing: "auto", DequantisedWeights: "auto", BaseSharding: "auto", ContextParallelSize: 1, OnNonFinite: "stop", MaxSkippedSteps: 10, OnOOM: fit.OnOOMStop, DeviceTimeout: 1800, DDPTimeout: 30, LoggingSteps: 1, SamplePrompts: []string{}, SampleMaxTokens: 64, EvalTasks: []string{}, ReportTo: []string{},
	}
}

// objective is the objective that the section names, which Validate has found.
func (c Config) objective() objective.Objective { return objective.Of(c.Objective, objective.Config{}) }

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("training."+format, args...))
	}
	atLeast := func(key string, v, least int) {
		if v < least {
			bad("%s: %d must be at least %d", key, v, least)
		}
	}
	within := func(key string, v, lo, hi float64) {
		if !(v >= lo && v <= hi) {
			bad("%s: %v must lie in %v to %v", key, v, lo, hi)
		}
	}
	atLeast("max_steps", c.MaxSteps, 0)
	atLeast("batch_size", c.BatchSize, 1)
	atLeast("context_parallel_size", c.ContextParallelSize, 1)
	atLeast("gradient_accumulation_steps", c.GradientAccumulationSteps, 1)
	atLeast("global_batch_size", c.GlobalBatchSize, 0)
	if rows := c.GlobalBatchSize; rows > 0 && c.BatchSize > 0 && rows%c.BatchSize != 0 {
		bad("global_batch_size: %d rows are not whole batches of batch_size %d", rows, c.BatchSize)
	} else if rows > 0 && c.GradientAccumulationSteps > 1 {
		bad("global_batch_size: sets gradient_accumulation_steps, which is %d: remove one of them", c.GradientAccumulationSteps)
	}
	atLeast("warmup_steps", c.WarmupSteps, 0)
	atLeast("eval_steps", c.EvalSteps, 0)
	atLeast("evals_per_epoch", c.EvalsPerEpoch, 0)
	atLeast("saves_per_epoch", c.SavesPerEpoch, 0)
	atLeast("sample_max_tokens", c.SampleMaxTokens, 1)
	for i, prompt := range c.SamplePrompts {
		if prompt == "" {
			bad("sample_prompts[%d]: is empty", i)
		}
	}
	if n := len(c.SamplePrompts); n > maxSamples {
		bad("sample_prompts: there are %d, more than %d", n, maxSamples)
	}
	for i, name := range c.EvalTasks {
		if name == "" || slices.Contains(c.EvalTasks[:i], name) {
			bad("eval_tasks[%d]: %q is empty or given before", i, name)
		}
	}
	atLeast("save_steps", c.SaveSteps, 0)
	atLeast("save_total_limit", c.SaveTotalLimit, 0)
	atLeast("logging_steps", c.LoggingSteps, 1)
	atLeast("grad_norm_steps", c.GradNormSteps, 0)
	atLeast("max_skipped_steps", c.MaxSkippedSteps, 0)
	atLeast("device_timeout", c.DeviceTimeout, 0)
	atLeast("ddp_timeout", c.DDPTimeout, 1)
	if within("epochs", c.Epochs, 0, 1e6); c.MaxSteps == 0 && c.Epochs == 0 {
		bad("epochs: 0 must be above 0 where max_steps is not set")
	}
	if !c.Layout().Known() {
		bad("gradient_checkpointing: %q is not one of auto, none, selective, full, offload", c.GradientCheckpointing)
	}
	if c.DequantisedWeights != "auto" && c.DequantisedWeights != "always" && c.DequantisedWeights != "never" {
		bad("dequantised_weights: %q is not one of auto, always, never", c.DequantisedWeights)
	}
	if c.BaseSharding != "auto" && c.BaseSharding != "always" && c.BaseSharding != "never" {
		bad("base_sharding: %q is not one of auto, always, never", c.BaseSharding)
	}
	if _, ok := kernel.PrecisionNamed(c.Precision); !ok && c.Precision != session.PrecisionAuto {
		bad("precision: %q is not one of auto, bf16, fp16, tf32, fp32", c.Precision)
	}
	if frac, _ := math.Frexp(c.LossScale); frac != 0.5 || c.LossScale < 1 || c.LossScale > math.MaxFloat32 {
		bad("loss_scale: %v must be a power of two, 1 or more", c.LossScale)
	}
	atLeast("loss_scale_interval", c.LossScaleInterval, 1)
	if _, ok := optimizer.Optimizers[c.Optimizer]; !ok {
		bad("optimizer: %q is not one of %s", c.Optimizer, names(optimizer.Optimizers))
	}
	if _, ok := objective.Objectives[c.Objective]; !ok {
		bad("objective: %q is not one of %s", c.Objective, names(objective.Objectives))
	}
	for _, o := range c.ReportTo {
		if _, ok := Observers[o]; !ok {
			bad("report_to: %q is not one of %s", o, names(Observers))
		}
	}
	if c.OnNonFinite != "stop" && c.OnNonFinite != "skip" {
		bad("on_nonfinite: %q is not one of stop, skip", c.OnNonFinite)
	}
	if c.OnOOM != fit.OnOOMStop && c.OnOOM != fit.OnOOMShrink {
		bad("on_oom: %q is not one of stop, shrink", c.OnOOM)
	}
	if !(c.LearningRate > 0) || math.IsInf(c.LearningRate, 0) {
		bad("learning_rate: %v must be a positive number", c.LearningRate)
	}
	if _, ok := Schedules[c.LRScheduler]; !ok {
		bad("lr_scheduler: %q is not one of %s", c.LRScheduler, names(Schedules))
	}
	within("warmup_ratio", c.WarmupRatio, 0, 1)
	within("min_lr_ratio", c.MinLRRatio, 0, 1)
	within("decay_ratio", c.DecayRatio, 0, 1)
	within("adam_beta1", c.AdamBeta1, 0, 0.9999999)
	within("adam_beta2", c.AdamBeta2, 0, 0.9999999)
	if !(c.AdamEpsilon > 0) {
		bad("adam_epsilon: %v must be a positive number", c.AdamEpsilon)
	}
	if !(c.WeightDecay >= 0) {
		bad("weight_decay: %v must not be negative", c.WeightDecay)
	}
	if !(c.MaxGradNorm >= 0) {
		bad("max_grad_norm: %v must not be negative", c.MaxGradNorm)
	}
	return problems
}

// names lists a table's keys.
func names[V any](table map[string]V) string {
	keys := make([]string, 0, len(table))
	for k := range table {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return strings.Join(keys, ", ")
}

// optimizer is what the section says of its optimizer.
func (c Config) optimizer() optimizer.Config {
	return optimizer.Config{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Epsilon: c.AdamEpsilon, WeightDecay: c.WeightDecay}
}
