package train

import (
	"math"
	"strings"
	"testing"
)

// TestRateNote: a rate of the other kind is said for LoRA and for full training, and for no other objective or
// optimizer.
func TestRateNote(t *testing.T) {
	for _, c := range []struct {
		adapter, optimizer, objective string
		rate                          float64
		want                          string
	}{
		{"lora", "adamw", "cross_entropy", 2e-4, ""}, {"lora", "adamw", "cross_entropy", 1e-5,
			"a rate for training a model's own weights"},
		{"full", "adamw_8bit", "cross_entropy", 1e-5, ""}, {"full", "adamw_8bit", "focal", 2e-4, "a rate of LoRA"},
		{"lora", "lion", "cross_entropy", 1e-5, ""}, {"lora", "adamw", "dpo", 1e-6, ""},
	} {
		s := DefaultSpec()
		s.Adapter, s.Training.Optimizer, s.Training.Objective, s.Training.LearningRate = c.adapter, c.optimizer,
			c.objective, c.rate
		if got := RateNote(s); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestRateBySize has the cookbook's values: equal at a width of 2000, falling faster with width for Llama.
func TestRateBySize(t *testing.T) {
	for _, c := range []struct {
		family string
		hidden int
		want   float64
	}{{"llama", 2000, 5e-4}, {"qwen3", 2000, 5e-4}, {"llama", 4096, 2.856e-4}, {"qwen2", 4096, 4.729e-4}, {"gemma",
		2048, 0}, {"llama", 64, 0}} {
		if got := RateBySize(c.family, c.hidden); math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%s %d: %v, want %v", c.family, c.hidden, got, c.want)
		}
	}
}
