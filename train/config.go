// Package train is the training run: the step as a plan, the loop around it, schedule, checkpoints, metrics.
package train

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// Config is the `training:` section of a run's YAML.
type Config struct {
	// MaxSteps is the number of optimizer steps; it wins over Epochs. 0 = Epochs decides.
	MaxSteps int `mapstructure:"max_steps" yaml:"max_steps"`
	// Epochs is the number of passes over the data.
	Epochs float64 `mapstructure:"epochs" yaml:"epochs"`
	// BatchSize is rows (or packed sequences) in a micro-batch on one device.
	BatchSize int `mapstructure:"batch_size" yaml:"batch_size"`
	// GradientAccumulationSteps is micro-batches in an optimizer step; the loss is divided by the trained
	// tokens of them all.
	GradientAccumulationSteps int `mapstructure:"gradient_accumulation_steps" yaml:"gradient_accumulation_steps"`

	Optimizer    string  `mapstructure:"optimizer" yaml:"optimizer"`
	LearningRate float64 `mapstructure:"learning_rate" yaml:"learning_rate"`
	// LRScheduler is a key of Schedules; MinLRRatio and DecayRatio serve those that have a floor or a decay.
	LRScheduler string  `mapstructure:"lr_scheduler" yaml:"lr_scheduler"`
	WarmupRatio float64 `mapstructure:"warmup_ratio" yaml:"warmup_ratio"`
	WarmupSteps int     `mapstructure:"warmup_steps" yaml:"warmup_steps"` // wins over WarmupRatio
	MinLRRatio  float64 `mapstructure:"min_lr_ratio" yaml:"min_lr_ratio"` // cosine_with_min_lr, wsd: floor as part of the peak
	DecayRatio  float64 `mapstructure:"decay_ratio" yaml:"decay_ratio"`   // wsd: decay as part of all steps
	WeightDecay float64 `mapstructure:"weight_decay" yaml:"weight_decay"`
	AdamBeta1   float64 `mapstructure:"adam_beta1" yaml:"adam_beta1"`
	AdamBeta2   float64 `mapstructure:"adam_beta2" yaml:"adam_beta2"`
	AdamEpsilon float64 `mapstructure:"adam_epsilon" yaml:"adam_epsilon"`
	// MaxGradNorm clips the global gradient norm; 0 = no clipping.
	MaxGradNorm float64 `mapstructure:"max_grad_norm" yaml:"max_grad_norm"`

	// Precision is how a GPU stores activations and multiplies: "bf16"; "fp16" with loss scaling; "fp32"; "tf32", which is
	// fp32 with products of 10 bits of mantissa; "auto" is bf16 where the device has it, else fp16. Parameters, sums and
	// statistics are fp32 in all of them. A CPU computes in fp32.
	Precision string `mapstructure:"precision" yaml:"precision"`
	// LossScale is where fp16's loss scale begins; it halves when a gradient overflows, whose step is skipped, and doubles
	// after LossScaleInterval steps without.
	LossScale         float64 `mapstructure:"loss_scale" yaml:"loss_scale"`
	LossScaleInterval int     `mapstructure:"loss_scale_interval" yaml:"loss_scale_interval"`

	// GradientCheckpointing trades time for memory, without changing a number: "none" keeps all activations,
	// "selective" makes norms and gates again in the backward pass, "full" makes whole layers again,
	// "offload" keeps the layers' inputs in host memory besides, "auto" takes the first of them that fits.
	GradientCheckpointing string `mapstructure:"gradient_checkpointing" yaml:"gradient_checkpointing"`

	// DecodedWeights keeps quantised base weights as the numbers they stand for, so that no step decodes them:
	// the same results, faster, in four times the memory or more. "auto" does where a GPU has room without
	// gradient checkpointing, "always", "never".
	DecodedWeights string `mapstructure:"decoded_weights" yaml:"decoded_weights"`

	// EvalSteps, SaveSteps: every N optimizer steps; 0 = never (a final save is always made).
	EvalSteps      int `mapstructure:"eval_steps" yaml:"eval_steps"`
	SaveSteps      int `mapstructure:"save_steps" yaml:"save_steps"`
	SaveTotalLimit int `mapstructure:"save_total_limit" yaml:"save_total_limit"` // newest kept; 0 = all
	LoggingSteps   int `mapstructure:"logging_steps" yaml:"logging_steps"`
	// Resume is "" (refuse to overwrite a run that is there), "auto" (newest complete checkpoint of
	// output_dir, if any) or a checkpoint folder.
	Resume string `mapstructure:"resume" yaml:"resume"`
}

// Expect is the `expect:` section: criteria checked at the end of a run.
type Expect struct {
	// LossDecrease is the least fall of the mean training loss, last tenth of the steps against the first,
	// as a part of the first: 0.30 = 30 %. 0 = not checked.
	LossDecrease float64 `mapstructure:"loss_decrease" yaml:"loss_decrease,omitempty"`
	// MaxVRAM bounds the bytes that the run holds, such as "256MiB". Empty = not checked.
	MaxVRAM string `mapstructure:"max_vram" yaml:"max_vram,omitempty"`
}

// Default is the one place where defaults of the section stand.
func Default() Config {
	return Config{
		Epochs: 1, BatchSize: 1, GradientAccumulationSteps: 1,
		Optimizer: "adamw", LearningRate: 2e-4, LRScheduler: "cosine", WarmupRatio: 0, MinLRRatio: 0.1, DecayRatio: 0.1,
		WeightDecay: 0.01, AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: 1,
		Precision: "auto", LossScale: 1 << 16, LossScaleInterval: 2000, // torch's GradScaler
		GradientCheckpointing: "auto", DecodedWeights: "auto", LoggingSteps: 1,
	}
}

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
	atLeast("gradient_accumulation_steps", c.GradientAccumulationSteps, 1)
	atLeast("warmup_steps", c.WarmupSteps, 0)
	atLeast("eval_steps", c.EvalSteps, 0)
	atLeast("save_steps", c.SaveSteps, 0)
	atLeast("save_total_limit", c.SaveTotalLimit, 0)
	atLeast("logging_steps", c.LoggingSteps, 1)
	if within("epochs", c.Epochs, 0, 1e6); c.MaxSteps == 0 && c.Epochs == 0 {
		bad("epochs: 0 must be above 0 where max_steps is not set")
	}
	if _, ok := checkpointing[c.GradientCheckpointing]; !ok {
		bad("gradient_checkpointing: %q is not one of auto, none, selective, full, offload", c.GradientCheckpointing)
	}
	if c.DecodedWeights != "auto" && c.DecodedWeights != "always" && c.DecodedWeights != "never" {
		bad("decoded_weights: %q is not one of auto, always, never", c.DecodedWeights)
	}
	if _, ok := kernel.PrecisionNamed(c.Precision); !ok && c.Precision != precisionAuto {
		bad("precision: %q is not one of auto, bf16, fp16, tf32, fp32", c.Precision)
	}
	if frac, _ := math.Frexp(c.LossScale); frac != 0.5 || c.LossScale < 1 || c.LossScale > math.MaxFloat32 {
		bad("loss_scale: %v must be a power of two, 1 or more", c.LossScale)
	}
	atLeast("loss_scale_interval", c.LossScaleInterval, 1)
	if c.Optimizer != "adamw" {
		bad("optimizer: %q is not supported; use adamw", c.Optimizer)
	}
	if !(c.LearningRate > 0) || math.IsInf(c.LearningRate, 0) {
		bad("learning_rate: %v must be a positive number", c.LearningRate)
	}
	if _, ok := Schedules[c.LRScheduler]; !ok {
		names := make([]string, 0, len(Schedules))
		for n := range Schedules {
			names = append(names, n)
		}
		sort.Strings(names)
		bad("lr_scheduler: %q is not one of %s", c.LRScheduler, strings.Join(names, ", "))
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
