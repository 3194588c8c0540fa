package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/train/objective"
)

// inertKey is a key that other keys switch off. A key counts as set if its value differs from the default.
type inertKey struct {
	key  string
	set  func(s, unset Spec) bool
	idle func(s Spec) bool
	why  string // reason that names the key which switches it off and the one which would switch it on
}

// trainingKey returns an inertKey of the section training.
func trainingKey[V comparable](key string, of func(Config) V, idle func(Config) bool, why string) inertKey {
	return inertKey{"training." + key, func(s, unset Spec) bool { return of(s.Training) != of(unset.Training) },
		func(s Spec) bool { return idle(s.Training) }, why}
}

// optimizerKey returns an inertKey of the section training that only the given optimizers read.
func optimizerKey[V comparable](key string, of func(Config) V, optimizers ...string) inertKey {
	k := trainingKey(key, of, func(c Config) bool { return !slices.Contains(optimizers, c.Optimizer) }, "")
	k.why = "but with optimizer: " + strings.Join(optimizers, ", ")
	return k
}

// trackingKey returns an inertKey of the section tracking that only the given trackers read.
func trackingKey(key string, set func(Spec) bool, trackers ...string) inertKey {
	return inertKey{"tracking." + key, func(s, _ Spec) bool { return set(s) }, func(s Spec) bool {
		return !slices.ContainsFunc(s.Training.ReportTo, func(name string) bool {
			return slices.Contains(trackers,
				name)
		})
	}, "without " + strings.Join(trackers, " or ") + " in training.report_to"}
}

// inertKeys lists the keys that the configuration itself can switch off. Keys that the machine or the data switch off
// are not listed.
var inertKeys = []inertKey{
	trainingKey("warmup_ratio", func(c Config) float64 { return c.WarmupRatio }, constantRate,
		"with lr_scheduler: constant; constant_with_warmup has a warm-up"),
	trainingKey("warmup_steps", func(c Config) int { return c.WarmupSteps }, constantRate,
		"with lr_scheduler: constant; constant_with_warmup has a warm-up"),
	trainingKey("min_lr_ratio", func(c Config) float64 { return c.MinLRRatio },
		func(c Config) bool { return c.LRScheduler != "cosine_with_min_lr" && c.LRScheduler != "wsd" },
		"but with lr_scheduler: cosine_with_min_lr or wsd"),
	trainingKey("decay_ratio", func(c Config) float64 { return c.DecayRatio },
		func(c Config) bool { return c.LRScheduler != "wsd" }, "but with lr_scheduler: wsd"),
	optimizerKey("adam_beta1", func(c Config) float64 { return c.AdamBeta1 }, "adamw", "adamw_8bit", "lion",
		"lion_8bit", "muon", "schedule_free_adamw"),
	optimizerKey("adam_beta2", func(c Config) float64 { return c.AdamBeta2 }, "adamw", "adamw_8bit", "lion",
		"lion_8bit", "muon", "schedule_free_adamw"),
	optimizerKey("adam_epsilon", func(c Config) float64 { return c.AdamEpsilon }, "adamw", "adamw_8bit", "muon",
		"schedule_free_adamw"),
	optimizerKey("adafactor_beta1", func(c Config) float64 { return c.AdafactorBeta1 }, "adafactor"),
	optimizerKey("adafactor_clip_threshold", func(c Config) float64 { return c.AdafactorClipThreshold }, "adafactor"),
	optimizerKey("adafactor_scale_parameter", func(c Config) bool { return c.AdafactorScaleParameter }, "adafactor"),
	optimizerKey("adafactor_relative_step", func(c Config) bool { return c.AdafactorRelativeStep }, "adafactor"),
	trainingKey("adafactor_warmup_init", func(c Config) bool { return c.AdafactorWarmupInit },
		func(c Config) bool { return c.Optimizer != "adafactor" || !c.AdafactorRelativeStep },
		"but with optimizer: adafactor and adafactor_relative_step: true"),
	optimizerKey("muon_momentum", func(c Config) float64 { return c.MuonMomentum }, "muon"),
	optimizerKey("muon_nesterov", func(c Config) bool { return c.MuonNesterov }, "muon"),
	optimizerKey("muon_adjust_lr", func(c Config) string { return c.MuonAdjustLR }, "muon"),
	optimizerKey("sgd_momentum", func(c Config) float64 { return c.SGDMomentum }, "sgd"),
	optimizerKey("sgd_nesterov", func(c Config) bool { return c.SGDNesterov }, "sgd"),
	trainingKey("loss_scale", func(c Config) float64 { return c.LossScale }, withoutScaling,
		"but with precision: fp16"),
	trainingKey("loss_scale_interval", func(c Config) int { return c.LossScaleInterval }, withoutScaling,
		"but with precision: fp16"),
	trainingKey("max_skipped_steps", func(c Config) int { return c.MaxSkippedSteps },
		func(c Config) bool { return c.OnNonFinite != "skip" }, "but with on_nonfinite: skip"),
	trainingKey("early_stopping_threshold", func(c Config) float64 { return c.EarlyStoppingThreshold },
		func(c Config) bool { return c.EarlyStoppingPatience == 0 }, "without early_stopping_patience"),
	trainingKey("loss_watchdog_patience", func(c Config) int { return c.LossWatchdogPatience },
		func(c Config) bool { return c.LossWatchdogThreshold == 0 }, "without loss_watchdog_threshold"),
	trainingKey("sample_max_tokens", func(c Config) int { return c.SampleMaxTokens },
		func(c Config) bool { return len(c.SamplePrompts) == 0 }, "without training.sample_prompts"),
	trackingKey("experiment", func(s Spec) bool { return s.Tracking.Experiment != "" }, "mlflow", "trackio",
		"wandb", "webhook"),
	trackingKey("run_name", func(s Spec) bool { return s.Tracking.RunName != "" }, "mlflow", "trackio", "wandb",
		"webhook", "prometheus"),
	trackingKey("tags", func(s Spec) bool { return len(s.Tracking.Tags) > 0 }, "mlflow", "trackio", "wandb", "webhook"),
	trackingKey("mlflow_url", func(s Spec) bool { return s.Tracking.MLflowURL != "" }, "mlflow"),
	trackingKey("webhook_url", func(s Spec) bool { return s.Tracking.WebhookURL != "" }, "webhook"),
	trackingKey("metrics_file", func(s Spec) bool { return s.Tracking.MetricsFile != "" }, "prometheus"),
	trackingKey("metrics_addr", func(s Spec) bool { return s.Tracking.MetricsAddr != "" }, "prometheus"),
}

func constantRate(c Config) bool   { return c.LRScheduler == "constant" }
func withoutScaling(c Config) bool { return c.Precision != "fp16" }

// Inert returns a problem for each key that is set and that the rest of the configuration switches off.
func Inert(s Spec) []error {
	var problems []error
	unset := DefaultSpec()
	for _, k := range inertKeys {
		if k.set(s, unset) && k.idle(s) {
			problems = append(problems, fmt.Errorf("%s: does nothing %s: remove it", k.key, k.why))
		}
	}
	problems = append(problems, s.Sections.Unused(s.Adapter)...)
	return append(problems, objective.Inert(s.Training.Objective, s.Objectives)...)
}
