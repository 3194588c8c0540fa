//go:build gpu

package selfcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/kernel/gpu/libcuda"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// seen is a checkpoint that counts its reads of either kind and may act before one.
type seen struct {
	nn.StoredReader
	stored, floats atomic.Int64
	before         func(name string, from int) error
}

func (s *seen) Float32s(name string, from int, dst []float32) error {
	s.floats.Add(1)
	if s.before != nil {
		if err := s.before(name, from); err != nil {
			return err
		}
	}
	return s.StoredReader.Float32s(name, from, dst)
}

func (s *seen) Stored(name string) (kernel.DType, func([]byte, int) error, bool) {
	d, read, ok := s.StoredReader.Stored(name)
	return d, func(dst []byte, from int) error {
		s.stored.Add(1)
		if s.before != nil {
			if err := s.before(name, from); err != nil {
				return err
			}
		}
		return read(dst, from)
	}, ok
}

// largeSizes are linear layers of several pieces, enough of them to need more than one round in an arena of few
// tokens if they are kept dequantised, and one that is too large for it then.
var largeSizes = slices.Concat(loadSizes, [][2]int{{1024, 1024}, {1024, 1024}, {1024, 1024}, {1024, 1024}, {1024, 1024},
	{3001, 2048}})

func largeNet(t testing.TB, on graph.Machine, d weights.DType, kind loadKind) (*nn.Net, *graph.Plan, *weights.File) {
	t.Helper()
	n, out, file, err := loadNet(d, kind, largeSizes)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := on.Compile(n.Builder, out...)
	if err != nil {
		t.Fatal(err)
	}
	return n, plan, file
}

func loadTwice(t *testing.T, on graph.Machine, n *nn.Net, plan *graph.Plan, r nn.Reader) {
	t.Helper()
	got, want, err := loadedBytes(context.Background(), on, n, plan, r)
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s: byte %d of %d differs from the host's", name, firstDifference(got[name], want[name]),
				len(want[name]))
		}
	}
}

// TestGPULoadEqualsHost: weights converted, packed and dequantised on the device are those of the host, to the bit.
func TestGPULoadEqualsHost(t *testing.T) {
	on := gputest.Open(t)
	for _, d := range loadTypes {
		for _, kind := range loadKinds(d) {
			n, plan, file := largeNet(t, on, d, kind)
			if kind.already {
				from, err := packFile(session.Reader(file), n, *kind.store)
				if err != nil {
					t.Fatal(err)
				}
				loadTwice(t, on, n, plan, from)
				continue
			}
			loadTwice(t, on, n, plan, session.Reader(file))
			m, err := on.NewStore(plan)
			if err != nil {
				t.Fatal(err)
			}
			r := &seen{StoredReader: session.Reader(file)}
			if err := n.Load(context.Background(), r, m, 16); err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			// Nothing is read as float32, but float64, what the host packs and the weight that the arena is too small
			// for.
			onHost := kind.store != nil && kind.store.Type == "int8"
			stored, floats := r.stored.Load(), r.floats.Load()
			t.Logf("%v %v: %d reads as stored, %d as float32", d, kind, stored, floats)
			if d != weights.F64 && !onHost && stored < int64(len(largeSizes)) ||
				(floats > 0) != (d == weights.F64 || kind.dequantised || onHost) {
				t.Errorf("%v %v: %d reads as stored, %d as float32", d, kind, stored, floats)
			}
		}
	}
}

// TestGPULoadPrecisions is the same for small weights and each type that a device may store them as.
func TestGPULoadPrecisions(t *testing.T) {
	gputest.Need(t)
	for _, p := range []kernel.Precision{kernel.PrecisionBF16, kernel.PrecisionFP16, kernel.PrecisionTF32,
		kernel.PrecisionFP32} {
		on, err := graph.NewGPU(0, 0, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range loadTypes {
			for _, kind := range loadKinds(d) {
				results, err := checkLoad(context.Background(), on, d, kind)
				if err != nil {
					t.Errorf("%v: %v", p, err)
				}
				for _, r := range results {
					if r.Status != StatusPass {
						t.Errorf("%v: %s: %s", p, r.Case, r.Reason)
					}
				}
			}
		}
		if err := on.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGPULoadShards: a model of two shards in each type, packed and dequantised, against the host; the memory that is
// free while it loads is never less than in the step.
func TestGPULoadShards(t *testing.T) {
	on := gputest.Open(t)
	d, err := gpu.Open(0) // the machine's own context, counted once more
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // for reading only
	free := func() int64 {
		f, _, err := d.Free()
		if err != nil {
			t.Error(err)
		}
		return f
	}
	for _, kind := range []weights.DType{weights.BF16, weights.F16, weights.F32} {
		for _, dequantised := range []bool{false, true} {
			b := stories(t)
			shards := session.Reader(inShards(t, b, kind))
			scheme := quant.Default()
			lora := adapter.Default()
			lora.TargetModules = adapter.Targets{adapter.AllLinear}
			nw := network(t, b, kernel.F32, &scheme, &lora)
			nw.Layout.Dequantised = dequantised
			s := session.Shape{Tokens: 256, Sequences: 1, MaxLen: 256}
			planned, err := step.Plan(nw, s, train.Default().Step(objective.Of(objective.Default, objective.Config{})),
				step.Summing{}, on)
			if err != nil {
				t.Fatal(err)
			}
			loadTwice(t, on, planned.Net, planned.Plan, shards)
			m, err := on.NewStore(planned.Plan)
			if err != nil {
				t.Fatal(err)
			}
			after, least := free(), int64(math.MaxInt64)
			var mu = make(chan struct{}, 1)
			r := &seen{StoredReader: shards, before: func(string, int) error {
				mu <- struct{}{}
				least = min(least, free())
				<-mu
				return nil
			}}
			if err := planned.Net.Load(context.Background(), r, m, 16); err != nil {
				t.Fatal(err)
			}
			loaded := free()
			if _, err := on.Bind(planned.Plan, m); err != nil {
				t.Fatal(err)
			}
			bound := free()
			t.Logf("%v dequantised %v: free after the store %d, while loading %+d, after %+d, bound %+d", kind,
				dequantised, after, least-after, loaded-after, bound-after)
			if least != after || loaded != after {
				t.Errorf("%v dequantised %v: loading takes memory besides the plan's: %d bytes free before, %d while "+
					"it loads, %d after", kind, dequantised, after, least, loaded)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// inShards writes a model's weights as numbers of another type into two shards and opens them.
func inShards(t testing.TB, b *session.Base, d weights.DType) *weights.Set {
	t.Helper()
	var all []weights.Tensor
	var total int64
	for _, name := range b.Weights.Names() {
		x, _ := b.Weights.Tensor(name)
		v := make([]float32, x.Len())
		if err := weights.Float32s(x, v); err != nil {
			t.Fatal(err)
		}
		y, err := weights.FromFloat32s(name, d, x.Shape, v)
		if err != nil {
			t.Fatal(err)
		}
		all, total = append(all, y), total+int64(len(y.Data))
	}
	dir := t.TempDir()
	if err := weights.WriteDir(dir, all, nil, total*2/3, nil); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.safetensors")); len(files) != 2 {
		t.Fatalf("%d shards, want 2", len(files))
	}
	set, err := weights.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() }) //nolint:errcheck // read only
	return set
}

// TestGPULoadErrors: what goes wrong is said as on the host, and leaves no goroutine behind.
func TestGPULoadErrors(t *testing.T) {
	on := gputest.Open(t)
	n, plan, file := largeNet(t, on, weights.F32, loadKind{store: &packedStores[1]})
	whole := session.Reader(file)
	m, err := on.NewStore(plan)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // what was loaded is what matters
	if err := n.Load(context.Background(), whole, m, 16); err != nil {
		t.Fatal(err)
	}
	threads := runtime.NumGoroutine()
	check := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		for range 100 {
			if runtime.NumGoroutine() <= threads {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: %d goroutines, %d before", what, runtime.NumGoroutine(), threads)
	}

	// A number that is not finite, in the middle of a weight of several pieces.
	for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
		var all []weights.Tensor
		for _, name := range file.Names() {
			x, _ := file.Tensor(name)
			if name == "linear7.weight" {
				v := make([]float32, x.Len())
				if err := weights.Float32s(x, v); err != nil {
					t.Fatal(err)
				}
				v[700*1024+5] = float32(bad)
				if x, err = weights.FromFloat32s(name, weights.F32, x.Shape, v); err != nil {
					t.Fatal(err)
				}
			}
			all = append(all, x)
		}
		raw, err := weights.Encode(all, nil)
		if err != nil {
			t.Fatal(err)
		}
		spoiled, err := weights.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		host := n.Load(context.Background(), session.Reader(spoiled), onHost{m}, 4)
		check("not finite on the host", host, fmt.Sprintf("load linear7.weight: quantise a matrix [1024,1024]: row "+
			"700 column 5 is %v; a frozen weight must be finite", bad))
		check("not finite", n.Load(context.Background(), session.Reader(spoiled), m, 16), host.Error())
	}

	// A file that cannot be read to its end: the earliest piece's error of each weight, whatever the order.
	broken := errors.New("input/output error")
	r := &seen{StoredReader: whole, before: func(name string, from int) error {
		if (name == "linear8.weight" || name == "linear9.weight") && from > 0 {
			return fmt.Errorf("read %s at %d: %w", name, from, broken)
		}
		return nil
	}}
	var first string
	for range 3 {
		err := n.Load(context.Background(), r, m, 16)
		check("unreadable", err, "load linear8.weight: read linear8.weight at ")
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "load linear8.weight: read linear8.weight at ") ||
			first != "" && err.Error() != first {
			t.Errorf("unreadable: %v, before %s", err, first)
		}
		first = err.Error()
	}

	// Interrupted: no piece is begun afterwards.
	ctx, stop := context.WithCancel(context.Background())
	var late atomic.Int64
	r = &seen{StoredReader: whole, before: func(string, int) error {
		if late.Add(1) == 5 {
			stop()
		}
		return nil
	}}
	check("interrupted", n.Load(ctx, r, m, 16), context.Canceled.Error())
	if late.Load() > 5+16 {
		t.Errorf("%d pieces were read after the interruption", late.Load()-5)
	}

	// A device that fails.
	for _, f := range []struct {
		call string
		code int
		want string
	}{{"cuMemHostAlloc", 2, "host memory"}, {"cuStreamCreate", 2, "make a stream"},
		{"cuMemcpyHtoDAsync_v2", 700, "copy to the device"},
		{"cuLaunchKernel", 719, "cuLaunchKernel"}, {"cuEventRecord", 700, "record an event"},
		{"cuStreamSynchronize", 700, "wait for the stream"}} {
		restore, err := libcuda.Fail(f.call, f.code)
		if err != nil {
			t.Fatal(err)
		}
		err = n.Load(context.Background(), whole, m, 16)
		restore()
		check(f.call, err, f.want)
	}
	if err := n.Load(context.Background(), whole, m, 16); err != nil {
		t.Errorf("after all that: %v", err)
	}
}
