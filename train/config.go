// Package train is the training run.
//
// In goes a Spec, the whole configuration, and an Env, what the program around the run gives it. Out come the run's
// files (adapter, checkpoints, metrics, manifest) and a Result. The run is built in layers, each embedded in the
// next: opened, inputs, planner, prepared (prepare.go), loaded, evaluating, running (run.go). The search for a memory
// layout, the step, and the proofs of gradients and replays are packages of their own.
package train

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/optimizer"
	"github.com/tierlora/tierlora/train/step"
)

// Config is the `training:` section of a run's YAML.
type Config struct {
	// MaxSteps is the number of optimizer steps; it wins over Epochs. 0 lets Epochs decide.
	MaxSteps int `yaml:"max_steps" range:"[0,inf)" resume:"steers"`
	// Epochs is the number of passes over the data; 0.5 is half a pass.
	Epochs float64 `yaml:"epochs" default:"1" range:"[0,1e6]" resume:"steers"`
	// BatchSize is the number of rows (or packed sequences) in a micro-batch.
	BatchSize int `yaml:"batch_size" default:"1" range:"[1,inf)" resume:"compared"`
	// GradientAccumulationSteps is the number of micro-batches that each device has in an optimizer step; the loss is divided
	// by the trained tokens of them all.
	GradientAccumulationSteps int `yaml:"gradient_accumulation_steps" default:"1" range:"[1,inf)" resume:"fixed"`
	// GlobalBatchSize is the number of rows (or packed sequences) in an optimizer step over all devices; it sets
	// GradientAccumulationSteps, so that a run resumes with the same steps on another number of devices. 0 = the step has
	// batch_size x gradient_accumulation_steps rows on each device.
	GlobalBatchSize int `yaml:"global_batch_size" range:"[0,inf)" resume:"compared"`

	// Objective is what training minimises. cross_entropy is a model's own loss. smoothed_cross_entropy adds label
	// smoothing and a z-loss, which the section of its name sets. dft multiplies each token's loss by the token's
	// probability (dynamic fine-tuning). focal multiplies it by a power of one minus that probability.
	// dpo learns from pairs of a chosen and a rejected answer, on CPUs.
	Objective string `yaml:"objective" default:"cross_entropy" resume:"fixed"`
	// Optimizer that updates the adapter. adamw_8bit is adamw with both moments in 8 bits, as bitsandbytes has it: 2 bytes for
	// a trained number in place of 8, in tensors of 4096 numbers or more. lion keeps one moment.
	Optimizer string `yaml:"optimizer" default:"adamw" resume:"fixed"`
	// LearningRate is the peak rate, which the schedule scales. LoRA usually wants 1e-4 to 1e-3.
	LearningRate float64 `yaml:"learning_rate" default:"2e-4" range:"(0,inf)" resume:"steers"`
	// LRScheduler is the schedule of the learning rate, by the names that transformers uses; wsd is warm-up, stable, decay.
	LRScheduler string `yaml:"lr_scheduler" default:"cosine" resume:"steers"`
	// WarmupRatio is the part of all steps in which the learning rate rises to its peak.
	WarmupRatio float64 `yaml:"warmup_ratio" range:"[0,1]" resume:"steers"`
	// WarmupSteps is the number of steps of the warm-up; it wins over WarmupRatio. 0 lets WarmupRatio decide.
	WarmupSteps int `yaml:"warmup_steps" range:"[0,inf)" resume:"steers"`
	// MinLRRatio is the floor of the learning rate as a part of its peak, for cosine_with_min_lr and wsd.
	MinLRRatio float64 `yaml:"min_lr_ratio" default:"0.1" range:"[0,1]" resume:"steers"`
	// DecayRatio is the part of all steps, at the end, in which wsd lowers the learning rate.
	DecayRatio float64 `yaml:"decay_ratio" default:"0.1" range:"[0,1]" resume:"steers"`
	// WeightDecay is the optimizer's decoupled weight decay, on all trained tensors.
	WeightDecay float64 `yaml:"weight_decay" default:"0.01" range:"[0,inf)" resume:"steers"`
	// AdamBeta1 is the decay rate of the mean of the gradients.
	AdamBeta1 float64 `yaml:"adam_beta1" default:"0.9" range:"[0,0.9999999]" resume:"steers"`
	// AdamBeta2 is the decay rate of the mean of the squared gradients.
	AdamBeta2 float64 `yaml:"adam_beta2" default:"0.999" range:"[0,0.9999999]" resume:"steers"`
	// AdamEpsilon is added to the denominator of the update.
	AdamEpsilon float64 `yaml:"adam_epsilon" default:"1e-8" range:"(0,inf)" resume:"steers"`
	// MaxGradNorm clips the global norm of the gradients; 0 turns clipping off.
	MaxGradNorm float64 `yaml:"max_grad_norm" default:"1" range:"[0,inf)" resume:"steers"`

	// Precision is how a GPU stores activations and multiplies: bf16; fp16 with loss scaling; fp32; tf32, which is
	// fp32 whose GEMMs use 10 bits of mantissa; auto is bf16 where the GPU has it, else fp16. Parameters, sums and
	// statistics are fp32 in all of them. A CPU computes in fp32.
	Precision string `yaml:"precision" default:"auto" choices:"auto bf16 fp16 tf32 fp32" resume:"steers"`
	// FrozenGEMM is how large GEMMs with 4-bit frozen weights multiply on an H100 or H200: in bf16, or in 8-bit floats
	// (fp8), which is faster and rounds more. fp8 takes precision auto or bf16; LoRA, the head, experts and layers of
	// fewer than 1,024 columns stay in bf16, and so do batches of fewer than 256 tokens.
	FrozenGEMM string `yaml:"frozen_gemm" default:"bf16" choices:"bf16 fp8" resume:"steers"`
	// LossScale is the initial loss scale of fp16, a power of two; it halves when a gradient overflows, whose step is
	// skipped, and doubles after LossScaleInterval steps without.
	LossScale float64 `yaml:"loss_scale" default:"65536" range:"[1,2^127]" resume:"free"`
	// LossScaleInterval is the number of steps without overflow after which fp16's loss scale doubles.
	LossScaleInterval int `yaml:"loss_scale_interval" default:"2000" range:"[1,inf)" resume:"steers"`

	// GradientCheckpointing saves memory by recomputing activations in the backward pass, without changing a number:
	// none keeps all activations, selective recomputes norms, gates and rotations of normed heads, full recomputes whole
	// layers, offload keeps the layers' inputs in host memory besides, auto takes the first of them that fits.
	GradientCheckpointing string `yaml:"gradient_checkpointing" default:"auto" choices:"auto none selective full offload" resume:"free"`

	// DequantisedWeights keeps quantised base weights dequantised in memory, so that no step dequantises them: the same
	// results, faster, in four times the memory or more. auto does so where a GPU has enough free memory without
	// gradient checkpointing. gpt-oss' experts in MXFP4 stay so, unless this is always.
	DequantisedWeights string `yaml:"dequantised_weights" default:"auto" choices:"auto always never" resume:"free"`

	// BaseSharding is whether each of several devices holds a slice of the frozen base model alone, as with FSDP's full
	// sharding or stage 3 of deepspeed, and gathers a layer ahead of its use: the same results, slower, for models larger than
	// a card. auto does so where the whole base fits on no device in any layout.
	BaseSharding string `yaml:"base_sharding" default:"auto" choices:"auto always never" resume:"free"`

	// ContextParallelSize is how many devices share the tokens of each row: every one holds the activations of its part of them,
	// and of attention some heads over the whole row, so that rows may be as many times as long. It divides the number of
	// devices, and the model's attention heads. batch_size rows belong to such a group of devices then, not to each.
	ContextParallelSize int `yaml:"context_parallel_size" default:"1" range:"[1,inf)" resume:"steers"`

	// OnNonFinite is what becomes of a step whose loss or gradient is not finite: stop saves the state before it and ends
	// the run, skip leaves the step out.
	OnNonFinite string `yaml:"on_nonfinite" default:"stop" choices:"stop skip" resume:"steers"`
	// MaxSkippedSteps is how many steps in a row on_nonfinite: skip may leave out; one more saves the state before it and
	// ends the run. 0 sets no limit.
	MaxSkippedSteps int `yaml:"max_skipped_steps" default:"10" range:"[0,inf)" resume:"steers"`

	// OnOOM is what becomes of a run that does not fit in memory as configured, before its first step: stop refuses it and
	// says what would fit; shrink takes smaller batches with more accumulation, and more gradient checkpointing, which
	// leaves the rows of a step and its loss as they are, to rounding. No memory is allocated after start-up.
	OnOOM string `yaml:"on_oom" default:"stop" choices:"stop shrink" resume:"free"`

	// Strict refuses a run that would leave a fast path without being asked: a library that is missing, a kernel that is not
	// the device's fastest, a leaner memory layout than the first that auto tries. The error names each with its cost and
	// remedy. Without it the plan says so and the run goes on.
	Strict bool `yaml:"strict" resume:"free"`

	// DeviceTimeout is the seconds that the run waits for one answer of a GPU: a device that hangs ends it then, with exit
	// code 1. A step with all its micro-batches is one answer. 0 waits for ever.
	DeviceTimeout int `yaml:"device_timeout" default:"1800" range:"[0,inf)" resume:"free"`

	// DDPTimeout is the seconds after which a process of a run of several is given up: it does not answer, or does not get on
	// in a step that others have done. The others end then, with exit code 1.
	DDPTimeout int `yaml:"ddp_timeout" default:"30" range:"[1,inf)" resume:"free"`

	// EvalSteps is the number of optimizer steps between evaluations on the validation rows. Where there are any, they are
	// evaluated after the last step too; with 0 only then.
	EvalSteps int `yaml:"eval_steps" range:"[0,inf)" resume:"free"`
	// EvalsPerEpoch is how many evaluations an epoch has, evenly apart, in place of EvalSteps; 0 leaves it to EvalSteps. It
	// needs rows that are counted, so not dataset.streaming.
	EvalsPerEpoch int `yaml:"evals_per_epoch,omitempty" range:"[0,inf)" resume:"free"`
	// EvalOnStart evaluates on the validation rows before the first step too.
	EvalOnStart bool `yaml:"eval_on_start" resume:"free"`
	// SamplePrompts are texts that the model continues for the log, greedily, before the first step, every EvalSteps and after
	// the last step; where the rows are conversations, messages that it answers.
	SamplePrompts []string `yaml:"sample_prompts,omitempty" resume:"free"`
	// SampleMaxTokens is the most tokens of a sample's answer.
	SampleMaxTokens int `yaml:"sample_max_tokens" default:"64" range:"[1,inf)" resume:"free"`
	// EvalTasks are tasks, built-in ones or files, whose questions the model is asked when the samples are made
	// (docs/EVALUATION.md); metrics.jsonl has the part that it answers right.
	EvalTasks []string `yaml:"eval_tasks,omitempty" resume:"free"`
	// SaveSteps is the number of optimizer steps between checkpoints; 0 saves at the end of the run only.
	SaveSteps int `yaml:"save_steps" range:"[0,inf)" resume:"free"`
	// SavesPerEpoch is how many checkpoints an epoch has, evenly apart, in place of SaveSteps; 0 leaves it to SaveSteps. It
	// needs rows that are counted, so not dataset.streaming.
	SavesPerEpoch int `yaml:"saves_per_epoch,omitempty" range:"[0,inf)" resume:"free"`
	// SaveTotalLimit is the number of newest checkpoints that are kept, the best evaluated one besides; 0 keeps all.
	SaveTotalLimit int `yaml:"save_total_limit" range:"[0,inf)" resume:"free"`
	// MetricForBestModel is the number of an evaluation that tells which checkpoint is the best: eval_loss, or eval_ and the
	// name of a number that the objective reports, such as eval_rewards/accuracies. Whether higher or lower is better is the
	// objective's to say.
	MetricForBestModel string `yaml:"metric_for_best_model" default:"eval_loss" form:"metric" resume:"free"`
	// LoggingSteps is the number of optimizer steps between lines of metrics.jsonl and of the terminal.
	LoggingSteps int `yaml:"logging_steps" default:"1" range:"[1,inf)" resume:"free"`
	// GradNormSteps is the number of optimizer steps between lines of grad_norms.jsonl, which have the norm of each
	// trained tensor's gradient before clipping; 0 writes none.
	GradNormSteps int `yaml:"grad_norm_steps" range:"[0,inf)" resume:"free"`
	// RecordWindows writes the token ids and labels of every micro-batch to windows.jsonl in output_dir, some ten bytes a
	// token. trainer verify --windows replays them where the data set deals others by now.
	RecordWindows bool `yaml:"record_windows" resume:"free"`
	// AllowZeroGradients lets a run go on in which a trained tensor had no gradient in the first three steps, with a
	// warning in place of the error.
	AllowZeroGradients bool `yaml:"allow_zero_gradients" resume:"free"`
	// ReportTo is who else is told of the run besides metrics.jsonl: a table (csv), and trackers (docs/TRACKERS.md).
	ReportTo []string `yaml:"report_to,omitempty" resume:"free"`
	// Resume continues an interrupted run: auto takes the newest complete checkpoint of the output folder, if any; a path
	// names a checkpoint folder. Empty refuses to overwrite a run that is there.
	Resume string `yaml:"resume" form:"path" resume:"free"`
}

// Expect is the `expect:` section: criteria checked at the end of a run.
type Expect struct {
	// LossDecrease is the least fall of the mean training loss, last tenth of the steps against the first tenth,
	// as a part of the first: 0.30 is 30 %. 0 is not checked.
	LossDecrease float64 `yaml:"loss_decrease,omitempty" range:"[0,1)" resume:"free"`
	// EvalLossDecrease is the least fall of the loss on the validation rows, at the end of the run against before its first
	// step, as a part of the latter. It needs training.eval_on_start. 0 is not checked.
	EvalLossDecrease float64 `yaml:"eval_loss_decrease,omitempty" range:"[0,1)" resume:"free"`
	// EvalLossMax is the most that the loss on the validation rows may be at the end of the run. 0 is not checked.
	EvalLossMax float64 `yaml:"eval_loss_max,omitempty" range:"[0,inf)" resume:"free"`
	// AtLeast are lower bounds of numbers at the end of the run, by their names in metrics.jsonl: of the last logged step, or
	// with eval_ before the name of the last evaluation, such as eval_rewards/accuracies: 0.7.
	AtLeast map[string]float64 `yaml:"at_least,omitempty" range:"(-inf,inf)" resume:"free"`
	// AtMost are upper bounds of numbers at the end of the run, named as those of AtLeast.
	AtMost map[string]float64 `yaml:"at_most,omitempty" range:"(-inf,inf)" resume:"free"`
	// Reference is the learning curve of another implementation that the run must not leave, neither up nor down: a file
	// of scripts/reference_curve.py, or embedded:NAME. Empty is not checked.
	Reference string `yaml:"reference,omitempty" form:"path" resume:"free"`
	// MaxVRAM is the most memory that the run may hold on its device, such as 256MiB. Empty is not checked.
	MaxVRAM string `yaml:"max_vram,omitempty" form:"size" resume:"free"`
}

// Default is the section with nothing set.
func Default() (c Config) {
	keys.SetDefaults(&c)
	return c
}

// Choices are the values of keys that name an entry of a table.
func (Config) Choices() map[string][]string {
	return map[string][]string{
		"objective":    slices.Sorted(maps.Keys(objective.Objectives)),
		"optimizer":    slices.Sorted(maps.Keys(optimizer.Optimizers)),
		"lr_scheduler": slices.Sorted(maps.Keys(Schedules)),
		"report_to":    slices.Sorted(maps.Keys(Observers)),
	}
}

// Step returns what the training step of an objective is planned from.
func (c Config) Step(o objective.Objective) step.Options {
	return step.Options{
		Objective: o, Optimizer: optimizer.Optimizers[c.Optimizer](c.optimizer()), MaxGradNorm: c.MaxGradNorm,
		TensorNorms: c.GradNormSteps > 0, LossScaleInterval: c.LossScaleInterval,
	}
}

// Numbers names the precision that the run's device computes in, as session.OpenMachine takes it.
func (c Config) Numbers() string {
	if c.FrozenGEMM == "fp8" {
		return kernel.PrecisionFP8.String()
	}
	return c.Precision
}

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	problems := keys.Check("training.", c)
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("training."+format, args...))
	}
	if rows := c.GlobalBatchSize; rows > 0 && c.BatchSize > 0 && rows%c.BatchSize != 0 {
		bad("global_batch_size: %d rows are not whole batches of batch_size %d", rows, c.BatchSize)
	} else if rows > 0 && c.GradientAccumulationSteps > 1 {
		bad("global_batch_size: sets gradient_accumulation_steps, which is %d: remove one of them", c.GradientAccumulationSteps)
	}
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
	if c.MaxSteps == 0 && c.Epochs == 0 {
		bad("epochs: 0 must be above 0 where max_steps is not set")
	}
	if c.FrozenGEMM == "fp8" && c.Precision != session.PrecisionAuto && c.Precision != "bf16" {
		bad("frozen_gemm: fp8 needs precision: auto or bf16, it is %s", c.Precision)
	}
	if c.FrozenGEMM == "fp8" && c.DequantisedWeights == "always" {
		bad("frozen_gemm: fp8 reads packed weights, and dequantised_weights: always keeps none; set it to auto or never")
	}
	if frac, _ := math.Frexp(c.LossScale); frac != 0.5 && c.LossScale >= 1 && !math.IsInf(c.LossScale, 0) {
		bad("loss_scale: %v must be a power of two", c.LossScale)
	}
	return problems
}

// optimizer is what the section says of its optimizer.
func (c Config) optimizer() optimizer.Config {
	return optimizer.Config{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Epsilon: c.AdamEpsilon, WeightDecay: c.WeightDecay}
}
