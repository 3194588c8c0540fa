package objective

import (
	"errors"
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
