package train

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// precisionAuto is the precision that suits the device.
const precisionAuto = "auto"

// precisionFor is the precision that a configuration asks for on a device; 0 = what suits it.
func precisionFor(device, name string) (kernel.Precision, error) {
	if name == "" || name == precisionAuto {
		return 0, nil
	}
	p, ok := kernel.PrecisionNamed(name)
	if !ok {
		return 0, fmt.Errorf("precision %q is not one of auto, bf16, fp16, tf32, fp32", name)
	}
	kind, err := graph.DeviceKind(device)
	if err != nil {
		return 0, err
	}
	if kind == "cpu" && p != kernel.PrecisionFP32 {
		return 0, fmt.Errorf("training.precision: %v needs a GPU (%w): the CPU computes in fp32; use auto or fp32 there", p, ErrNoDevice)
	}
	return p, nil
}

// precisionText is a precision as reports show it.
func precisionText(name string, auto bool) string {
	if auto {
		return name + " (auto)"
	}
	return name
}

// nameScaling is the state of loss scaling, where the precision needs it; kernel.LossScale says what it holds.
const nameScaling = "loss scaling"

// startScaling writes the state that loss scaling begins with, where the step has such.
func (t *trainStep) startScaling(m graph.Store, c Config) error {
	if t.scaling == nil {
		return nil
	}
	x, err := m.Tensor(nameScaling)
	if err != nil {
		return err
	}
	s := x.F32()
	s[kernel.LossScaleNow], s[kernel.LossScaleStreak], s[kernel.LossScaleSkipped] = float32(c.LossScale), 0, 0
	return m.Put(nameScaling)
}

// startScaling begins loss scaling as the configuration says.
func (r *running) startScaling() error {
	if err := r.step.startScaling(r.memory, r.spec.Training); err != nil {
		return err
	}
	return r.readScale()
}

// readScale notes the scale that the next step has.
func (r *running) readScale() error {
	if r.step.scaling == nil {
		return nil
	}
	x, err := r.memory.Tensor(nameScaling)
	if err == nil {
		r.scale = float64(x.F32()[kernel.LossScaleNow])
	}
	return err
}

// withScaling adds the state of loss scaling to the inputs of a Scaled kernel, where the step has it.
func (t *trainStep) withScaling(in ...*graph.Value) []*graph.Value {
	if t.scaling == nil {
		return in
	}
	return append(in, t.scaling)
}

// optimizerStates are the states that a checkpoint keeps besides the adapter.
func (t *trainStep) optimizerStates() []string {
	names := []string{nameMoment1, nameMoment2}
	if t.scaling != nil {
		names = append(names, nameScaling)
	}
	return names
}
