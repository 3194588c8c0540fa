//go:build gpu && linux

package gpu

/*
#cgo CFLAGS: -D_GNU_SOURCE
#include <cuda.h>
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"gorgonia.org/cu"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel/gpu/libcuda"
)

// Built reports whether GPU support is compiled in.
const Built = true

var readShares = sync.OnceValues(func() (int, error) {
	n, err := parseShares(os.Getenv(ShareVariable))
	if n > 1 {
		err = os.Setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1") // NCCL refuses ranks of one GPU else
	}
	return max(n, 1), err
})

// Shares returns how many devices each GPU stands for (ShareVariable).
func Shares() int {
	n, _ := readShares() // Devices tells
	return n
}

// Devices returns the number of devices, and when there is none the reason. A GPU is one of them, or as many as Shares
// says, which follow one another.
func Devices() (n int, reason string) {
	n, err := cu.NumDevices()
	open, code := libcuda.Status()
	switch {
	case open != "":
		return 0, "no NVIDIA driver: " + open
	case code != 0:
		return 0, notStarted(code)
	case err != nil:
		return 0, wrap("count devices", "cuDeviceGetCount", err).Error()
	case n == 0:
		return 0, notStarted(codeNoDevice)
	}
	each, err := readShares()
	if err != nil {
		return 0, err.Error()
	}
	return n * each, ""
}

// DriverVersion returns the newest CUDA version the driver serves, 0 without one.
func DriverVersion() int { return max(0, cu.Version()) }

// Driver returns the driver's own version, such as "580.159.04", and the file of its library; "" where it does not say.
func Driver() (version, file string) {
	if _, err := cu.NumDevices(); err != nil { // opens the library
		return "", ""
	}
	if file = libcuda.Path(); file == "" {
		return "", ""
	}
	if b, err := os.ReadFile("/proc/driver/nvidia/version"); err == nil {
		version = driverVersion(string(b))
	}
	if real, err := filepath.EvalSymlinks(file); err == nil && version == "" {
		version = driverVersion(filepath.Base(real)) // libcuda.so.580.159.04
	}
	return version, file
}

// DeviceProperties describes device i.
func DeviceProperties(i int) (Properties, error) {
	n, reason := Devices()
	if n == 0 {
		return Properties{}, fmt.Errorf("device %d: %s", i, reason)
	}
	if i < 0 || i >= n {
		return Properties{}, fmt.Errorf("device %d: there are %d", i, n)
	}
	d, err := cu.GetDevice(i / Shares())
	if err != nil {
		return Properties{}, wrap(fmt.Sprintf("device %d", i), "cuDeviceGet", err)
	}
	p := Properties{Index: i, Driver: DriverVersion()}
	if p.Name, err = d.Name(); err != nil {
		return p, wrap("device name", "cuDeviceGetName", err)
	}
	if id, err := d.UUID(); err == nil {
		p.UUID = id.String()
	}
	if p.Memory, err = d.TotalMem(); err != nil {
		return p, wrap("device memory", "cuDeviceTotalMem", err)
	}
	for _, a := range []struct {
		to   *int
		attr cu.DeviceAttribute
	}{
		{&p.Major, cu.ComputeCapabilityMajor}, {&p.Minor, cu.ComputeCapabilityMinor},
		{&p.SMs, cu.MultiprocessorCount}, {&p.L2, cu.L2CacheSize},
		{&p.SharedPerBlock, C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
		{&p.SharedPerSM, C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
	} {
		if *a.to, err = d.Attribute(a.attr); err != nil {
			return p, wrap(fmt.Sprintf("device attribute %d", a.attr), "cuDeviceGetAttribute", err)
		}
	}
	domain, derr := d.Attribute(C.CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
	bus, berr := d.Attribute(C.CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
	slot, serr := d.Attribute(C.CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
	if derr == nil && berr == nil && serr == nil {
		p.PCI = fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, slot)
	}
	return p, nil
}

// Device is an opened device: its primary context, which the vendor libraries share.
type Device struct {
	Properties
	dev cu.Device
	ctx cu.CUContext
}

// Open takes device i for the calling OS thread, which must be locked to its goroutine. A driver too old for the
// kernels is an error that names both versions.
func Open(i int) (*Device, error) {
	p, err := DeviceProperties(i)
	if err != nil {
		return nil, err
	}
	if err := CheckDriver(p.Driver, p.SM()); err != nil {
		return nil, fmt.Errorf("device %d (%s): %w", i, p.Name, err)
	}
	defer came(waitFor("open the device"))
	d := &Device{Properties: p}
	if d.dev, err = cu.GetDevice(i / Shares()); err != nil {
		return nil, wrap(fmt.Sprintf("open device %d", i), "cuDeviceGet", err)
	}
	if d.ctx, err = d.dev.RetainPrimaryCtx(); err != nil {
		return nil, wrap(fmt.Sprintf("open device %d (%s)", i, p.Name), "cuDevicePrimaryCtxRetain", err)
	}
	lastOpened.Store(&p)
	rescue.Go(func() { _ = WatchCards() }) //nolint:errcheck // without it an error is told without the driver's Xid
	return d, d.Use()
}

// Use makes the device current on the calling OS thread.
func (d *Device) Use() error {
	return wrap(fmt.Sprintf("use device %d", d.Index), "cuCtxSetCurrent", cu.SetCurrentContext(d.ctx))
}

// Synchronize waits for everything on the device.
func (d *Device) Synchronize() error {
	defer came(waitFor("wait for the device"))
	return wrap(fmt.Sprintf("wait for device %d", d.Index), "cuCtxSynchronize", cu.Synchronize())
}

// Free returns the free and total bytes of the device as the driver counts them, other processes included.
func (d *Device) Free() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	if n := int64(Shares()); n > 1 {
		total /= n
		free = min(free, total)
	}
	return free, total, wrap(fmt.Sprintf("memory of device %d", d.Index), "cuMemGetInfo", err)
}

// Close gives the primary context back; memory and modules on it are gone when nobody else holds it.
func (d *Device) Close() error {
	defer came(waitFor("close the device"))
	return wrap(fmt.Sprintf("close device %d", d.Index), "cuDevicePrimaryCtxRelease", d.dev.ReleasePrimaryCtx())
}

func errorName(code int) string {
	var s *C.char
	if C.cuGetErrorName(C.CUresult(code), &s) != 0 || s == nil {
		return ""
	}
	return C.GoString(s)
}

// wrap names the call and what it was for; nil stays nil.
func wrap(what, call string, err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int { // cu's error is the driver's code
		return check(what, call, C.CUresult(v.Int()))
	}
	return fmt.Errorf("%s: %s: %w", what, call, err)
}

func check(what, call string, r C.CUresult) error {
	if r == 0 {
		return nil
	}
	return &Error{What: what, Call: call, Code: int(r), Name: errorName(int(r))}
}
