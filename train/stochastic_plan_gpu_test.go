package train

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/train/optimizer"
)

// TestPlanStochasticRounding: with every optimizer a GPU holds 2 bytes of a matrix's weight, not 4 and a copy of 2; a
// run in other numbers is refused.
func TestPlanStochasticRounding(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(optimizer.Optimizers)) {
		if name == "schedule_free_adamw" {
			continue
		}
		s := fullSpec(t, 2)
		s.Device, s.Training.Optimizer, s.Training.GradientCheckpointing = "cuda", name, "full"
		group := func(stochastic bool) map[string]int64 {
			s.Full.StochasticRounding = stochastic
			r, err := PlanFor(context.Background(), s, Env{}, chipOf(t, "h100"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			of := map[string]int64{}
			for _, c := range r.Categories {
				of[c.Name] = c.Bytes
			}
			return of
		}
		masters, alone := group(false), group(true)
		const copied = "adapter in bf16"
		matrices, vectors := alone[adapter.NarrowGroup], alone["adapter"]
		if masters[copied] != masters["adapter"]/2 || 2*matrices+vectors != masters["adapter"] ||
			vectors > matrices/50 || alone[copied] != vectors/2 || alone["gradients"] != masters["gradients"] {
			t.Errorf("%s: with masters %v, without %v", name, masters, alone)
		}
	}
	s := stochasticSpec(t, 2)
	s.Device = "cuda"
	for _, precision := range []string{"fp16", "tf32", "fp32"} {
		s.Training.Precision = precision
		_, err := PlanFor(context.Background(), s, Env{}, chipOf(t, "h100"))
		want := "full.stochastic_rounding keeps weights in bf16, and this run computes in " + precision +
			": set training.precision to bf16"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is refused with %v", precision, err)
		}
	}
}
