package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inTheMiddle is a run that goes exactly along a reference.
func inTheMiddle(r *Reference) Outcome {
	before, after := *r.EvalBefore, r.EvalLoss.Mean
	// Losses whose smoothed curve is the reference's: w*mean(i) - w*mean(i-1) + loss(i-w), from the sums of windows.
	n, w := r.Subject.Steps, r.Window
	losses := make([]float64, n)
	for i := range losses {
		sum := r.Loss.Mean[i] * float64(min(i+1, w))
		for j := max(0, i+1-w); j < i; j++ {
			sum -= losses[j]
		}
		losses[i] = sum
	}
	return Outcome{Losses: losses, EvalBefore: &before, EvalLoss: &after, Reference: r, Subject: r.Subject}
}

func TestReferenceCriterion(t *testing.T) {
	_, stored := readStoriesReference(t)
	at := func(x float64) *float64 { return &x }
	for name, c := range map[string]struct {
		edit func(o *Outcome)
		want []string // of the miss; nil = met
	}{
		"the mean itself": {func(*Outcome) {}, nil},
		"not on start":    {func(o *Outcome) { o.EvalBefore = nil }, nil},
		"the band's edges": {func(o *Outcome) {
			o.EvalLoss = at(o.Reference.EvalLoss.Mean + o.Reference.allowed(*o.Reference.EvalLoss)*0.999)
		}, nil},
		"learns too little": {func(o *Outcome) {
			for i := range o.Losses {
				o.Losses[i] += float64(i) * 0.05
			}
		}, []string{" of 20 steps are outside the band, first step ", " above the reference's ", "furthest step "}},
		"learns too much": {func(o *Outcome) {
			for i := range o.Losses {
				o.Losses[i] -= float64(i) * 0.05
			}
		}, []string{" of 20 steps are outside the band, first step ", " below the reference's "}},
		"one step": {func(o *Outcome) { o.Losses[19] += 1 },
			[]string{"1 of 20 steps are outside the band, first step 20: smoothed loss 5.8180, 0.5000 above the " +
				"reference's 5.3180 (allowed 0.2997); furthest step 20: "}},
		"NaN": {func(o *Outcome) { o.Losses[3] = math.NaN() },
			[]string{"2 of 20 steps are outside the band, first step 4: smoothed loss NaN, no number; the " +
				"reference has 6.4748"}},
		"held out, too high": {func(o *Outcome) { o.EvalLoss = at(5.3) },
			[]string{"the held-out loss at the end is 5.3000, 0.3080 above the reference's 4.9920 (allowed 0.2199)"}},
		"held out, too low": {func(o *Outcome) { o.EvalLoss = at(4.7) },
			[]string{"the held-out loss at the end is 4.7000, 0.2920 below the reference's 4.9920 (allowed 0.2199)"}},
		"held out, NaN": {func(o *Outcome) { o.EvalLoss = at(math.NaN()) },
			[]string{"the held-out loss at the end is NaN, no number"}},
		"other at the start": {func(o *Outcome) { o.EvalBefore = at(8.6) },
			[]string{"the held-out loss before the first step is 8.6000, 0.0405 above"}},
		"not evaluated": {func(o *Outcome) { o.EvalLoss = nil },
			[]string{"not comparable: the run was not evaluated on the validation rows"}},
		"19 of 20 steps": {func(o *Outcome) { o.Losses, o.Subject.Steps = o.Losses[:19], 19 },
			[]string{"not comparable: the run has 19 steps, the reference 20"}},
		"21 steps": {func(o *Outcome) { o.Losses, o.Subject.Steps = append(o.Losses, 5), 21 },
			[]string{"not comparable: the run has 21 steps, the reference 20"}},
		"a step left out": {func(o *Outcome) { o.Losses = o.Losses[:19] },
			[]string{"not comparable: the run has the losses of 19 of its 20 steps: some were left out"}},
		"no step": {func(o *Outcome) { o.Losses, o.Subject.Steps = nil, 0 },
			[]string{"not comparable: the run has 0 steps"}},
		"another base": {func(o *Outcome) { o.Subject.Base = strings.Repeat("0", 64) },
			[]string{"not comparable: the base model's weights have the hash 000000000000, the reference's " +
				"c23e336b6980"}},
		"another order of rows": {func(o *Outcome) { o.Subject.Rows = strings.Repeat("0", 64) },
			[]string{"not comparable: its steps train other rows, or the rows in another order"}},
		"other held-out rows": {func(o *Outcome) { o.Subject.Validation = strings.Repeat("0", 64) },
			[]string{"not comparable: its validation rows are others"}},
		"another rank": {func(o *Outcome) { o.Subject.Configuration["lora.r"] = "16" },
			[]string{"not comparable: lora.r is 16, in the reference 8"}},
		"a key more": {func(o *Outcome) { o.Subject.Configuration["lora.init_from"] = "x" },
			[]string{"not comparable: lora.init_from is x, in the reference not known"}},
		"a key less": {func(o *Outcome) { delete(o.Subject.Configuration, "adapter") },
			[]string{"not comparable: adapter is not known, in the reference qlora"}},
	} {
		r := stored
		o := inTheMiddle(&r)
		o.Subject.Configuration = maps.Clone(o.Subject.Configuration)
		c.edit(&o)
		judged, err := Expect{Reference: "ref.json"}.Judge(o)
		if err != nil || len(judged) != 1 || judged[0].Criterion != "reference" || judged[0].Comparison == nil {
			t.Fatalf("%s: %+v, %v", name, judged, err)
		}
		miss := MissedOf(judged)
		if (miss == nil) != (c.want == nil) || judged[0].Met != (miss == nil) {
			t.Errorf("%s: %v", name, miss)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(miss.Error(), want) || !strings.HasPrefix(miss.Error(),
				"expectation missed: reference ref.json: ") {
				t.Errorf("%s: %v\nwant %s", name, miss, want)
			}
		}
		if _, err := json.Marshal(judged); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		dir := t.TempDir()
		if err := o.writeReferenceCurve(dir, judged[0].Comparison); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var curve ReferenceCurve
		data, err := os.ReadFile(filepath.Join(dir, ReferenceCurveFile))
		if err == nil {
			err = json.Unmarshal(data, &curve)
		}
		if err != nil || len(curve.Losses()) != len(o.Losses) || len(curve.Mean) != 20 || len(curve.Low) != 20 ||
			curve.Low[0] >= curve.High[0] || curve.Reference != "ref.json" {
			t.Errorf("%s: %v, %+v", name, err, curve)
		}
		if err := curve.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := fmt.Sprint(MissedOf([]Judged{curve.Judge()})), fmt.Sprint(miss); got != want {
			t.Errorf("%s: judged from the file: %s\nwant %s", name, got, want)
		}
	}
	if _, err := (Expect{Reference: "x"}).Judge(Outcome{}); err == nil {
		t.Error("a reference that was not read is no error")
	}
}

// TestReferenceCurveFromElsewhere: a file that is none is told of, and judging what passes never panics.
func TestReferenceCurveFromElsewhere(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "names no reference",
		`{"reference":"x","mean":[1],"low":[1],"high":[]}`:                                        "names no reference",
		`{"reference":"x","mean":[1],"low":[1],"high":[1],"run":[1],"steps":1,"steps_outside":1}`: "1 of 1 steps",
		`{"reference":"x","mean":[1],"low":[1],"high":[1],"steps":1}`:                             "0 of 1 steps",
		`{"reference":"x","mean":[1],"low":[1],"high":[1]}`: "no step was " +
			"compared",
		`{"reference":"x","mean":[1],"low":[1],"high":[1],"run":[null],"steps":1}`: "<nil>",
	} {
		var f ReferenceCurve
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		err := f.Validate()
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if err == nil {
			f.Judge()
		}
	}
}

// TestBandsEdge: exactly as far as allowed is inside, the next number is not.
func TestBandsEdge(t *testing.T) {
	p := Point{Run: 2.5, Mean: 2, Allowed: 0.5}
	if !p.inside() || !(Point{Run: 1.5, Mean: 2, Allowed: 0.5}).inside() {
		t.Error("the edge is outside")
	}
	p.Run = math.Nextafter(2.5, 3)
	if p.inside() || (Point{Run: math.Nextafter(1.5, 1), Mean: 2, Allowed: 0.5}).inside() {
		t.Error("beyond the edge is inside")
	}
	if p = (Point{Run: math.Inf(1), Mean: 2, Allowed: 0.5}); p.inside() || p.share() != math.Inf(1) {
		t.Error("infinity is inside")
	}
}

func TestSmooth(t *testing.T) {
	if got, want := Smooth([]float64{4, 2, 6, 8}, 2), []float64{4, 3, 4, 7}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Smooth([]float64{1, 2}, 5); !slices.Equal(got, []float64{1, 1.5}) || len(Smooth(nil, 3)) != 0 {
		t.Errorf("%v", got)
	}
}

func TestHeldOutCriteria(t *testing.T) {
	at := func(x float64) *float64 { return &x }
	for name, c := range map[string]struct {
		expect        Expect
		before, after *float64
		want          string
	}{
		"met exactly": {Expect{EvalLossDecrease: 0.25, EvalLossMax: 1.5}, at(2), at(1.5), ""},
		"fell too little": {Expect{EvalLossDecrease: 0.3}, at(2), at(1.5),
			"the held-out loss fell by 25.0% (2.0000 before the first step, 1.5000 at the end), expected was " +
				"30.0%: short of it by 5.0 percentage points"},
		"rose": {Expect{EvalLossDecrease: 0.3}, at(2), at(3),
			"the held-out loss fell by -50.0% (2.0000 before the first step, 3.0000 at the end), expected was " +
				"30.0%: short of it by 80.0 percentage points"},
		"NaN": {Expect{EvalLossDecrease: 0.3, EvalLossMax: 2}, at(2), at(math.NaN()),
			"the held-out loss fell by NaN% (2.0000 before the first step, NaN at the end), expected was 30.0%: " +
				"short of it by NaN percentage points; the held-out loss is NaN, expected was at most 2: over it " +
				"by NaN"},
		"no evaluation": {Expect{EvalLossDecrease: 0.3}, nil, at(1),
			"eval_loss_decrease can't be judged: there is no evaluation before the first step and after the last " +
				"(training.eval_on_start, dataset.val_path)"},
		"too high": {Expect{EvalLossMax: 1.25}, nil, at(1.5),
			"the held-out loss is 1.5000, expected was at most 1.25: over it by 0.2500"},
		"no evaluation, max": {Expect{EvalLossMax: 1.25}, at(1), nil,
			"eval_loss_max can't be judged: there is no evaluation (dataset.val_path)"},
	} {
		judged, err := c.expect.Judge(Outcome{EvalBefore: c.before, EvalLoss: c.after})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := MissedOf(judged); err != nil {
			got = strings.TrimPrefix(err.Error(), "expectation missed: ")
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}
