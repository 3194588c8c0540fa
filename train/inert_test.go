package train

import (
	"strings"
	"testing"
)

// TestInert: each key that is switched off is a problem that says by what, and none where it acts.
func TestInert(t *testing.T) {
	for key, c := range map[string]struct{ set, on func(*Spec) }{
		"training.warmup_ratio": {func(s *Spec) {
			s.Training.WarmupRatio, s.Training.LRScheduler = 0.1,
				"constant"
		}, func(s *Spec) { s.Training.LRScheduler = "constant_with_warmup" }},
		"training.warmup_steps": {func(s *Spec) {
			s.Training.WarmupSteps, s.Training.LRScheduler = 3,
				"constant"
		}, func(s *Spec) { s.Training.LRScheduler = "linear" }},
		"training.min_lr_ratio": {func(s *Spec) { s.Training.MinLRRatio = 0.2 },
			func(s *Spec) { s.Training.LRScheduler = "cosine_with_min_lr" }},
		"training.decay_ratio": {func(s *Spec) { s.Training.DecayRatio = 0.2 },
			func(s *Spec) { s.Training.LRScheduler = "wsd" }},
		"training.adam_epsilon": {func(s *Spec) {
			s.Training.AdamEpsilon, s.Training.Optimizer = 1e-6,
				"lion"
		}, func(s *Spec) { s.Training.Optimizer = "adamw" }},
		"training.adam_beta1": {func(s *Spec) {
			s.Training.AdamBeta1, s.Training.Optimizer = 0.8,
				"sgd"
		}, func(s *Spec) { s.Training.Optimizer = "muon" }},
		"training.adam_beta2": {func(s *Spec) {
			s.Training.AdamBeta2, s.Training.Optimizer = 0.8,
				"sgd"
		}, func(s *Spec) { s.Training.Optimizer = "muon" }},
		"training.adafactor_beta1": {func(s *Spec) { s.Training.AdafactorBeta1 = 0.9 },
			func(s *Spec) { s.Training.Optimizer = "adafactor" }},
		"training.adafactor_clip_threshold": {func(s *Spec) { s.Training.AdafactorClipThreshold = 2 },
			func(s *Spec) { s.Training.Optimizer = "adafactor" }},
		"training.adafactor_scale_parameter": {func(s *Spec) { s.Training.AdafactorScaleParameter = true },
			func(s *Spec) { s.Training.Optimizer = "adafactor" }},
		"training.adafactor_relative_step": {func(s *Spec) { s.Training.AdafactorRelativeStep = true },
			func(s *Spec) { s.Training.Optimizer = "adafactor" }},
		"training.muon_momentum": {func(s *Spec) { s.Training.MuonMomentum = 0.8 },
			func(s *Spec) { s.Training.Optimizer = "muon" }},
		"training.muon_nesterov": {func(s *Spec) { s.Training.MuonNesterov = false },
			func(s *Spec) { s.Training.Optimizer = "muon" }},
		"training.muon_adjust_lr": {func(s *Spec) { s.Training.MuonAdjustLR = "original" },
			func(s *Spec) { s.Training.Optimizer = "muon" }},
		"training.sgd_momentum": {func(s *Spec) { s.Training.SGDMomentum = 0 },
			func(s *Spec) { s.Training.Optimizer = "sgd" }},
		"training.sgd_nesterov": {func(s *Spec) { s.Training.SGDNesterov = true },
			func(s *Spec) { s.Training.Optimizer = "sgd" }},
		"training.adafactor_warmup_init": {func(s *Spec) {
			s.Training.AdafactorWarmupInit,
				s.Training.Optimizer = true, "adafactor"
		}, func(s *Spec) { s.Training.AdafactorRelativeStep = true }},
		"training.early_stopping_threshold": {func(s *Spec) { s.Training.EarlyStoppingThreshold = 0.1 },
			func(s *Spec) { s.Training.EarlyStoppingPatience = 2 }},
		"training.loss_watchdog_patience": {func(s *Spec) { s.Training.LossWatchdogPatience = 2 },
			func(s *Spec) { s.Training.LossWatchdogThreshold = 5 }},
		"training.loss_scale": {func(s *Spec) { s.Training.LossScale = 2 },
			func(s *Spec) { s.Training.Precision = "fp16" }},
		"training.loss_scale_interval": {func(s *Spec) { s.Training.LossScaleInterval = 2 },
			func(s *Spec) { s.Training.Precision = "fp16" }},
		"training.max_skipped_steps": {func(s *Spec) { s.Training.MaxSkippedSteps = 2 },
			func(s *Spec) { s.Training.OnNonFinite = "skip" }},
		"training.sample_max_tokens": {func(s *Spec) { s.Training.SampleMaxTokens = 2 },
			func(s *Spec) { s.Training.SamplePrompts = []string{"a"} }},
		"tracking.experiment": {func(s *Spec) { s.Tracking.Experiment = "a" }, reports("wandb")},
		"tracking.run_name":   {func(s *Spec) { s.Tracking.RunName = "a" }, reports("prometheus")},
		"tracking.tags": {func(s *Spec) { s.Tracking.Tags = map[string]string{"a": "b"} },
			reports("mlflow")},
		"tracking.mlflow_url": {func(s *Spec) { s.Tracking.MLflowURL = "http://a" }, reports("mlflow")},
		"tracking.webhook_url": {func(s *Spec) { s.Tracking.WebhookURL = "http://a" },
			reports("webhook")},
		"tracking.metrics_file": {func(s *Spec) { s.Tracking.MetricsFile = "a.prom" }, reports("csv",
			"prometheus")},
		"tracking.metrics_addr": {func(s *Spec) { s.Tracking.MetricsAddr = "127.0.0.1:1" },
			reports("prometheus")},
	} {
		s := DefaultSpec()
		c.set(&s)
		if got := Inert(s); len(got) != 1 || !strings.HasPrefix(got[0].Error(), key+": does nothing ") {
			t.Errorf("%s: %v", key, got)
		}
		if c.on(&s); len(Inert(s)) > 0 {
			t.Errorf("%s: %v where it acts", key, Inert(s))
		}
	}
	if got := Inert(DefaultSpec()); got != nil {
		t.Error(got)
	}
	if len(inertKeys) != 30 {
		t.Errorf("%d keys, of which 30 are tested", len(inertKeys))
	}
}

func reports(to ...string) func(*Spec) { return func(s *Spec) { s.Training.ReportTo = to } }
