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

	"github.com/tierlora/tierlora/adapter"
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
	// GradientAccumulationSteps is the number of micro-batches that each device processes in an optimizer step. The
	// loss is averaged over all of them together, so that micro-batches with fewer trained tokens count less.
	GradientAccumulationSteps int `yaml:"gradient_accumulation_steps" default:"1" range:"[1,inf)" resume:"fixed"`
	// GlobalBatchSize is the number of rows (or packed sequences) in an optimizer step, over all devices. It sets
	// GradientAccumulationSteps, so that a run can resume with the same steps on another number of devices. 0 leaves
	// the step at batch_size x gradient_accumulation_steps rows on each device.
	GlobalBatchSize int `yaml:"global_batch_size" range:"[0,inf)" resume:"compared"`

	// Objective is what training minimises. cross_entropy is a model's own loss. smoothed_cross_entropy adds label
	// smoothing and a z-loss, which the section of its name sets. dft multiplies each token's loss by the token's
	// probability (dynamic fine-tuning). focal multiplies it by a power of one minus that probability.
	// dpo learns from pairs of a chosen and a rejected answer, compared with a reference; cpo, simpo and orpo do
	// without one. distill learns from a teacher's log-probabilities (knowledge distillation).
	Objective string `yaml:"objective" default:"cross_entropy" resume:"fixed"`
	// SharePrompts computes the prompt of a preference pair, or of a group of sampled answers, once instead of with
	// each answer. Results are the same up to rounding; steps are faster and take less memory, the more so the longer
	// prompts are. auto does so where enough tokens are saved and the run allows it: not with linear attention,
	// longrope, neftune_alpha, dataset.streaming or context_parallel_size. A resumed run with auto goes on as it began.
	SharePrompts string `yaml:"share_prompts" default:"auto" choices:"auto yes no" resume:"compared"`
	// Reference is the model that dpo, kto and other objectives with a reference compare the trained one with. base is
	// the base model with the adapter switched off. start is the adapter that the run starts from (init_from), as TRL
	// copies it; a fresh adapter starts as the base model. A path names the folder of another adapter in PEFT's format.
	// The adapter of a reference is frozen and held beside the trained one.
	Reference string `yaml:"reference" default:"base" form:"path" resume:"free"`
	// Precompute computes the reference's log-probabilities of all rows once before training instead of in every step,
	// for dpo and kto: steps then have no forward pass of the reference. The numbers are kept in dataset.cache_dir,
	// where later runs find them. auto does so if the run would compute the reference of a row 1.5 times or more on
	// average. On a CPU the results are the same to the last bit; on a GPU up to the rounding of batches of other
	// sizes. A resumed run with auto goes on as it began.
	Precompute string `yaml:"precompute" default:"auto" choices:"auto yes no" resume:"compared"`
	// NEFTuneAlpha adds noise to the embeddings in training (NEFTune), uniform in [-m, m) with m = neftune_alpha /
	// sqrt(L d) for a row of L tokens and embeddings of d numbers. 5 is usual; 0 turns it off. The noise of a token
	// depends on seed, step, row and position alone.
	NEFTuneAlpha float64 `yaml:"neftune_alpha" range:"[0,inf)" resume:"steers"`
	// Optimizer is the rule that updates trained weights. adamw_8bit is adamw with both moments in 8 bits, as in
	// bitsandbytes: 2 bytes for each trained number instead of 8, in tensors of at least 4096 numbers. lion keeps one
	// moment, and lion_8bit keeps it in 1 byte. adafactor is transformers' and keeps the means of rows and columns of
	// the second moments. muon is torch's, for matrices; vectors, embeddings and heads get adamw's update.
	// schedule_free_adamw trains without a falling rate (lr_scheduler: constant or constant_with_warmup), and evaluates
	// and saves the average of its weights. sgd is gradient descent with momentum.
	Optimizer string `yaml:"optimizer" default:"adamw" resume:"fixed"`
	// LearningRate is the peak of the schedule. LoRA usually needs 1e-4 to 1e-3, higher than full fine-tuning.
	LearningRate float64 `yaml:"learning_rate" default:"2e-4" range:"(0,inf)" resume:"steers"`
	// LRScheduler is the schedule of the learning rate, named as in transformers. wsd means warm-up, stable, decay.
	LRScheduler string `yaml:"lr_scheduler" default:"cosine" resume:"steers"`
	// WarmupRatio is the fraction of all steps during which the learning rate rises to its peak.
	WarmupRatio float64 `yaml:"warmup_ratio" range:"[0,1]" resume:"steers"`
	// WarmupSteps is the number of warm-up steps. It wins over WarmupRatio; 0 lets WarmupRatio decide.
	WarmupSteps int `yaml:"warmup_steps" range:"[0,inf)" resume:"steers"`
	// MinLRRatio is the lowest learning rate as a fraction of the peak (cosine_with_min_lr and wsd).
	MinLRRatio float64 `yaml:"min_lr_ratio" default:"0.1" range:"[0,1]" resume:"steers"`
	// DecayRatio is the fraction of all steps, at the end of the run, during which wsd lowers the learning rate.
	DecayRatio float64 `yaml:"decay_ratio" default:"0.1" range:"[0,1]" resume:"steers"`
	// WeightDecay is the decoupled weight decay of the optimizer, applied to all trained tensors but those of
	// WeightDecayPattern, and norms and biases of a base model that is trained itself.
	WeightDecay float64 `yaml:"weight_decay" default:"0.01" range:"[0,inf)" resume:"steers"`
	// LearningRatePattern gives the trained tensors whose name a pattern matches a learning rate of their own, which
	// follows the schedule as learning_rate does: {score: 1e-3, layers.0: 1e-5}. A pattern is a part of a name between
	// dots, or a regular expression in Python's syntax for one. The rate replaces that of lora.loraplus_lr_ratio. No
	// tensor may match two patterns.
	LearningRatePattern map[string]float64 `yaml:"learning_rate_pattern,omitempty" range:"(0,inf)" resume:"fixed"`
	// WeightDecayPattern gives the trained tensors whose name a pattern matches a weight decay of their own:
	// {lora_B: 0}. With adapter: full, norms and biases have none, as in transformers, unless a pattern matches them.
	WeightDecayPattern map[string]float64 `yaml:"weight_decay_pattern,omitempty" range:"[0,inf)" resume:"fixed"`
	// AdamBeta1 is the decay rate of the running mean of the gradients; for lion, the weight of its moment in the
	// update.
	AdamBeta1 float64 `yaml:"adam_beta1" default:"0.9" range:"[0,0.9999999]" resume:"steers"`
	// AdamBeta2 is the decay rate of the running mean of the squared gradients; for lion, the decay rate of its
	// moment.
	AdamBeta2 float64 `yaml:"adam_beta2" default:"0.999" range:"[0,0.9999999]" resume:"steers"`
	// AdamEpsilon is added to the denominator of adamw's update, so that it is never zero.
	AdamEpsilon float64 `yaml:"adam_epsilon" default:"1e-8" range:"(0,inf)" resume:"steers"`

	optimizer.Settings `yaml:",inline"`

	// MaxGradNorm is the gradient norm, over all trained tensors, above which gradients are scaled down (clipping). 0
	// turns clipping off.
	MaxGradNorm float64 `yaml:"max_grad_norm" default:"1" range:"[0,inf)" resume:"steers"`

	// Precision is the number format of activations and GEMMs on a GPU. auto means bf16 if the GPU supports it,
	// otherwise fp16. fp16 uses loss scaling. tf32 is fp32 with 10 bits of mantissa in GEMMs. Trained parameters, sums
	// and statistics are fp32 in every mode. A CPU always computes in fp32.
	Precision string `yaml:"precision" default:"auto" choices:"auto bf16 fp16 tf32 fp32" resume:"steers"`
	// FrozenGEMM is the number format in which large GEMMs with frozen 4-bit weights multiply on an H100 or H200. fp8
	// (8-bit floats) is faster than bf16 and rounds more; it needs precision auto or bf16. LoRA, the vocabulary head,
	// experts, layers with fewer than 1,024 columns and batches with fewer than 256 tokens stay in bf16.
	FrozenGEMM string `yaml:"frozen_gemm" default:"bf16" choices:"bf16 fp8" resume:"steers"`
	// LossScale is the initial loss scale of fp16, a power of two. When a gradient overflows, the step is skipped and
	// the scale halves. After LossScaleInterval steps without an overflow the scale doubles.
	LossScale float64 `yaml:"loss_scale" default:"65536" range:"[1,2^127]" resume:"free"`
	// LossScaleInterval is the number of steps without an overflow after which the loss scale of fp16 doubles.
	LossScaleInterval int `yaml:"loss_scale_interval" default:"2000" range:"[1,inf)" resume:"steers"`

	// GradientCheckpointing is how much of the forward pass is recomputed in the backward pass to save memory. No mode
	// changes a result. none keeps all activations. selective recomputes norms, gates and the rotations of normed
	// heads. full recomputes whole layers. offload is full with the inputs of the layers in host memory. auto takes
	// the first of these that fits. On a GPU that trainer plan estimates times for, auto compares full and offload
	// with a mode that does not recompute attention: its outputs wait in host memory, in as many layers as must.
	GradientCheckpointing string `yaml:"gradient_checkpointing" default:"auto" choices:"auto none selective full offload" resume:"free"`

	// DequantisedWeights keeps quantised base weights dequantised in memory, so that no step dequantises them. Results
	// are the same and steps are faster, but the weights take at least four times the memory. auto does so if a GPU
	// has enough free memory without gradient checkpointing, except for the MXFP4 experts of gpt-oss, which only
	// always dequantises.
	DequantisedWeights string `yaml:"dequantised_weights" default:"auto" choices:"auto always never" resume:"free"`

	// BaseSharding divides the frozen base model among several devices, as FSDP's full sharding and stage 3 of
	// deepspeed do. Each device holds a slice and gathers a layer before it is used. Results are the same and steps
	// are slower; it serves models larger than one card. auto shards if the whole base model fits on no device in any
	// memory layout.
	BaseSharding string `yaml:"base_sharding" default:"auto" choices:"auto always never" resume:"free"`

	// OptimizerOffload keeps the optimizer's states in page-locked host memory, as the paged optimizers of bitsandbytes
	// do: paged_adamw_8bit is another name of adamw_8bit. A GPU reads and writes them there while it updates, over
	// its link. Results are the same to the last bit, and updates are slower. auto does so if the run fits on the
	// device in no other memory layout. On a CPU all memory is the host's, and the key changes nothing.
	OptimizerOffload string `yaml:"optimizer_offload" default:"auto" choices:"auto always never" resume:"free"`

	// OptimizerSharding divides the optimizer's states among several devices, as stage 1 of deepspeed does: each device
	// updates its slice of the trained weights and receives those of the others. Results are the same to the last bit
	// for any number of devices, checkpoints too. auto does so if the run fits on no device in any other memory layout.
	// Muon's matrices and adafactor stay whole, and so do moments in 8 bits of an adapter.
	OptimizerSharding string `yaml:"optimizer_sharding" default:"auto" choices:"auto always never" resume:"free"`

	// ContextParallelSize is the number of devices that share the tokens of each row, for rows that are too long for
	// one device. Each device holds the activations of its part of the tokens, and in attention computes some heads
	// over the whole row. The value must divide the number of devices and the number of attention heads. batch_size
	// then counts the rows of such a group of devices, not of each device.
	ContextParallelSize int `yaml:"context_parallel_size" default:"1" range:"[1,inf)" resume:"steers"`

	// OnNonFinite is what happens when a loss or gradient is not finite. stop saves the state before that step and
	// ends the run; skip leaves the step out and continues.
	OnNonFinite string `yaml:"on_nonfinite" default:"stop" choices:"stop skip" resume:"steers"`
	// MaxSkippedSteps is the number of consecutive steps that on_nonfinite: skip may leave out. One more saves the
	// state before it and ends the run. 0 sets no limit.
	MaxSkippedSteps int `yaml:"max_skipped_steps" default:"10" range:"[0,inf)" resume:"steers"`

	// OnOOM is what happens when the planned memory does not fit, before the first step. stop refuses the run and
	// names what would fit. shrink uses smaller micro-batches with more accumulation, and more gradient checkpointing:
	// a step keeps its rows, and its loss is the same up to rounding. It is refused where the loss is defined over a
	// micro-batch: contrastive, kto with its estimate of the divergence, grpo with loss_type: bnpo or
	// top_entropy_quantile. Later in the run no memory is allocated.
	OnOOM string `yaml:"on_oom" default:"stop" choices:"stop shrink" resume:"free"`

	// Strict refuses a run that would be slower than it could be for a reason that the configuration does not ask for:
	// a missing library, a kernel that is not the fastest of the device, or a leaner memory layout than the first that
	// auto tries. The error names the cost and the fix of each. Without strict the plan prints them and the run
	// starts.
	Strict bool `yaml:"strict" resume:"free"`

	// DeviceTimeout is how many seconds the run waits for one answer of a GPU, such as the result of a step with all
	// its micro-batches. A GPU that hangs for longer ends the run with exit code 1. 0 waits forever.
	DeviceTimeout int `yaml:"device_timeout" default:"1800" range:"[0,inf)" resume:"free"`

	// DDPTimeout is how many seconds the processes of a run wait for one that does not answer or does not finish a
	// step that the others have finished. After that they end with exit code 1.
	DDPTimeout int `yaml:"ddp_timeout" default:"30" range:"[1,inf)" resume:"free"`

	// EvalSteps is the number of optimizer steps between evaluations on the validation rows. The last step is always
	// followed by an evaluation if there are validation rows; 0 means only that one.
	EvalSteps int `yaml:"eval_steps" range:"[0,inf)" resume:"free"`
	// EvalsPerEpoch is the number of evaluations in an epoch, evenly spaced; it replaces EvalSteps. 0 leaves the
	// choice to EvalSteps. It does not work with dataset.streaming, which does not count its rows.
	EvalsPerEpoch int `yaml:"evals_per_epoch,omitempty" range:"[0,inf)" resume:"free"`
	// EvalOnStart also evaluates on the validation rows before the first step.
	EvalOnStart bool `yaml:"eval_on_start" resume:"free"`
	// SamplePrompts lists prompts whose answers the run logs before the first step, every EvalSteps and after the last
	// step. If the rows are conversations, a prompt is a user message; otherwise it is a text to continue. Decoding is
	// greedy.
	SamplePrompts []string `yaml:"sample_prompts,omitempty" resume:"free"`
	// SampleMaxTokens is the maximum number of tokens of such an answer.
	SampleMaxTokens int `yaml:"sample_max_tokens" default:"64" range:"[1,inf)" resume:"free"`
	// EvalTasks lists tasks with known answers, built-in ones or files (docs/EVALUATION.md). The run asks their
	// questions whenever it makes samples and writes the fraction of right answers to metrics.jsonl.
	EvalTasks []string `yaml:"eval_tasks,omitempty" resume:"free"`
	// SaveSteps is the number of optimizer steps between checkpoints. 0 saves only at the end of the run.
	SaveSteps int `yaml:"save_steps" range:"[0,inf)" resume:"free"`
	// SavesPerEpoch is the number of checkpoints in an epoch, evenly spaced; it replaces SaveSteps. 0 leaves the
	// choice to SaveSteps. It does not work with dataset.streaming, which does not count its rows.
	SavesPerEpoch int `yaml:"saves_per_epoch,omitempty" range:"[0,inf)" resume:"free"`
	// SaveTotalLimit is the number of newest checkpoints to keep; the best one by evaluation is kept as well. 0 keeps
	// all.
	SaveTotalLimit int `yaml:"save_total_limit" range:"[0,inf)" resume:"free"`
	// MetricForBestModel is the evaluation metric by which the best checkpoint is chosen: eval_loss, or eval_ and the
	// name of a number that the objective reports, such as eval_rewards/accuracies. The objective defines whether
	// higher or lower is better.
	MetricForBestModel string `yaml:"metric_for_best_model" default:"eval_loss" form:"metric" resume:"free"`
	Ends               `yaml:",inline"`

	// LoggingSteps is the number of optimizer steps between lines in metrics.jsonl and in the terminal.
	LoggingSteps int `yaml:"logging_steps" default:"1" range:"[1,inf)" resume:"free"`
	// GradNormSteps is the number of optimizer steps between lines in grad_norms.jsonl. A line holds the gradient norm
	// of each trained tensor before clipping. 0 writes no such file.
	GradNormSteps int `yaml:"grad_norm_steps" range:"[0,inf)" resume:"free"`
	// RecordWindows writes the token ids and labels of every micro-batch to windows.jsonl in output_dir, about ten
	// bytes for each token. trainer verify --windows replays them if the data set has changed since.
	RecordWindows bool `yaml:"record_windows" resume:"free"`
	// AllowZeroGradients continues with a warning, instead of ending with an error, if a trained tensor has no
	// gradient in any of the first three steps.
	AllowZeroGradients bool `yaml:"allow_zero_gradients" resume:"free"`
	// ReportTo lists where metrics go besides metrics.jsonl: csv (a table) and trackers (docs/TRACKERS.md).
	ReportTo []string `yaml:"report_to,omitempty" resume:"free"`
	// Resume continues an interrupted run. auto takes the newest complete checkpoint in output_dir and starts a new
	// run if there is none; a path names a checkpoint folder. Empty refuses to start if output_dir holds a run.
	Resume string `yaml:"resume" form:"path" resume:"free"`
}

// Expect is the `expect:` section: criteria checked at the end of a run.
type Expect struct {
	// LossDecrease is the minimum relative decrease of the training loss, from the mean of the first tenth of the
	// steps to that of the last tenth: 0.30 means 30%. 0 checks nothing.
	LossDecrease float64 `yaml:"loss_decrease,omitempty" range:"[0,1)" resume:"free"`
	// EvalLossDecrease is the minimum relative decrease of the validation loss from before the first step to the end
	// of the run. It needs training.eval_on_start. 0 checks nothing.
	EvalLossDecrease float64 `yaml:"eval_loss_decrease,omitempty" range:"[0,1)" resume:"free"`
	// EvalLossMax is the maximum validation loss at the end of the run. 0 checks nothing.
	EvalLossMax float64 `yaml:"eval_loss_max,omitempty" range:"[0,inf)" resume:"free"`
	// AtLeast maps metrics to lower bounds at the end of the run. A name is that of a number in metrics.jsonl, taken
	// from the last logged step, or eval_ and such a name, taken from the last evaluation: {eval_rewards/accuracies:
	// 0.7}.
	AtLeast map[string]float64 `yaml:"at_least,omitempty" range:"(-inf,inf)" resume:"free"`
	// AtMost maps metrics to upper bounds at the end of the run, with the same names as AtLeast.
	AtMost map[string]float64 `yaml:"at_most,omitempty" range:"(-inf,inf)" resume:"free"`
	// Reference is a learning curve of another implementation from which the loss of the run must not deviate, in
	// either direction: a file written by scripts/reference_curve.py, or embedded:NAME. Empty checks nothing.
	Reference string `yaml:"reference,omitempty" form:"path" resume:"free"`
	// MaxVRAM is the maximum memory that the run may hold on its device, such as 256MiB. Empty checks nothing.
	MaxVRAM string `yaml:"max_vram,omitempty" form:"size" resume:"free"`
}

// Default returns the section with every key at its default.
func Default() (c Config) {
	keys.SetDefaults(&c)
	return c
}

// Choices returns the values of keys that name an entry of a table.
func (Config) Choices() map[string][]string {
	return map[string][]string{
		"objective":    slices.Sorted(maps.Keys(objective.Objectives)),
		"optimizer":    slices.Sorted(maps.Keys(optimizer.Optimizers)),
		"lr_scheduler": slices.Sorted(maps.Keys(Schedules)),
		"report_to":    slices.Sorted(maps.Keys(Observers)),
	}
}

// Step returns the options that the training step of an objective is planned from.
func (c Config) Step(o objective.Objective) step.Options {
	return step.Options{
		Objective: o, Optimizer: optimizer.Optimizers[c.Optimizer](c.optimizer()), MaxGradNorm: c.MaxGradNorm,
		TensorNorms: c.GradNormSteps > 0, LossScaleInterval: c.LossScaleInterval, NEFTuneAlpha: c.NEFTuneAlpha,
		Rates: c.rateFactors(), Decays: c.WeightDecayPattern,
	}
}

// rateFactors returns the multiples of the learning rate by the patterns of the tensors that have them.
func (c Config) rateFactors() map[string]float64 {
	factors := map[string]float64{}
	for pattern, rate := range c.LearningRatePattern {
		factors[pattern] = rate / c.LearningRate
	}
	return factors
}

// patternProblems returns what is wrong with the patterns of learning rates and weight decays.
func (c Config) patternProblems() (problems []error) {
	for key, values := range map[string]map[string]float64{
		"learning_rate_pattern": c.LearningRatePattern, "weight_decay_pattern": c.WeightDecayPattern,
	} {
		for _, pattern := range slices.Sorted(maps.Keys(values)) {
			if err := adapter.CheckPattern(pattern); err != nil {
				problems = append(problems, fmt.Errorf("training.%s: the pattern %q: %w", key, pattern, err))
			}
		}
	}
	return problems
}

// Numbers returns the name of the precision that the run's device computes in, as session.OpenMachine takes it.
func (c Config) Numbers() string {
	if c.FrozenGEMM == "fp8" {
		return kernel.PrecisionFP8.String()
	}
	return c.Precision
}

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	problems := append(keys.Check("training.", c), c.patternProblems()...)
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("training."+format, args...))
	}
	if rows := c.GlobalBatchSize; rows > 0 && c.BatchSize > 0 && rows%c.BatchSize != 0 {
		bad("global_batch_size: %d rows are not whole batches of batch_size %d", rows, c.BatchSize)
	} else if rows > 0 && c.GradientAccumulationSteps > 1 {
		bad("global_batch_size: sets gradient_accumulation_steps, which is %d: remove one of them",
			c.GradientAccumulationSteps)
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
		bad("frozen_gemm: fp8 reads packed weights, and dequantised_weights: always keeps none; set it to auto or " +
			"never")
	}
	if frac, _ := math.Frexp(c.LossScale); frac != 0.5 && c.LossScale >= 1 && !math.IsInf(c.LossScale, 0) {
		bad("loss_scale: %v must be a power of two", c.LossScale)
	}
	return problems
}

// optimizer returns the optimizer's settings.
func (c Config) optimizer() optimizer.Config {
	return optimizer.Config{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Epsilon: c.AdamEpsilon, WeightDecay: c.WeightDecay,
		Settings: c.Settings}
}
