package train

import (
	"errors"
	"math"
	"testing"
)

func TestExpect(t *testing.T) {
	falling := make([]float64, 100) // 4.0 in the first tenth, 3.0 in the last
	for i := range falling {
		falling[i] = 3.5
		if i < 10 {
			falling[i] = 4
		}
		if i >= 90 {
			falling[i] = 3
		}
	}
	nan := []float64{2, math.NaN()}
	for name, c := range map[string]struct {
		expect Expect
		losses []float64
		held   int64
		want   string // "" = met
	}{
		"nothing expected": {Expect{}, nil, 1 << 40, ""},
		"met exactly":      {Expect{LossDecrease: 0.25}, falling, 0, ""},
		"missed": {Expect{LossDecrease: 0.30}, falling, 0,
			"expectation missed: the loss fell by 25.0% (mean 4.0000 of the first tenth of 100 steps to 3.0000 of " +
				"the last), expected was 30.0%: short of it by 5.0 percentage points"},
		"few steps": {Expect{LossDecrease: 0.5}, []float64{4, 1, 2}, 0, ""},
		"one step": {Expect{LossDecrease: 0.5}, []float64{4}, 0,
			"expectation missed: loss_decrease can't be judged after 1 steps: it takes at least 2"},
		"rising": {Expect{LossDecrease: 0.1}, []float64{1, 2}, 0,
			"expectation missed: the loss fell by -100.0% (mean 1.0000 of the first tenth of 2 steps to 2.0000 of " +
				"the last), expected was 10.0%: short of it by 110.0 percentage points"},
		"NaN": {Expect{LossDecrease: 0.1}, nan, 0,
			"expectation missed: the loss fell by NaN% (mean 2.0000 of the first tenth of 2 steps to NaN of the " +
				"last), expected was 10.0%: short of it by NaN percentage points"},
		"memory met": {Expect{MaxVRAM: "1KiB"}, nil, 1024, ""},
		"memory missed": {Expect{MaxVRAM: "1KiB"}, nil, 3072,
			"expectation missed: the run held 3072 bytes (3.0 KiB), expected were at most 1KiB: over it by 2048 " +
				"bytes (2.0 KiB)"},
		"both": {Expect{LossDecrease: 0.5, MaxVRAM: "1B"}, []float64{1, 1}, 2,
			"expectation missed: the loss fell by 0.0% (mean 1.0000 of the first tenth of 2 steps to 1.0000 of the " +
				"last), expected was 50.0%: short of it by 50.0 percentage points; " +
				"the run held 2 bytes (2 B), expected were at most 1B: over it by 1 bytes (1 B)"},
	} {
		judged, err := c.expect.Judge(Outcome{Losses: c.losses, HeldBytes: c.held})
		if err == nil {
			err = MissedOf(judged)
		}
		got := ""
		if err != nil {
			got = err.Error()
			if missed := (*Missed)(nil); !errors.As(err, &missed) {
				t.Errorf("%s: the error is a %T", name, err)
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestExpectValidate(t *testing.T) {
	for _, e := range []Expect{{LossDecrease: -0.1}, {LossDecrease: 1}, {LossDecrease: math.NaN()}, {MaxVRAM: "much"},
		{EvalLossDecrease: -0.1}, {EvalLossDecrease: 1}, {EvalLossDecrease: math.NaN()}, {EvalLossMax: -1},
		{EvalLossMax: math.NaN()}, {EvalLossMax: math.Inf(1)}} {
		if len(e.Validate()) != 1 {
			t.Errorf("%+v: problems %v, want one", e, e.Validate())
		}
	}
	if p := (Expect{LossDecrease: 0.3, MaxVRAM: "256MiB"}).Validate(); p != nil {
		t.Errorf("problems %v", p)
	}
}
