// Package gpu drives NVIDIA devices: properties, memory, streams, events, modules, launches, graph capture and the
// vendor's matrix library. It is the only package that imports gorgonia.org/cu or uses cgo, and it knows no kernels:
// those are loaded from images that the caller gives it.
//
// Built without the tag gpu it is pure Go and only says so: Devices returns 0 and the reason.
//
// A device is used from one goroutine that holds its OS thread (runtime.LockOSThread), because the driver keeps the
// current context per thread.
package gpu

import (
	"errors"
	"fmt"
	"strings"
)

// Ptr is an address in device memory.
type Ptr uint64

// Add returns the address n bytes further on.
func (p Ptr) Add(n int64) Ptr { return p + Ptr(n) }

// Properties describes one device. Sizes are in bytes.
type Properties struct {
	Index          int
	Name           string
	UUID           string
	PCI            string // bus id, 0000:17:00.0
	Major, Minor   int    // compute capability
	SMs            int    // streaming multiprocessors
	Memory         int64  // total device memory
	L2             int
	SharedPerBlock int // most dynamic shared memory of one block after opting in
	SharedPerSM    int
	Driver         int // newest CUDA version the driver serves, 1000*major + 10*minor
}

// SM returns the compute capability as one number: 80, 89, 90, 100, 120.
func (p Properties) SM() int { return 10*p.Major + p.Minor }

// String returns the line that doctor prints.
func (p Properties) String() string {
	return fmt.Sprintf("%s, compute capability %d.%d, %d SMs, %.1f GiB, driver for CUDA %s",
		p.Name, p.Major, p.Minor, p.SMs, float64(p.Memory)/(1<<30), VersionText(p.Driver))
}

// Library describes a vendor library that is opened at run time.
type Library struct {
	Name    string
	Path    string // empty when none was found
	Version string
	Problem string // why it can't be used; empty when it can
	Without string // what its absence costs
}

// KernelsVersion is the CUDA version the embedded kernels are compiled with (scripts/kernels.py).
const KernelsVersion = 12090

// oldest lists the oldest CUDA version whose driver loads our kernels, by the device's compute capability:
// NVIDIA's minor-version rule serves all 12.x builds from 12.0 on, and a chip needs the driver that introduced it.
var oldest = []struct {
	sm, version int
	driver      string
}{
	{120, 12080, "570"},
	{100, 12080, "570"},
	{0, 12000, "525.60"},
}

// VersionText writes the driver API's version number as people do: 12090 is "12.9".
func VersionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// CheckDriver says whether a driver that serves CUDA version driver can load the embedded kernels on a device of
// compute capability sm. The error names both versions.
func CheckDriver(driver, sm int) error {
	if sm < 80 {
		return fmt.Errorf("compute capability %d.%d is not supported: the kernels need 8.0 (Ampere) or later", sm/10,
			sm%10)
	}
	for _, o := range oldest {
		if sm < o.sm {
			continue
		}
		if driver < o.version {
			return fmt.Errorf("the NVIDIA driver is too old: it serves CUDA %s, and the kernels, built with CUDA %s, "+
				"need a driver for CUDA %s or later (%s or newer); update the driver",
				VersionText(driver), VersionText(KernelsVersion), VersionText(o.version), o.driver)
		}
		return nil
	}
	return nil
}

// Error is a failed driver call.
type Error struct {
	What string // what was being done: the kernel's name, or a phrase
	Call string // the driver's function
	Code int
	Name string // CUDA_ERROR_...
}

func (e *Error) Error() string {
	name := e.Name
	if name == "" {
		name = "CUDA error"
	}
	s := fmt.Sprintf("%s: %s: %s (%d)", e.What, e.Call, name, e.Code)
	hint := hints[e.Code]
	if e.Sticky() {
		hint = strings.TrimPrefix(hint+"; the device context is lost, restart the program", "; ")
	}
	if hint != "" {
		s += ": " + hint
	}
	return s
}

// What an Error is about; errors.Is finds these in it.
var (
	ErrDevice      = errors.New("a driver call failed") // every Error
	ErrLost        = errors.New("the device context is lost")
	ErrOutOfMemory = errors.New("the device is out of memory")
	ErrUnsupported = errors.New("the device or its driver does not support it")
)

// Is tells whether the error is of a kind.
func (e *Error) Is(kind error) bool {
	switch kind {
	case ErrDevice:
		return true
	case ErrLost:
		return e.Sticky()
	case ErrOutOfMemory:
		return e.OutOfMemory()
	case ErrUnsupported:
		return e.Code == codeNoBinary || e.Code == codePTX || e.Code == codeNotSupported
	}
	return false
}

// Sticky reports whether the error has ended the context: every later call on the device fails with it, and only a new
// process can go on.
func (e *Error) Sticky() bool {
	switch e.Code {
	case codeECC, codeNVLink, codeContained, codeLaunchTimeout, codeClientEnded:
		return true
	}
	return kernelFault[e.Code]
}

// OutOfMemory reports whether the device had not enough free memory.
func (e *Error) OutOfMemory() bool { return e.Code == codeOutOfMemory }

// The driver's result codes that the package distinguishes.
const (
	codeOutOfMemory        = 2
	codeNotInitialized     = 3
	codeUnavailable        = 46
	codeNoDevice           = 100
	codeNoBinary           = 209
	codeECC                = 214
	codeNVLink             = 220
	codePTX                = 222
	codeContained          = 226
	codeNotFound           = 500
	codeIllegalAddress     = 700
	codeLaunchResources    = 701
	codeLaunchTimeout      = 702
	codeAssert             = 710
	codeHardwareStack      = 714
	codeIllegalInstruction = 715
	codeMisaligned         = 716
	codeAddressSpace       = 717
	codeInvalidPC          = 718
	codeLaunchFailed       = 719
	codeTensorMemory       = 721
	codeNotSupported       = 801
	codeClientEnded        = 810
	codeUnknown            = 999
)

// kernelFault are the codes of a kernel that ended the context.
var kernelFault = map[int]bool{
	codeIllegalAddress: true, codeAssert: true, codeHardwareStack: true, codeIllegalInstruction: true,
	codeMisaligned:   true,
	codeAddressSpace: true, codeInvalidPC: true, codeLaunchFailed: true, codeTensorMemory: true,
}

var hints = map[int]string{
	codeOutOfMemory:    "the device is out of memory; another process may hold memory (nvidia-smi lists them)",
	codeNotInitialized: "no usable NVIDIA driver",
	codeUnavailable: "the device takes no work now: another process has it alone (compute mode), or it has " +
		"failed",
	codeNoDevice:           "the driver lists no device any more",
	codeNoBinary:           "the module holds no code for this device",
	codePTX:                "the driver is older than the compiler that wrote the PTX",
	codeECC:                "the device's memory has an error that can't be corrected",
	codeNVLink:             "a link between GPUs (NVLink) has an error that can't be corrected",
	codeContained:          "the device's hardware met an error and kept it to this program",
	codeIllegalAddress:     "a kernel accessed memory out of bounds",
	codeLaunchResources:    "the block needs more registers or shared memory than the device has",
	codeLaunchTimeout:      "a kernel ran longer than the system allows",
	codeAssert:             "a kernel stopped itself at a check",
	codeHardwareStack:      "a kernel's call stack overflowed or was damaged",
	codeIllegalInstruction: "a kernel met an instruction that the device does not have",
	codeMisaligned:         "a kernel read or wrote at an address that is not aligned",
	codeAddressSpace:       "a kernel used an address in the wrong kind of memory",
	codeInvalidPC:          "a kernel jumped out of its code",
	codeLaunchFailed:       "a kernel failed",
	codeTensorMemory:       "a kernel ended without giving its tensor memory back",
	codeNotSupported:       "this driver is too old for the call",
	codeClientEnded:        "the server that shares the device (MPS) ended this program's part",
	codeUnknown: "the driver has no name for what happened; often the GPU has fallen off the bus: it lost " +
		"its power or its PCIe link",
}
