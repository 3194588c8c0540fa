//go:build gpu && linux

package gpu

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu/libcuda"
)

// On any machine: a driver that answers with an error is named, and what was restored works as before.
func TestFailingDriver(t *testing.T) {
	before, why := Devices()
	restore, err := libcuda.Fail("cuDeviceGetCount", 999)
	if err != nil {
		t.Fatal(err)
	}
	n, reason := Devices()
	if before > 0 && (n != 0 || !strings.Contains(reason, "cuDeviceGetCount") || !strings.Contains(reason, "999")) {
		t.Errorf("failing count: %d devices, %q", n, reason)
	}
	restore()
	if n, reason := Devices(); n != before || reason != why {
		t.Errorf("after restore: %d devices, %q; before %d, %q", n, reason, before, why)
	}
	for _, fail := range []func(string, int) (func(), error){libcuda.Fail, libcuda.FailCapturing} {
		if _, err := fail("cuNothing", 1); err == nil {
			t.Error("a function that is not there was made to fail")
		}
	}
}

// On a device: a lost context and a full device, simulated at the driver's boundary.
func TestFaults(t *testing.T) {
	d, s := device(t)
	m, err := d.Load("add", append([]byte(addPTX), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unload()
	f, err := m.Function("add")
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.NewArena("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Free()
	l, err := f.Prepare([3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, a.Base, a.Base.Add(2048), float32(1), int32(32))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Free()
	for _, c := range []struct {
		symbol string
		code   int
		run    func() error
		sticky bool
		parts  []string
	}{
		{"cuLaunchKernel", 700, func() error { return l.Run(s) }, true,
			[]string{"add", "cuLaunchKernel", "ILLEGAL_ADDRESS", "restart the program"}},
		{"cuLaunchKernel", 701, func() error { return l.Run(s) }, false, []string{"add", "registers or shared memory"}},
		{"cuStreamSynchronize", 719, s.Synchronize, true, []string{"wait for the stream", "LAUNCH_FAILED"}},
		{"cuMemAlloc_v2", 2, func() error { _, err := d.NewArena("weights", 1<<20); return err }, false,
			[]string{"weights", "1048576", "out of memory"}},
	} {
		restore, err := libcuda.Fail(c.symbol, c.code)
		if err != nil {
			t.Fatal(err)
		}
		err = c.run()
		restore()
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Sticky() != c.sticky {
			t.Errorf("%s %d: %v", c.symbol, c.code, err)
			continue
		}
		for _, p := range c.parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s %d: %q lacks %q", c.symbol, c.code, err, p)
			}
		}
	}
	if err := errors.Join(l.Run(s), s.Synchronize()); err != nil { // the device itself is unharmed
		t.Fatal(err)
	}
}
