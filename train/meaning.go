package train

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/quant"
)

// keyAccumulation is the key under which a checkpoint has the number of micro-batches of a step over all ranks.
const keyAccumulation = "training.gradient_accumulation_steps"

// keySteps is the key under which a checkpoint has the number of steps of the whole run. It stands for
// training.max_steps and training.epochs, which decide that number.
const keySteps = "steps"

// kept reports whether a checkpoint keeps a key's value.
func kept(path string, k keys.Key) bool {
	return (k.Resume == keys.Fixed || k.Resume == keys.Steers) && path != "training.max_steps" &&
		path != "training.epochs"
}

// meaning returns the part of the configuration that a checkpoint keeps: the keys whose tag resume is fixed or
// steering, with the values in effect for this run.
func (p *inputs) meaning() map[string]string {
	s := p.spec
	s.Quantization = p.Net.Scheme
	s.Training.GradientAccumulationSteps = p.window()
	s.Training.ContextParallelSize = s.Training.sharing()
	s.Training.Precision = p.On.Precision().Activations().String()
	all := map[string]string{keySteps: fmt.Sprint(p.total)}
	keys.Each(s, func(path string, k keys.Key, value any) {
		if kept(path, k) {
			all[path] = fmt.Sprint(value)
		}
	})
	return all
}

// resumeRules returns the rule of every key that a checkpoint keeps.
func resumeRules() map[string]keys.Resume {
	rules := map[string]keys.Resume{keySteps: keys.Steers}
	var s Spec
	s.Quantization = new(quant.Config)
	keys.Each(s, func(path string, k keys.Key, _ any) {
		if kept(path, k) {
			rules[path] = k.Resume
		}
	})
	return rules
}

// otherWindow returns advice on how a run on several devices keeps the steps of a checkpoint.
func (p *inputs) otherWindow(before string) string {
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
	return fmt.Sprintf("%s: take a number of devices that divides %s, and as many accumulation steps as make it", text,
		before)
}

// compareMeaning returns an error if the checkpoint belongs to a run with other fixed keys, and logs which steering
// keys change from this step. Checkpoints of older programs have no such keys.
func (p *inputs) compareMeaning(was map[string]string, step int) error {
	var other []string
	now, rules := p.meaning(), resumeRules()
	for _, key := range slices.Sorted(maps.Keys(now)) {
		before, ok := was[key]
		after := now[key]
		switch {
		case !ok || before == after:
		case key == keyAccumulation && p.world > 1:
			other = append(other, p.otherWindow(before))
		case rules[key] == keys.Fixed:
			other = append(other, fmt.Sprintf("%s was %s, is %s", key, before, after))
		default:
			p.env.Logf("resumed after step %d: %s changes from %s to %s", step, key, before, after)
		}
	}
	if other == nil {
		return nil
	}
	slices.Sort(other)
	return fmt.Errorf("its run had another configuration: %s; restore the old values, or choose another output_dir "+
		"for a new run", strings.Join(other, "; "))
}
