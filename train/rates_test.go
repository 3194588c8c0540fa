package train

import (
	"math"
	"slices"
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

// TestAdvice: rates far from the fitted one and adapters of attention alone are named, on models of fitted sizes.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		adapter, family string
		hidden          int
		rate            float64
		targets         string
		want            []string
	}{
		{"lora", "llama", 4096, 2e-4, "all-linear", nil},
		{"lora", "llama", 4096, 2e-5, "q_proj v_proj", []string{
			"training.learning_rate 2e-05: Tinker's cookbook fits 2.9e-04 for LoRA on llama of width 4096",
			"lora.target_modules q_proj, v_proj: attention alone learns less than all-linear at any rank (LoRA " +
				"Without Regret, Schulman et al. 2025)"}},
		{"lora", "qwen3", 4096, 4e-3, "q_proj down_proj", []string{
			"training.learning_rate 0.004: Tinker's cookbook fits 4.7e-04 for LoRA on qwen3 of width 4096"}},
		{"full", "llama", 4096, 2e-5, "q_proj", nil}, {"lora", "gemma", 4096, 2e-5, "q_proj", nil},
		{"lora", "llama", 64, 2e-5, "q_proj", nil},
	} {
		s := DefaultSpec()
		s.Adapter, s.Training.LearningRate, s.LoRA.TargetModules = c.adapter, c.rate, strings.Fields(c.targets)
		if got := Advice(s, c.family, c.hidden); !slices.Equal(got, c.want) {
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
