package train

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// goldenSchedules is transformers' learning rate of each step; our names on the left.
var goldenSchedules = map[string]string{
	"linear":               "linear",
	"cosine":               "cosine",
	"cosine_with_min_lr":   "cosine_with_min_lr_rate_0.1",
	"constant":             "constant",
	"constant_with_warmup": "constant_with_warmup",
	"inverse_sqrt":         "inverse_sqrt",
	"wsd":                  "warmup_stable_decay_cosine",
}

func TestSchedulesEqualTransformers(t *testing.T) {
	raw, err := os.ReadFile(golden.Path(t, "schedule/schedules.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		LR     float64              `json:"lr"`
		Warmup int                  `json:"warmup_steps"`
		Steps  int                  `json:"steps"`
		Decay  int                  `json:"decay_steps_of_warmup_stable_decay"`
		Floor  float64              `json:"min_lr_ratio_of_warmup_stable_decay"`
		Rates  map[string][]float64 `json:"lr_of_step"`
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(goldenSchedules) != len(Schedules) {
		t.Fatalf("%d schedules, %d of them compared", len(Schedules), len(goldenSchedules))
	}
	bySteps := Default()
	bySteps.LearningRate, bySteps.WarmupSteps = golden.LR, golden.Warmup
	bySteps.MinLRRatio = golden.Floor
	bySteps.DecayRatio = float64(golden.Decay) / float64(golden.Steps)
	byRatio := bySteps
	byRatio.WarmupSteps, byRatio.WarmupRatio = 0, float64(golden.Warmup)/float64(golden.Steps)

	for name, theirs := range goldenSchedules {
		want := golden.Rates[theirs]
		if len(want) != golden.Steps {
			t.Fatalf("%s: %d golden steps, want %d", theirs, len(want), golden.Steps)
		}
		for _, c := range []Config{bySteps, byRatio} {
			rate := Schedules[name](c, golden.Steps)
			for step, w := range want {
				if got := rate(step); !(math.Abs(got-w) <= 1e-15) {
					t.Errorf("%s step %d: %v, transformers %v", name, step, got, w)
				}
			}
		}
	}
}

func TestWarmup(t *testing.T) {
	for _, c := range []struct {
		steps int
		ratio float64
		total int
		want  int
	}{
		{0, 0, 100, 0}, {0, 0.1, 100, 10}, {0, 0.03, 100, 3}, {0, 0.1, 15, 2}, {7, 0.1, 100, 7}, {0, 1, 9, 9},
	} {
		cfg := Default()
		cfg.WarmupSteps, cfg.WarmupRatio = c.steps, c.ratio
		if got := cfg.Warmup(c.total); got != c.want {
			t.Errorf("warmup_steps %d, warmup_ratio %v, %d steps: %d warm-up steps, want %d", c.steps,
				c.ratio, c.total, got, c.want)
		}
	}
}

// Every schedule is finite and not negative in odd places: no warm-up, all warm-up, one step, past the end.
func TestSchedulesAtTheEdges(t *testing.T) {
	for name, schedule := range Schedules {
		for _, total := range []int{1, 2, 10} {
			for _, warm := range []int{0, 1, total, total + 5} {
				for _, decay := range []float64{0, 0.5, 1} {
					c := Default()
					c.WarmupSteps, c.DecayRatio = warm, decay
					rate := schedule(c, total)
					for step := 0; step <= total+3; step++ {
						if got := rate(step); !(got >= 0 && got <= c.LearningRate*(1+1e-12)) {
							t.Errorf("%s: total %d, warm-up %d, decay %v, step %d: rate %v", name, total,
								warm, decay, step, got)
						}
					}
				}
			}
		}
	}
}
