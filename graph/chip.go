package graph

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// chip plans for a GPU model and runs nothing. Its plans equal those of the device to the byte, because layout depends
// on kernels and compute capability alone.
type chip struct {
	gpu.Chip
	workers int
	target  deviceTarget
}

// NewChip returns a machine that plans for a GPU model and runs nothing; it needs no device. precision is as for
// NewGPU.
func NewChip(c gpu.Chip, workers int, precision kernel.Precision) (Machine, error) {
	if precision == 0 {
		precision = kernel.PrecisionOf(c.SM)
	}
	if err := precision.CheckDevice(c.SM); err != nil {
		return nil, err
	}
	return &chip{c, workers, newDeviceTarget(c.SM, precision)}, nil
}

func (c *chip) Name() string { return c.Full }

func (c *chip) Workers() int { return c.workers }

func (c *chip) Precision() kernel.Precision { return c.target.precision }

// contextBytes is roughly the driver's own use of device memory before a run allocates anything.
const contextBytes = 768 << 20

func (*chip) Software() Software { return Software{} }

func (*chip) Capabilities() Capabilities { return gpuCapabilities }

// FreeMemory returns the memory of such a card when nothing else runs on it, less the share that GPU.FreeMemory
// reserves.
func (c *chip) FreeMemory() (bytes int64, known bool, err error) {
	return c.Memory - c.Memory/reservedShare - contextBytes, c.Memory > 0, nil
}

func (c *chip) Compile(b *Builder, outputs ...*Value) (*Plan, error) {
	return b.compile(c.target, true, outputs)
}

func (c *chip) NewStore(...*Plan) (Store, error) {
	return nil, fmt.Errorf("%s was planned for, not opened: it holds nothing", c.Full)
}

func (c *chip) Bind(*Plan, Store) (Runner, error) {
	return nil, fmt.Errorf("%s was planned for, not opened: it runs nothing", c.Full)
}

func (*chip) Close() error { return nil }

// gpuCapabilities are every GPU's. CapturedCall is the most that TestGPUGraphMemory sees on an H100.
var gpuCapabilities = Capabilities{Async: true, SeparateHost: true, Overlap: true, KeepDequantised: true,
	LogitRows: 1024, CapturedCall: 36 << 10}

// reservedShare: one part in so many of a device's memory is left to the driver: modules, graphs, libraries.
const reservedShare = 50

// slow of a chip leaves libraries out: those of its machine are not known.
func (c *chip) slow() []SlowPath { return slowKernels(c.SM) }
