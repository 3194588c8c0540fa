package session

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// PrecisionAuto is the precision that suits the device.
const PrecisionAuto = "auto"

// precisionFor is the precision that a configuration asks for on a device; 0 = what suits it.
func precisionFor(device, name string) (kernel.Precision, error) {
	if name == "" || name == PrecisionAuto {
		return 0, nil
	}
	p, ok := kernel.PrecisionNamed(name)
	if !ok {
		return 0, fmt.Errorf("precision %q is not one of auto, bf16, fp16, tf32, fp32", name)
	}
	n, _ := gpu.Devices()
	if cpu := device == "cpu" || device != "cuda" && n == 0; cpu && p != kernel.PrecisionFP32 {
		return 0, fmt.Errorf("training.precision: %v needs a GPU (%w): the CPU computes in fp32; use auto or fp32 there", p, ErrNoDevice)
	}
	return p, nil
}

// OpenMachine opens what a session computes on: "cpu", "cuda", or "auto", which is the first GPU if this program and
// machine have one. precision is auto, bf16, fp16, tf32 or fp32.
func OpenMachine(device, precision string, env Env) (graph.Machine, error) {
	p, err := precisionFor(device, precision)
	if err != nil {
		return nil, err
	}
	switch device {
	case "cpu":
		return graph.NewCPU(env.Workers), nil
	case "", "auto":
		if n, _ := gpu.Devices(); n == 0 {
			return graph.NewCPU(env.Workers), nil
		}
	case "cuda":
	default:
		return nil, fmt.Errorf("device %q: %w: use cpu, cuda or auto", device, ErrNoDevice)
	}
	on, err := graph.NewGPU(0, env.Workers, p)
	if err != nil {
		return nil, fmt.Errorf("device %q: %w: %w", device, ErrNoDevice, err)
	}
	return on, nil
}

// MachineFor plans for a GPU of another machine.
func MachineFor(chip gpu.Chip, precision string, env Env) (graph.Machine, error) {
	p, err := precisionFor("cuda", precision)
	if err != nil {
		return nil, err
	}
	on, err := graph.NewChip(chip, env.Workers, p)
	if err != nil {
		return nil, fmt.Errorf("plan for %s: %w: %w", chip.Full, ErrNoDevice, err)
	}
	return on, nil
}
