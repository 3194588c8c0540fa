package session

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// PrecisionAuto is the precision that suits the device.
const PrecisionAuto = "auto"

// precisionFor returns the configured precision on a device; 0 = the precision that suits the device.
func precisionFor(device, name string) (kernel.Precision, error) {
	if name == "" || name == PrecisionAuto {
		return 0, nil
	}
	p, ok := kernel.PrecisionNamed(name)
	if !ok {
		return 0, fmt.Errorf("precision %q is not one of auto, bf16, fp16, tf32, fp32, bf16+fp8", name)
	}
	kind, err := graph.DeviceKind(device)
	if err != nil {
		return 0, err
	}
	if kind == "cpu" && p.FrozenFP8() {
		return 0, fmt.Errorf("training.frozen_gemm: fp8 needs a GPU (%w): use bf16 there", ErrNoDevice)
	}
	if kind == "cpu" && p != kernel.PrecisionFP32 {
		return 0, fmt.Errorf("training.precision: %v needs a GPU (%w): the CPU computes in fp32; use auto or fp32 there", p, ErrNoDevice)
	}
	return p, nil
}

// MaxWorkers is the largest number of CPU threads of a session: each has megabytes of scratch memory.
const MaxWorkers = 1024

// CheckWorkers refuses an invalid number of CPU threads; 0 is valid and means one for each core.
func CheckWorkers(n int) error {
	if n < 0 || n > MaxWorkers {
		return fmt.Errorf("%d CPU threads: must lie in 0 to %d; 0 = one for each core", n, MaxWorkers)
	}
	return nil
}

// OpenMachine opens the machine that a session computes on: "cpu", "cuda", or "auto", which is the first GPU if this
// program and machine have one. precision is auto, bf16, fp16, tf32, fp32, or bf16+fp8, which is bf16 with frozen GEMMs
// in 8-bit floats.
func OpenMachine(device, precision string, env Env) (graph.Machine, error) {
	if err := CheckWorkers(env.Workers); err != nil {
		return nil, err
	}
	p, err := precisionFor(device, precision)
	if err != nil {
		return nil, err
	}
	on, err := graph.Open(device, graph.Options{GPU: env.GPU, Workers: env.Workers, Precision: p})
	if err != nil {
		return nil, err
	}
	if asked, _, err := graph.RangesAsked(); err != nil {
		return nil, errors.Join(err, on.Close())
	} else if asked && !on.Capabilities().Async {
		env.Logf("%s: ranges for a profiler are of runs on a GPU; this one is on %s", graph.RangesVariable, on.Name())
	}
	return on, nil
}

// MachineFor returns a machine that plans for a GPU of another computer.
func MachineFor(chip graph.Chip, precision string, env Env) (graph.Machine, error) {
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
