package train

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// quickSpec is gpu_smollm2_quick.yaml with the small model.
func quickSpec(t testing.TB) Spec {
	t.Helper()
	s := testSpec(t, 10)
	s.LoRA.TargetModules = []string{"q_proj", "v_proj"}
	s.Dataset.MaxLength, s.Training.BatchSize, s.Device = 512, 1, "cuda"
	return s
}

func chipOf(t testing.TB, name string) gpu.Chip {
	t.Helper()
	c, err := gpu.FindChip(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPlanNeedsNoDevice: the bytes of a run on a GPU, by category, on a machine that may have none. They change
// with the storage and scratch of kernels, on purpose then.
func TestPlanNeedsNoDevice(t *testing.T) {
	const rest = ", batch 6336, adam m 35840, adam v 35840, adapter 35840, adapter in bf16 17920, constants 83712, " +
		"gradients 35840, other 128"
	for _, c := range []struct{ chip, mode, want string }{
		{"h100", "auto", "frozen weights 536448, activations 12957760"},
		{"h100", "none", "frozen weights 205248, activations 12957760"},
		{"h100", "full", "frozen weights 205248, activations 9893376"},
		{"a100", "full", "frozen weights 205248, activations 9893376"},
	} {
		s := quickSpec(t)
		if c.mode != "auto" {
			s.Training.GradientCheckpointing, s.Training.DequantisedWeights = c.mode, "never"
		}
		r, err := PlanFor(context.Background(), s, Env{}, chipOf(t, c.chip))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Categories {
			got = append(got, fmt.Sprintf("%s %d", p.Name, p.Bytes))
		}
		if text := strings.Join(got, ", "); text != c.want+rest {
			t.Errorf("%s, gradient_checkpointing %s (where storage or scratch changed on purpose, the new numbers "+
				"belong here):\n got %s\nwant %s", c.chip, c.mode, text, c.want+rest)
		}
	}
}

// TestPlanKnowsTheCard: a card's memory bounds the plan where vram does not, and what was planned for does not run.
func TestPlanKnowsTheCard(t *testing.T) {
	small := chipOf(t, "4090")
	small.Memory = 800 << 20 // 16 MiB of it for a run
	s := quickSpec(t)
	s.Training.BatchSize = 2
	r, err := PlanFor(context.Background(), s, Env{}, small)
	if err != nil || len(r.Tried) == 0 || r.TotalBytes > r.Limit || r.Limit > 16<<20 {
		t.Errorf("on a card with 16 MiB to hold: %v, %v", r, err)
	}
	on, err := graph.NewChip(small, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := on.NewStore(); err == nil || !strings.Contains(err.Error(), "RTX 4090 was planned for, not opened") {
		t.Errorf("memory of a card that is not there: %v", err)
	}
	if r, err := PlanFor(context.Background(), quickSpec(t), Env{}, chipOf(t, "8.6")); err != nil || r.Limit != 0 ||
		r.Device != "a GPU of compute capability 8.6" {
		t.Errorf("of a capability alone: %+v, %v", r, err)
	}
}

// partlyDequantised plans between packed and dequantised weights, eight times, and checks what each plan says.
func partlyDequantised(t *testing.T, s Spec, see func(vram int64, r PlanReport)) {
	t.Helper()
	plan := func(dequantised, vram string) PlanReport {
		in := s
		in.Training.DequantisedWeights, in.VRAM = dequantised, vram
		r, err := PlanFor(context.Background(), in, Env{}, chipOf(t, "9.0"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	packed, all := plan("never", ""), plan("always", "")
	seen := map[int64]bool{}
	for i := range int64(8) {
		vram := packed.TotalBytes + (all.TotalBytes-packed.TotalBytes)*i/8
		r := plan("auto", fmt.Sprint(vram))
		if r.TotalBytes > vram || r.TotalBytes < packed.TotalBytes || r.Checkpointing != "none" {
			t.Errorf("in %d bytes: %v", vram, r)
		}
		if text := r.String(); i > 0 && r.TotalBytes > packed.TotalBytes != strings.Contains(text,
			"linear layers are kept dequantised") {
			t.Errorf("in %d bytes it does not say what is dequantised: %s", vram, text)
		}
		if !seen[r.TotalBytes] {
			see(vram, r)
		}
		seen[r.TotalBytes] = true
	}
	if len(seen) < 5 {
		t.Errorf("%d different plans of 8 limits", len(seen))
	}
}

// TestPlanDequantisesWhatFits: the weights of as many linear layers are kept dequantised as the limit allows.
func TestPlanDequantisesWhatFits(t *testing.T) {
	partlyDequantised(t, quickSpec(t), func(int64, PlanReport) {})
}
