package objective

import (
	"errors"
	"strings"
	"testing"
)

// TestSettingsOfAnAbsentSection: an objective without its section has the defaults of the section's keys, and one that is
// there is taken as it is.
func TestSettingsOfAnAbsentSection(t *testing.T) {
	type section struct {
		Beta float64 `yaml:"beta" default:"0.1" range:"[0,inf)" resume:"steers"`
	}
	if got := settings[section](nil); got.Beta != 0.1 {
		t.Errorf("beta is %v without a section, want its default 0.1", got.Beta)
	}
	if got := settings(&section{Beta: 0.5}); got.Beta != 0.5 {
		t.Errorf("beta is %v, want the 0.5 of the section", got.Beta)
	}
}

// TestCheckSections: a section with values of its own must be of the objective that trains.
func TestCheckSections(t *testing.T) {
	const unset = "smoothed_cross_entropy: set label_smoothing or z_loss above 0, or training.objective: cross_entropy, " +
		"which is the same without them"
	for _, c := range []struct {
		name    string
		section *SmoothedConfig
		want    string
	}{
		{name: Default},
		{name: Default, section: &SmoothedConfig{}},
		{name: smoothedName, section: &SmoothedConfig{LabelSmoothing: 0.1}},
		{name: "unknown", section: &SmoothedConfig{LabelSmoothing: 2}}, // training.objective's own check says it
		{name: smoothedName, want: unset},
		{name: smoothedName, section: &SmoothedConfig{}, want: unset},
		{name: smoothedName, section: &SmoothedConfig{LabelSmoothing: 2},
			want: "smoothed_cross_entropy.label_smoothing: 2 must be at least 0 and below 1 (0.02 is 2%)"},
		{name: Default, section: &SmoothedConfig{ZLoss: 1},
			want: "smoothed_cross_entropy: is set, and training.objective is cross_entropy: " +
				"set training.objective: smoothed_cross_entropy, or remove the section"},
	} {
		got := ""
		if err := errors.Join(Check(c.name, Config{SmoothedCrossEntropy: c.section})...); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, %+v:\ngot  %s\nwant %s", c.name, c.section, got, c.want)
		}
	}
}

// TestInertKeysOfPairs checks that each key that the chosen loss ignores is a problem, and none where a loss reads it.
func TestInertKeysOfPairs(t *testing.T) {
	for key, c := range map[string]struct{ set, on func(*DPOConfig) }{
		"label_smoothing": {func(s *DPOConfig) { s.LabelSmoothing = 0.1 },
			func(s *DPOConfig) { s.LossType = []string{"sigmoid", "aot"} }},
		"discopop_tau": {func(s *DPOConfig) { s.DiscopopTau = 0.1 },
			func(s *DPOConfig) { s.LossType = []string{"discopop"} }},
		"f_divergence_type": {func(s *DPOConfig) { s.LossType, s.FDivergenceType = []string{"apo_zero"}, "forward_kl" },
			func(s *DPOConfig) { s.LossType = []string{"apo_zero", "ipo"} }},
		"f_alpha_divergence_coef": {func(s *DPOConfig) { s.FAlphaDivergenceCoef = 0.3 },
			func(s *DPOConfig) { s.FDivergenceType = "alpha_divergence" }},
	} {
		s := Defaults().DPO
		c.set(s)
		checkInert(t, dpoName, Config{DPO: s}, "dpo."+key)
		c.on(s)
		checkInert(t, dpoName, Config{DPO: s}, "")
	}
	for key, c := range map[string]struct{ set, on func(*CPOConfig) }{
		"label_smoothing": {func(s *CPOConfig) { s.LabelSmoothing, s.LossType = 0.1, "ipo" },
			func(s *CPOConfig) { s.LossType = "simpo" }},
		"simpo_gamma": {func(s *CPOConfig) { s.SimPOGamma, s.LossType = 1, "hinge" },
			func(s *CPOConfig) { s.LossType = "alphapo" }},
		"cpo_alpha": {func(s *CPOConfig) { s.CPOAlpha, s.LossType = 0.5, "alphapo" },
			func(s *CPOConfig) { s.LossType = "simpo" }},
	} {
		s := Defaults().CPO
		c.set(s)
		checkInert(t, cpoName, Config{CPO: s}, "cpo."+key)
		checkInert(t, dpoName, Config{CPO: s}, "") // the check of the sections says that the section is not read
		c.on(s)
		checkInert(t, cpoName, Config{CPO: s}, "")
	}
	for name := range Objectives {
		checkInert(t, name, Defaults(), "")
	}
}

func checkInert(t *testing.T, name string, c Config, key string) {
	t.Helper()
	got := ""
	if err := errors.Join(Inert(name, c)...); err != nil {
		got, _, _ = strings.Cut(err.Error(), ": does nothing ")
	}
	if got != key {
		t.Errorf("%s: inert is %q, want %q", name, got, key)
	}
}

// TestNegativeLossWeights checks that a loss cannot be made larger.
func TestNegativeLossWeights(t *testing.T) {
	s := Defaults().DPO
	s.LossType, s.LossWeights = []string{"sigmoid", "sft"}, []string{"1", "-0.5"}
	const want = "dpo.loss_weights: the weight of sft is -0.5, which would make its loss larger: give at least 0"
	if err := errors.Join(Check(dpoName, Config{DPO: s})...); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
