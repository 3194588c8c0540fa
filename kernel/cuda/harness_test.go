//go:build gpu && linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// harness runs kernels on the first device with a guard on both sides of every buffer.
type harness struct {
	t      testing.TB
	d      *gpu.Device
	s      *gpu.Stream
	arena  *gpu.Arena
	at     int64
	mods   map[string]*gpu.Module
	funcs  map[string]*gpu.Function
	guards []int64 // offsets of 256 guard bytes
	names  []string
	rnd    *rand.Rand
	elem   string // that kernels are compiled for
}

const guardByte, poison = 0xa5, 0xff // 0xff.. is NaN in bf16 and fp32

func newHarness(t testing.TB, bytes int64) *harness {
	t.Helper()
	n, reason := gpu.Devices()
	if n == 0 {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatalf("TRAINER_GPU=require: %s", reason)
		}
		t.Skip(reason)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := gpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.NewArena("test", bytes)
	if err != nil {
		t.Fatal(err)
	}
	r := &harness{t: t, d: d, s: s, arena: a, mods: map[string]*gpu.Module{}, funcs: map[string]*gpu.Function{},
		elem: "bf16"}
	r.reset()
	t.Cleanup(func() {
		err := errors.Join(a.Free(), s.Close())
		for _, m := range r.mods {
			err = errors.Join(err, m.Unload())
		}
		if err = errors.Join(err, d.Close()); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return r
}

func (r *harness) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *harness) reset() {
	r.at, r.guards, r.names = 0, nil, nil
	r.rnd = rand.New(rand.NewPCG(7, 11))
}

// out returns a poisoned buffer between guards.
func (r *harness) out(name string, bytes int64) gpu.Ptr {
	r.t.Helper()
	if bytes >= 1<<30 { // a benchmark's: no guard
		p, err := r.arena.At(r.at, bytes)
		r.ok(err)
		r.at += (bytes + 255) / 256 * 256
		return p
	}
	end := r.at + 256 + bytes
	_, err := r.arena.At(r.at, bytes+768)
	r.ok(err)
	base := r.arena.Base
	r.ok(errors.Join(r.s.Fill(base.Add(r.at), guardByte, 256), r.s.Fill(base.Add(r.at+256), poison, bytes),
		r.s.Fill(base.Add(end), guardByte, 256)))
	p := base.Add(r.at + 256)
	r.guards = append(r.guards, r.at, end)
	r.names = append(r.names, name+" (before)", name+" (after)")
	r.at = (end + 256 + 255) / 256 * 256
	return p
}

func in[T any](r *harness, name string, v []T) gpu.Ptr {
	r.t.Helper()
	p := r.out(name, int64(len(v))*int64(unsafe.Sizeof(v[0])))
	r.ok(errors.Join(r.s.Synchronize(), gpu.Upload(p, v)))
	return p
}

func get[T any](r *harness, p gpu.Ptr, n int) []T {
	r.t.Helper()
	v := make([]T, n)
	r.ok(errors.Join(r.s.Synchronize(), gpu.Download(v, p)))
	return v
}

func (r *harness) launch(g Geometry, args ...any) *gpu.Launch {
	r.t.Helper()
	m := r.mods[g.Stem]
	if m == nil {
		image, err := Image(g.Stem, r.elem)
		r.ok(err)
		m, err = r.d.Load(g.Stem, image)
		r.ok(err)
		r.mods[g.Stem] = m
	}
	f := r.funcs[g.Entry]
	if f == nil {
		var err error
		f, err = m.Function(g.Entry)
		r.ok(err)
		r.funcs[g.Entry] = f
	}
	l, err := f.Prepare(g.Grid, g.Block, g.Shared, args...)
	r.ok(err)
	return l
}

func (r *harness) run(g Geometry, args ...any) {
	r.t.Helper()
	l := r.launch(g, args...)
	defer l.Free()
	r.ok(errors.Join(l.Run(r.s), r.s.Synchronize()))
}

func (r *harness) checkGuards() {
	r.t.Helper()
	for i, at := range r.guards {
		for _, b := range get[byte](r, r.arena.Base.Add(at), 256) {
			if b != guardByte {
				r.t.Fatalf("written outside of %s", r.names[i])
			}
		}
	}
}

// repeat runs f twice from the same start and demands the same bytes; f returns its outputs.
func (r *harness) repeat(f func() [][]byte) [][]byte {
	r.t.Helper()
	r.reset()
	a := f()
	r.checkGuards()
	r.reset()
	b := f()
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			r.t.Fatalf("output %d differs between two runs", i)
		}
	}
	return a
}

func bf16(f float32) uint16 {
	if f != f {
		return 0x7fff
	}
	u := math.Float32bits(f)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func f32(b uint16) float32         { return math.Float32frombits(uint32(b) << 16) }
func round(x float64) float64      { return float64(f32(bf16(float32(x)))) }
func words(b []byte, i int) uint16 { return binary.LittleEndian.Uint16(b[2*i:]) }

// random returns n bf16 values around mean, deviation 1 times scale, and their float64 values.
func (r *harness) random(n int, scale float64) ([]uint16, []float64) {
	v, f := make([]uint16, n), make([]float64, n)
	for i := range v {
		v[i] = bf16(float32(r.rnd.NormFloat64() * scale))
		f[i] = float64(f32(v[i]))
	}
	return v, f
}

func bfFloats(b []byte) []float64 {
	v := make([]float64, len(b)/2)
	for i := range v {
		v[i] = float64(f32(words(b, i)))
	}
	return v
}

func f32Floats(b []byte) []float64 {
	v := make([]float64, len(b)/4)
	for i := range v {
		v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return v
}

// distance returns |got - want| / |want|; NaN counts as infinite.
func distance(got, want []float64) float64 {
	var e, w float64
	for i := range want {
		d := got[i] - want[i]
		e += d * d
		w += want[i] * want[i]
	}
	if e != e || len(got) != len(want) {
		return math.Inf(1)
	}
	if w == 0 {
		return math.Sqrt(e)
	}
	return math.Sqrt(e / w)
}

// nearBF16 demands that got is at most twice as far from want as want rounded to bf16 is.
func nearBF16(t testing.TB, what string, got, want []float64) {
	t.Helper()
	best := make([]float64, len(want))
	for i := range want {
		best[i] = round(want[i])
	}
	near(t, what, got, want, best)
}

// near demands that got is at most twice as far from the float64 values want as plain, a simple low-precision
// computation, is.
func near(t testing.TB, what string, got, want, plain []float64) {
	t.Helper()
	e, limit := distance(got, want), 2*distance(plain, want)+1e-7
	if !slices.ContainsFunc(want, func(x float64) bool { return x != 0 }) {
		limit = 1e-5 * math.Sqrt(float64(len(want))) // nothing to be relative to
	}
	if !(e <= limit) {
		worst, at := 0.0, 0
		for i := range want {
			if d := math.Abs(got[i] - want[i]); !(d <= worst) {
				worst, at = d, i
			}
		}
		t.Errorf("%s: error %.3g, limit %.3g; element %d of %d is %v, want %v", what, e, limit, at, len(want), got[at],
			want[at])
		return
	}
	t.Logf("%s: error %.3g, limit %.3g", what, e, limit)
}

// nearF32 is near for fp32 results: relative error at most 2e-6.
func nearF32(t testing.TB, what string, got, want []float64) {
	t.Helper()
	if e := distance(got, want); !(e <= 2e-6) {
		t.Errorf("%s: error %.3g, limit 2e-6", what, e)
	}
}
