//go:build gpu && linux

package gpu

import (
	"debug/elf"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The program must start on a machine without a driver and without CUDA, so nothing of NVIDIA's may be linked.
func TestImports(t *testing.T) {
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libs {
		if l != "libc.so.6" && l != "libdl.so.2" && l != "libpthread.so.0" && l != "libresolv.so.2" {
			t.Errorf("the binary requires %s", l)
		}
	}
	syms, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if strings.HasPrefix(s.Name, "cu") && !strings.HasPrefix(s.Name, "cur") {
			t.Errorf("the binary requires the symbol %s", s.Name)
		}
	}
}

// device opens the first device on a locked thread, or skips with the reason. With TRAINER_GPU=require a machine
// without a device fails instead: the GPU job must not pass by skipping.
func device(t testing.TB) (*Device, *Stream) {
	t.Helper()
	n, reason := Devices()
	if n == 0 {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatalf("TRAINER_GPU=require: %s", reason)
		}
		t.Skip(reason)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, s
}

func TestNoDeviceSaysWhy(t *testing.T) {
	n, reason := Devices()
	if (n == 0) != (reason != "") {
		t.Errorf("%d devices, reason %q", n, reason)
	}
	if n == 0 {
		if _, err := Open(0); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("Open: %v, reason %q", err, reason)
		}
	}
	if _, err := DeviceProperties(99); err == nil {
		t.Error("device 99 exists")
	}
}

// addPTX is y[i] += a * x[i], for drivers of CUDA 11 and later.
const addPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
	.reg .pred p; .reg .b32 r<6>; .reg .b64 d<6>; .reg .f32 f<4>;
	mov.u32 r1, %ctaid.x; mov.u32 r2, %ntid.x; mov.u32 r3, %tid.x;
	mad.lo.s32 r4, r1, r2, r3;
	ld.param.u32 r5, [n];
	setp.ge.u32 p, r4, r5;
	@p ret;
	ld.param.u64 d1, [y]; ld.param.u64 d2, [x]; ld.param.f32 f1, [a];
	cvta.to.global.u64 d1, d1; cvta.to.global.u64 d2, d2;
	mul.wide.u32 d3, r4, 4; add.s64 d4, d1, d3; add.s64 d5, d2, d3;
	ld.global.f32 f2, [d4]; ld.global.f32 f3, [d5];
	fma.rn.f32 f2, f1, f3, f2; st.global.f32 [d4], f2;
	ret;
}
`

func TestLaunchAndGraph(t *testing.T) {
	d, s := device(t)
	t.Logf("%v", d.Properties)
	m, err := d.Load("add", append([]byte(addPTX), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unload()
	if _, err := m.Function("nothing"); err == nil || !strings.Contains(err.Error(), "nothing") ||
		!strings.Contains(err.Error(), "cuModuleGetFunction") {
		t.Errorf("a kernel that is not there: %v", err)
	}
	f, err := m.Function("add")
	if err != nil {
		t.Fatal(err)
	}
	if d.Driver >= 12040 && !slices.Equal(f.Params, []Param{{0, 8}, {8, 8}, {16, 4}, {20, 4}}) {
		t.Errorf("parameters %v", f.Params)
	}
	const n = 1000
	a, err := d.NewArena("test", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Free()
	y, _ := a.At(0, 4*n)
	x, _ := a.At(8192, 4*n)
	if _, err := a.At(1<<20-4, 8); err == nil {
		t.Error("bytes beyond the arena were given out")
	}
	xs, ys := make([]float32, n), make([]float32, n)
	for i := range xs {
		xs[i] = float32(i)
	}
	if err := errors.Join(Upload(x, xs), Upload(y, ys)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Prepare([3]int{4, 1, 1}, [3]int{256, 1, 1}, 0, y, x, float32(2), int64(n)); d.Driver >= 12040 &&
		err == nil {
		t.Error("an argument of the wrong size was taken")
	}
	l, err := f.Prepare([3]int{4, 1, 1}, [3]int{256, 1, 1}, 0, y, x, float32(2), int32(n))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Free()
	g, err := Capture(s, func() error {
		for range 10 {
			if err := l.Run(s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if len(g.Kernels) != 10 || g.Kernels[0] != "add" {
		t.Errorf("captured %v", g.Kernels)
	}
	want := func(factor float32) {
		t.Helper()
		if err := s.Synchronize(); err != nil {
			t.Fatal(err)
		}
		if err := Download(ys, y); err != nil {
			t.Fatal(err)
		}
		for i := range ys {
			if ys[i] != factor*xs[i] {
				t.Fatalf("y[%d] = %v, want %v", i, ys[i], factor*xs[i])
			}
		}
	}
	want(0) // capturing runs nothing
	if err := g.Replay(s); err != nil {
		t.Fatal(err)
	}
	want(20)
	if err := l.Run(s); err != nil {
		t.Fatal(err)
	}
	want(22)
	if err := errors.Join(l.Set(y, x, float32(5), int32(n)), g.Replay(s)); err != nil {
		t.Fatal(err)
	}
	want(42) // the graph keeps its arguments
	if err := errors.Join(g.Update(l), g.Replay(s)); err != nil {
		t.Fatal(err)
	}
	want(92)
	if n := testing.AllocsPerRun(100, func() { _ = l.Run(s) }); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = g.Replay(s) }); n != 0 {
		t.Errorf("a replay allocates %v times", n)
	}
	// A branch on a second stream: y += 5x there, beside z += 2x, joined before y += 5x again.
	s2, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s2.Close()
	fork, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	join, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	z, _ := a.At(16384, 4*n)
	zs := make([]float32, n)
	if err := errors.Join(s.Synchronize(), Upload(z, zs), Upload(y, zs)); err != nil {
		t.Fatal(err)
	}
	lz, err := f.Prepare([3]int{4, 1, 1}, [3]int{256, 1, 1}, 0, z, x, float32(2), int32(n))
	if err != nil {
		t.Fatal(err)
	}
	defer lz.Free()
	branched, err := Capture(s, func() error {
		return errors.Join(fork.Record(s), s2.Wait(fork), l.Run(s2), lz.Run(s), join.Record(s2), s.Wait(join), l.Run(s))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer branched.Close()
	if len(branched.Kernels) != 3 || s2.capture != nil {
		t.Errorf("captured %v, second stream still captures: %v", branched.Kernels, s2.capture != nil)
	}
	if err := branched.Replay(s); err != nil {
		t.Fatal(err)
	}
	want(10)
	if err := Download(zs, z); err != nil || zs[n-1] != 2*xs[n-1] {
		t.Errorf("branch: %v, %v", zs[n-1], err)
	}
	if err := errors.Join(l.Set(y, x, float32(1), int32(n)), branched.Update(l), branched.Replay(s)); err != nil {
		t.Fatal(err)
	}
	want(12)
	// outside of a capture as before
	if err := errors.Join(l.Run(s2), s2.Synchronize(), fork.Close(), join.Close()); err != nil {
		t.Fatal(err)
	}
	want(13)
	other, err := f.Prepare([3]int{1, 1, 1}, [3]int{32, 1, 1}, 0, y, x, float32(1), int32(1))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Free()
	if err := g.Update(other); err == nil || !strings.Contains(err.Error(), "not part of the graph") {
		t.Errorf("update of a foreign launch: %v", err)
	}
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
}

func TestMemory(t *testing.T) {
	d, s := device(t)
	a, err := d.NewArena("test", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.NewPinned(4096)
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewPinned(4096)
	if err != nil {
		t.Fatal(err)
	}
	v := View[uint32](p)
	for i := range v {
		v[i] = uint32(i * 7)
	}
	start, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	end, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(start.Record(s), s.Fill(a.Base, 0xff, 8192), s.CopyIn(a.Base, p, 0, 4096),
		s.Copy(a.Base.Add(4096), a.Base, 2048),
		s.Fill32(a.Base, 0x01020304, 1), s.CopyOut(q, 0, a.Base.Add(2048), 4096), end.Record(s), end.Synchronize())
	if err != nil {
		t.Fatal(err)
	}
	got := View[uint32](q)
	for i := range 512 {
		if got[i] != uint32((i+512)*7) || got[i+512] != uint32(i*7) {
			t.Fatalf("word %d: %d %d", i, got[i], got[i+512])
		}
	}
	if dt, err := end.Since(start); err != nil || dt <= 0 {
		t.Errorf("time between events: %v %v", dt, err)
	}
	if s.CopyIn(a.Base, p, 4000, 200) == nil || s.CopyOut(q, -1, a.Base, 1) == nil {
		t.Error("a copy beyond pinned memory was queued")
	}
	_, err = d.NewArena("huge", d.Memory*2)
	var e *Error
	if !errors.As(err, &e) || !e.OutOfMemory() || !strings.Contains(err.Error(), "huge") {
		t.Errorf("twice the device's memory: %v", err)
	}
	if err := errors.Join(p.Free(), q.Free(), a.Free(), a.Free(), start.Close(), end.Close()); err != nil {
		t.Error(err)
	}
	if _, err := d.Load("broken", []byte("no image")); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a broken image: %v", err)
	}
	if d.SM() >= 90 {
		if _, err := NewTensorMap(a.Base, []int64{256, 64}, []int64{512}, []int{64, 64}, 128); err != nil {
			t.Error(err)
		}
		if _, err := NewTensorMap(a.Base, []int64{256, 64}, []int64{511}, []int{64, 64}, 128); err == nil ||
			!strings.Contains(err.Error(), "tensor map of [256 64]") {
			t.Errorf("a stride of 511 bytes: %v", err)
		}
	}
}
