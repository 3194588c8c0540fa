package graph

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// What the error of a machine is about; errors.Is finds these in it.
var (
	// ErrNoDevice: this program or computer does not have the device that was asked for.
	ErrNoDevice = errors.New("no such device")
	// ErrDevice: a call of the device's driver failed.
	ErrDevice = gpu.ErrDevice
	// ErrDeviceLost: it ended the device's context; only a new process can go on.
	ErrDeviceLost = gpu.ErrLost
	// ErrOutOfMemory: the device has not that much free memory.
	ErrOutOfMemory = gpu.ErrOutOfMemory
	// ErrDeviceUnsupported says that the device or its driver does not support an operation.
	ErrDeviceUnsupported = gpu.ErrUnsupported
)

// Options configure how Open opens a machine.
type Options struct {
	GPU       int              // index of the GPU in this computer
	Workers   int              // CPU threads; 0 = one for each core
	Precision kernel.Precision // 0 = the precision that suits the device
}

// DeviceNames lists the names that Open accepts.
var DeviceNames = []string{"auto", "cpu", "cuda"}

// DeviceKind returns "cpu" or "cuda" for a name that Open accepts; "auto" and "" choose a GPU if there is one.
func DeviceKind(name string) (string, error) {
	switch name {
	case "cpu", "cuda":
		return name, nil
	case "", "auto":
		if n, _ := GPUs(); n > 0 {
			return "cuda", nil
		}
		return "cpu", nil
	}
	return "", fmt.Errorf("device %q: %w: use cpu, cuda or auto", name, ErrNoDevice)
}

// Open opens a device by name: "cpu", "cuda" or "auto". It returns ErrNoDevice if there is no such device.
func Open(name string, o Options) (Machine, error) {
	kind, err := DeviceKind(name)
	if err != nil {
		return nil, err
	}
	if kind == "cpu" {
		if o.Precision != 0 && o.Precision != kernel.PrecisionFP32 {
			return nil, fmt.Errorf("device %q: %w that computes in %v: the CPU computes in fp32", name, ErrNoDevice,
				o.Precision)
		}
		return NewCPU(o.Workers), nil
	}
	on, err := NewGPU(o.GPU, o.Workers, o.Precision)
	if err != nil {
		return nil, fmt.Errorf("device %q: %w: %w", name, ErrNoDevice, err)
	}
	return on, nil
}

// GPUs returns the number of GPUs that this program can use, and the reason if there is none.
func GPUs() (n int, reason string) { return gpu.Devices() }

// GPUShares returns how many devices each GPU is presented as: 1, unless processes share GPUs for a trial
// (gpu.ShareVariable).
func GPUShares() int { return gpu.Shares() }

// GPUBuilt tells whether this program holds GPU kernels.
const GPUBuilt = gpu.Built

// Chip is a GPU model that plans can be made for without the device.
type Chip = gpu.Chip

// FindChip reads a chip's name or a compute capability: "h100", "RTX 4090", "9.0".
func FindChip(name string) (Chip, error) { return gpu.FindChip(name) }

// ChipNames returns the names of the GPU models that FindChip knows.
func ChipNames() []string {
	var names []string
	for _, c := range gpu.Chips {
		names = append(names, c.Name)
	}
	return names
}

// DefaultChip returns the GPU model that plans are made for if none is named.
func DefaultChip() Chip { return gpu.Chips[0] }

// Hardware describes the computer's GPUs, their driver, the vendor's libraries and this program's kernels.
type Hardware struct {
	GPUs       []GPUInfo
	NoGPU      string // why there is no usable GPU; "" if there is one
	Driver     string // the driver's own version; "" if unknown
	DriverFile string // its library
	DriverCUDA string // newest CUDA version that it serves; "" without a driver
	Kernels    string // the compiler of the program's kernels and the driver that they need; "" without kernels
	KernelsSHA string // SHA-256 of the compiled kernels in hexadecimal; "" without kernels
	Libraries  []Library
}

// Library is a vendor's library that the program opens at run time.
type Library = gpu.Library

// GPUInfo describes one GPU.
type GPUInfo struct {
	gpu.Properties
	Precision kernel.Precision // the precision that suits it
	Problem   error            // why it is unusable; nil = it is usable
	Code      string           // form of the kernels that it runs, such as sm_90a or compute_90
	JIT       bool             // the driver compiles that form on this machine
}

// FindHardware looks for GPUs without opening any.
func FindHardware() Hardware {
	var h Hardware
	n, reason := gpu.Devices()
	h.NoGPU = reason
	if v := gpu.DriverVersion(); v > 0 {
		h.DriverCUDA = gpu.VersionText(v)
	}
	h.Driver, h.DriverFile = gpu.Driver()
	if gpu.Built {
		least, _ := gpu.OldestDriver(80)
		newer, _ := gpu.OldestDriver(120)
		h.Kernels = fmt.Sprintf("built with CUDA %s, for compute capability 8.0 and later; they need driver %s or newer, from 10.0 on %s",
			gpu.VersionText(gpu.KernelsVersion), least, newer)
	}
	for i := range n {
		p, err := gpu.DeviceProperties(i)
		if err == nil {
			err = gpu.CheckDriver(p.Driver, p.SM())
		}
		info := GPUInfo{Properties: p, Precision: kernel.PrecisionOf(p.SM()), Problem: err}
		if info.Code, info.JIT, err = kernelsFor(p.SM()); info.Problem == nil {
			info.Problem = err
		}
		h.GPUs = append(h.GPUs, info)
	}
	h.KernelsSHA = kernelsDigest()
	h.Libraries = gpu.Libraries("")
	return h
}
