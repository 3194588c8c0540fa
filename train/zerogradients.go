package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// ErrZeroGradient is wrapped by the error of a run in which a trained tensor had no gradient in the first steps.
var ErrZeroGradient = errors.New("no gradient")

// gradientSteps is the number of steps within which a trained tensor must get a gradient. B starts at zero, so A has no
// gradient in the first step, nor in the second if a warm-up begins with a rate of zero.
const gradientSteps = 3

// gradientWatch finds trained tensors whose gradient is zero in each of a run's first steps. If the experts of a layer
// are one tensor, one expert with a gradient is enough. If only some experts are adapted, all of them may be idle.
type gradientWatch struct {
	memory  graph.Store
	missing []string // tensors without a gradient so far
	steps   int      // number of steps examined
}

// watchGradients returns the watch of a run, nil if the run is past its first steps.
func watchGradients(m graph.Store, p session.Program, done int) *gradientWatch {
	if done >= gradientSteps {
		return nil
	}
	return &gradientWatch{memory: m, missing: p.Trained.AlwaysUsed(p.Net.Uninfluential)}
}

// waits reports whether the next step must not overwrite the gradients of this one before look has read them.
func (w *gradientWatch) waits() bool {
	return w != nil && len(w.missing) > 0 && w.steps < gradientSteps
}

// look examines the gradients of a finished step.
func (w *gradientWatch) look() error {
	if !w.waits() {
		return nil
	}
	names := make([]string, len(w.missing))
	for i, p := range w.missing {
		names[i] = step.GradientName(p)
	}
	defer w.memory.Forget(names...)
	if err := w.memory.Get(names...); err != nil {
		return fmt.Errorf("look at the gradients: %w", err)
	}
	var missing []string
	for i, name := range names {
		x, err := w.memory.Tensor(name)
		if err != nil {
			return fmt.Errorf("look at the gradients: %w", err)
		}
		if allZero(x) {
			missing = append(missing, w.missing[i])
		}
	}
	w.missing = missing
	if w.steps++; w.steps < gradientSteps || missing == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrZeroGradient, missingText(missing))
}

func allZero(x kernel.Tensor) bool {
	if x.DType == kernel.F64 {
		return !slices.ContainsFunc(x.F64(), func(v float64) bool { return v != 0 })
	}
	return !slices.ContainsFunc(x.F32(), func(v float32) bool { return v != 0 })
}

// namedTensors is the number of tensors that an error lists.
const namedTensors = 8

func missingText(missing []string) string {
	var names []string
	for _, p := range missing[:min(len(missing), namedTensors)] {
		names = append(names, adapter.PEFTName(p))
	}
	text := strings.Join(names, ", ")
	if more := len(missing) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	verb := "was"
	if len(missing) > 1 {
		verb = "were"
	}
	return fmt.Sprintf("%s %s zero in each of the first %d steps, so nothing there is learnt. Either the layer's "+
		"output does not reach the "+
		"loss (weights of the base model behind it are zero: trainer inspect model), or the gradient is too small "+
		"for the precision "+
		"(training.precision: fp32, or fp16 with a larger training.loss_scale), or the rows are too short for the "+
		"layer to matter "+
		"(trainer inspect data). Leave the layer out of lora.target_modules, or set training.allow_zero_gradients: "+
		"true to train the others",
		text, verb, gradientSteps)
}
