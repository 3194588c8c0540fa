package train

import (
	"fmt"
	"slices"
	"strings"
)

// meant is a key of the configuration that decides what a run's numbers are.
type meant struct {
	key string
	// fixed says that what a checkpoint holds means something else with another value: such a run is refused. The
	// others steer the steps to come: they may change where a run is resumed, and it says so.
	fixed bool
	value func(p *prepared) any
}

// meanings is the rule of resuming, key by key. What is not listed changes no number (where and when files are written,
// memory, devices), or is compared apart: base weights, data and batches by their hashes, rank, alpha and targets by the
// adapter's tensors.
var meanings = []meant{
	{"adapter", true, func(p *prepared) any { return p.spec.Adapter }},
	{"quantization", true, func(p *prepared) any {
		if q := p.Net.Scheme; q != nil {
			return fmt.Sprintf("%+v", *q)
		}
		return "none"
	}},
	{"training.objective", true, func(p *prepared) any { return p.spec.Training.Objective }},
	{"training.optimizer", true, func(p *prepared) any { return p.spec.Training.Optimizer }},
	{"training.gradient_accumulation_steps", true, func(p *prepared) any { return p.spec.Training.GradientAccumulationSteps }},
	{"seed", true, func(p *prepared) any { return p.spec.Seed }},
	{"lora.dropout", false, func(p *prepared) any { return p.spec.LoRA.Dropout }},
	{"training.learning_rate", false, func(p *prepared) any { return p.spec.Training.LearningRate }},
	{"training.lr_scheduler", false, func(p *prepared) any { return p.spec.Training.LRScheduler }},
	{"training.warmup_ratio", false, func(p *prepared) any { return p.spec.Training.WarmupRatio }},
	{"training.warmup_steps", false, func(p *prepared) any { return p.spec.Training.WarmupSteps }},
	{"training.min_lr_ratio", false, func(p *prepared) any { return p.spec.Training.MinLRRatio }},
	{"training.decay_ratio", false, func(p *prepared) any { return p.spec.Training.DecayRatio }},
	{"training.weight_decay", false, func(p *prepared) any { return p.spec.Training.WeightDecay }},
	{"training.adam_beta1", false, func(p *prepared) any { return p.spec.Training.AdamBeta1 }},
	{"training.adam_beta2", false, func(p *prepared) any { return p.spec.Training.AdamBeta2 }},
	{"training.adam_epsilon", false, func(p *prepared) any { return p.spec.Training.AdamEpsilon }},
	{"training.max_grad_norm", false, func(p *prepared) any { return p.spec.Training.MaxGradNorm }},
	{"steps", false, func(p *prepared) any { return p.total }},
	{"precision", false, func(p *prepared) any { return p.On.Precision() }},
}

// meaning is what a checkpoint keeps of the configuration.
func (p *prepared) meaning() map[string]string {
	all := map[string]string{}
	for _, m := range meanings {
		all[m.key] = fmt.Sprint(m.value(p))
	}
	return all
}

// compareMeaning refuses to resume a run that meant something else, and tells what will be different from here on.
// Checkpoints of older programs say nothing.
func (p *prepared) compareMeaning(was map[string]string, step int) error {
	var other []string
	now := p.meaning()
	for _, m := range meanings {
		before, ok := was[m.key]
		if !ok || before == now[m.key] {
			continue
		}
		if m.fixed {
			other = append(other, fmt.Sprintf("%s was %s, is %s", m.key, before, now[m.key]))
			continue
		}
		p.env.Logf("%s was %s up to step %d, is %s from here on", m.key, before, step, now[m.key])
	}
	if other == nil {
		return nil
	}
	slices.Sort(other)
	return fmt.Errorf("it is of another run: %s; give the run its old configuration back, or choose another output_dir for a new one", strings.Join(other, "; "))
}
