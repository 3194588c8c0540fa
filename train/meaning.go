package train

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/quant"
)

// meant is a key of the configuration that decides what a run's numbers are.
type meant struct {
	key string
	// fixed says that what a checkpoint holds means something else with another value: such a run is refused. The
	// others steer the steps to come: they may change where a run is resumed, and it says so.
	fixed bool
	value func(p *prepared) any
}

// keyAccumulation is in a checkpoint the micro-batches of a step over all ranks.
const keyAccumulation = "training.gradient_accumulation_steps"

// meanings is the rule of resuming, key by key. What is not listed changes no number (where and when files are written,
// memory, devices), or is compared apart: base weights, data and batches by their hashes, rank, alpha and targets by the
// adapter's tensors.
var meanings = []meant{
	{"adapter", true, func(p *prepared) any { return p.spec.Adapter }},
	{"quantization.bits", true, stored(func(q quant.Config) any { return q.Bits })},
	{"quantization.type", true, stored(func(q quant.Config) any { return q.Type })},
	{"quantization.block_size", true, stored(func(q quant.Config) any { return q.BlockSize })},
	{"quantization.double_quant", true, stored(func(q quant.Config) any { return q.DoubleQuant })},
	{"training.objective", true, func(p *prepared) any { return p.spec.Training.Objective }},
	{"training.optimizer", true, func(p *prepared) any { return p.spec.Training.Optimizer }},
	{keyAccumulation, true, func(p *prepared) any { return p.window() }},
	{"training.context_parallel_size", false, func(p *prepared) any { return p.spec.Training.sharing() }},
	{"seed", true, func(p *prepared) any { return p.spec.Seed }},
	{"lora.dropout", false, func(p *prepared) any { return p.spec.LoRA.Dropout }},
	{"lora.loraplus_lr_ratio", false, func(p *prepared) any { return p.spec.LoRA.LoRAPlusLRRatio }},
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
	{"training.loss_scale_interval", false, func(p *prepared) any { return p.spec.Training.LossScaleInterval }},
	{"training.on_nonfinite", false, func(p *prepared) any { return p.spec.Training.OnNonFinite }},
	{"training.max_skipped_steps", false, func(p *prepared) any { return p.spec.Training.MaxSkippedSteps }},
	{"training.precision", false, func(p *prepared) any { return p.On.Precision() }},
	{"steps", false, func(p *prepared) any { return p.total }}, // of training.max_steps or training.epochs
}

// stored is what a key says of how base weights are stored; nil where they are stored as they are, which adapter tells.
func stored(value func(quant.Config) any) func(p *prepared) any {
	return func(p *prepared) any {
		if p.Net.Scheme == nil {
			return nil
		}
		return value(*p.Net.Scheme)
	}
}

// meaning is what a checkpoint keeps of the configuration.
func (p *prepared) meaning() map[string]string {
	all := map[string]string{}
	for _, m := range meanings {
		if v := m.value(p); v != nil {
			all[m.key] = fmt.Sprint(v)
		}
	}
	return all
}

// otherWindow says how a run on several devices keeps the steps of a checkpoint.
func (p *prepared) otherWindow(before string) string {
	of := count(p.groups(), "device")
	if n := p.spec.Training.sharing(); n > 1 {
		of = fmt.Sprintf("%s of %d devices", count(p.groups(), "group"), n)
	}
	text := fmt.Sprintf("a step had %s micro-batches, it has %d now (%s x gradient_accumulation_steps %d)",
		before, p.window(), of, p.spec.Training.GradientAccumulationSteps)
	was, err := strconv.Atoi(before)
	switch {
	case err != nil:
		return text
	case was%p.groups() == 0:
		return fmt.Sprintf("%s: with --set %s=%d it goes on to the same bytes", text, keyAccumulation, was/p.groups())
	}
	return fmt.Sprintf("%s: take a number of devices that divides %s, and as many accumulation steps as make it", text, before)
}

// compareMeaning refuses to resume a run that meant something else, and tells what will be different from here on.
// Checkpoints of older programs say nothing.
func (p *prepared) compareMeaning(was map[string]string, step int) error {
	var other []string
	now := p.meaning()
	for _, m := range meanings {
		before, ok := was[m.key]
		after, has := now[m.key]
		if !ok || !has || before == after {
			continue
		}
		if m.key == keyAccumulation && p.world > 1 {
			other = append(other, p.otherWindow(before))
			continue
		}
		if m.fixed {
			other = append(other, fmt.Sprintf("%s was %s, is %s", m.key, before, after))
			continue
		}
		p.env.Logf("%s was %s up to step %d, is %s from here on", m.key, before, step, after)
	}
	if other == nil {
		return nil
	}
	slices.Sort(other)
	return fmt.Errorf("it is of another run: %s; give the run its old configuration back, or choose another output_dir for a new one", strings.Join(other, "; "))
}
