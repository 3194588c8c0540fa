package train

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/train/step"
)

// Learning rates of AdamW at which a run is probably configured for the other kind of training: LoRA's are about ten
// times those that train a model's own weights.
const (
	loraLeast = 3e-5 // lower rates are full training's
	fullMost  = 1e-4 // higher rates are LoRA's
)

// RateNote returns a sentence if the learning rate of supervised fine-tuning is one of the other kind of training,
// LoRA's or full training's; "" = it is not, or the objective or the optimizer wants other rates.
func RateNote(s Spec) string {
	c := s.Training
	if !supervised(c) {
		return ""
	}
	switch full := s.Adapter == "full"; {
	case !full && c.LearningRate < loraLeast:
		return fmt.Sprintf("training.learning_rate %v is a rate for training a model's own weights; LoRA's are about "+
			"ten times those, 1e-4 to 1e-3", c.LearningRate)
	case full && c.LearningRate > fullMost:
		return fmt.Sprintf("training.learning_rate %v is a rate of LoRA; those for training a model's own weights are "+
			"about a tenth, 1e-5 to 5e-5", c.LearningRate)
	}
	return ""
}

// Advice returns what evidence says against settings of supervised fine-tuning with LoRA on a model of a family and
// width, each with its source; nil for other runs and for models whose rate was not fitted (RateBySize).
func Advice(s Spec, modelType string, hidden int) (all []string) {
	fitted := RateBySize(modelType, hidden)
	if fitted == 0 || s.Adapter == "full" || !supervised(s.Training) {
		return nil
	}
	if rate := s.Training.LearningRate; rate < fitted/4 || rate > fitted*4 {
		all = append(all, fmt.Sprintf("training.learning_rate %v: Tinker's cookbook fits %.1e for LoRA on %s of "+
			"width %d",
			rate, fitted, modelType, hidden))
	}
	if targets := s.AdapterConfig().TargetModules; len(targets) > 0 && attentionOnly(targets) {
		all = append(all, fmt.Sprintf("%s %s: attention alone learns less than all-linear at any rank (LoRA Without "+
			"Regret, Schulman et al. 2025)", s.AdapterConfig().Key("target_modules"), strings.Join(targets, ", ")))
	}
	return all
}

// attentionOnly reports whether all target modules are projections of attention.
func attentionOnly(targets []string) bool {
	return !slices.ContainsFunc(targets, func(name string) bool {
		return !slices.Contains([]string{"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"}, name)
	})
}

// supervised reports whether a run learns answers with AdamW, whose rates the notes are of.
func supervised(c Config) bool {
	return slices.Contains([]string{"adamw", "adamw_8bit", "schedule_free_adamw"}, c.Optimizer) &&
		slices.Contains([]string{"cross_entropy", "smoothed_cross_entropy", "dft", "focal"}, c.Objective)
}

// groupNote describes trained tensors with a learning rate or a weight decay of their own.
func groupNote(g step.Group, rate float64) string {
	of := fmt.Sprintf("%s, %s numbers", words.Counted(g.Tensors, "tensor"), words.Count(int(g.Numbers)))
	switch {
	case g.Pattern == "":
		return "no weight decay for norms and biases of the base model: " + of
	case g.OfRate:
		return fmt.Sprintf("learning rate %.4g for %s: %s", g.Rate*rate, g.Pattern, of)
	}
	return fmt.Sprintf("weight decay %v for %s: %s", g.Decay, g.Pattern, of)
}

// RateBySize returns LoRA's learning rate by the size of a model, as Tinker's cookbook fits it: 5e-5 x 10 x
// (2000/hidden)^p with p 0.0775 for Qwen and 0.781 for Llama; 0 for other
// families and for widths below 1024, which the fit does not cover.
func RateBySize(modelType string, hidden int) float64 {
	p := 0.0
	switch {
	case hidden < 1024:
		return 0
	case strings.HasPrefix(modelType, "qwen"):
		p = 0.0775
	case modelType == "llama":
		p = 0.781
	default:
		return 0
	}
	return 5e-5 * 10 * math.Pow(2000/float64(hidden), p)
}
