//go:build gpu && linux

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// BenchmarkLogProbs prints the time of log-probabilities and their gradient beside that of the cross-entropy, whole
// with their GEMMs, and how far the gradients of both are apart where they are the same. Run with -test.benchtime=1x.
func BenchmarkLogProbs(b *testing.B) {
	if n, reason := gpu.Devices(); n == 0 {
		if os.Getenv("TRAINER_GPU") == "require" {
			b.Fatalf("TRAINER_GPU=require: %s", reason)
		}
		b.Skip(reason)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportMetric(0, "ns/op")
	for _, s := range [][3]int{{8192, 4096, 128256}, {4096, 2048, 32000}} {
		if err := benchLogProbs(s[0], s[1], s[2]); err != nil {
			b.Fatal(err)
		}
	}
}

// bench is device memory that kernels are bound in.
type bench struct {
	g     *kernel.GPU
	arena *gpu.Arena
	used  int64
}

func (b *bench) tensor(d kernel.DType, shape ...int) kernel.DeviceTensor {
	t := kernel.DeviceTensor{Type: kernel.T(d, shape...), Ptr: b.arena.Base.Add(b.used)}
	b.used += (t.Bytes() + 255) &^ 255
	return t
}

// bind makes a kernel's outputs and its scratch, and returns the outputs and the work.
func (b *bench) bind(k kernel.OnGPU, in ...kernel.DeviceTensor) ([]kernel.DeviceTensor, func() error, error) {
	types, stored := make([]kernel.Type, len(in)), make([]kernel.DType, len(in))
	for i, x := range in {
		types[i], stored[i] = x.Type, x.DType
		if x.DType == kernel.BF16 {
			types[i].DType = kernel.F32 // as the graph is typed
		}
	}
	outTypes, err := k.Shape(types)
	if err != nil {
		return nil, nil, err
	}
	_, outStored := k.Stored(stored)
	out := make([]kernel.DeviceTensor, len(outTypes))
	for i, t := range outTypes {
		out[i] = b.tensor(b.g.Precision.Stored(outStored[i]), t.Shape...)
	}
	if s, ok := k.(kernel.ScratchOnGPU); ok {
		for i := range in {
			types[i] = in[i].Type
		}
		scratch := s.ScratchGPU(types, nil, b.g.Device.SM())
		b.g.Scratch = b.tensor(kernel.U8, int(scratch)).Ptr
	}
	work, err := k.GPU(b.g, in, out)
	return out, work, err
}

func benchLogProbs(M, C, V int) (err error) {
	d, err := gpu.Open(0)
	if err != nil {
		return err
	}
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	blas, err := gpu.OpenBLAS("")
	if err != nil {
		return err
	}
	arena, err := d.NewArena("bench", 16<<30)
	if err != nil {
		return err
	}
	b := &bench{g: &kernel.GPU{Device: d, Stream: s, BLAS: blas, Precision: kernel.PrecisionBF16}, arena: arena}
	defer func() { err = errors.Join(err, arena.Free(), b.g.Close(), s.Close(), d.Close()) }()
	if b.g.Algorithms, err = gpu.OpenAlgorithms("", d.Name, blas.Version); err != nil {
		return err
	}

	x, w := b.tensor(kernel.BF16, M, C), b.tensor(kernel.BF16, V, C)
	labels, scale, weights := b.tensor(kernel.I32, M), b.tensor(kernel.F32, 1), b.tensor(kernel.F32, 2, M)
	r := rand.New(rand.NewPCG(1, 2))
	id, weight := make([]int32, M), make([]float32, 2*M)
	for i := range id {
		id[i], weight[i], weight[M+i] = int32(r.IntN(V)), -1/float32(M), 0.5/float32(M)
	}
	if err := errors.Join(fillNormal(r, x, 1), fillNormal(r, w, 0.05), gpu.Upload(labels.Ptr, id),
		gpu.Upload(scale.Ptr, []float32{1 / float32(M)}), gpu.Upload(weights.Ptr, weight)); err != nil {
		return err
	}
	one := weights
	one.Type = kernel.T(kernel.F32, M)

	const chunk = 1024
	type timed struct {
		name string
		work func() error
		took []time.Duration
	}
	var all []*timed
	var loss, slopes []kernel.DeviceTensor // gradients that must be the same
	for _, grad := range []bool{false, true} {
		out, work, err := b.bind(kernel.LinearCrossEntropy{Chunk: chunk, Grad: grad}, x, w, labels, scale)
		if err != nil {
			return err
		}
		all, loss = append(all, &timed{name: fmt.Sprintf("cross-entropy, gradient %v", grad), work: work}), out
		for entropy, name := range []string{"", ", entropies", ", entropies with gradient"} {
			k := kernel.LinearLogProbs{Chunk: chunk, Grad: grad, Entropy: kernel.Entropy(entropy)}
			out, work, err := b.bind(k, x, w, labels)
			if err != nil {
				return err
			}
			if grad {
				both := k.Entropy == kernel.EntropyDifferentiable
				in := []kernel.DeviceTensor{labels, one, out[1]}
				if both {
					in = []kernel.DeviceTensor{labels, weights, out[1], out[2]}
				}
				dx, back, err := b.bind(kernel.LinearLogProbsGrad{Entropy: both}, in...)
				if err != nil {
					return err
				}
				forward := work
				work = func() error { return errors.Join(forward(), back()) }
				if entropy == 0 {
					slopes = dx
				}
			}
			all = append(all, &timed{name: fmt.Sprintf("log-probabilities, gradient %v%s", grad, name), work: work})
		}
	}
	begin, err := d.NewEvent()
	if err != nil {
		return err
	}
	end, err := d.NewEvent()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, begin.Close(), end.Close()) }()
	const rounds, calls = 6, 3
	for round := range rounds { // one after the other in every round, so that clocks and heat are shared
		for _, t := range all {
			if err := begin.Record(s); err != nil {
				return err
			}
			for range calls {
				if err := t.work(); err != nil {
					return err
				}
			}
			if err := errors.Join(end.Record(s), end.Synchronize()); err != nil {
				return err
			}
			took, err := end.Since(begin)
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				t.took = append(t.took, took/calls)
			}
		}
	}
	fmt.Printf("%s, %d rows of %d, vocabulary %d, %d at a time\n", d.Properties, M, C, V, chunk)
	for _, t := range all {
		slices.Sort(t.took)
		fmt.Printf("%-60s %9.3f ms (%.3f to %.3f)\n", t.name, ms(t.took[len(t.took)/2]), ms(t.took[0]),
			ms(t.took[len(t.took)-1]))
	}
	apart, err := distanceOf(loss[1], slopes[0])
	fmt.Printf("gradients of cross-entropy and log-probabilities: %.2e apart (bf16 rounds by 1.6e-03)\n", apart)
	return err
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// fillNormal fills a tensor of bf16 with normally distributed numbers, repeated after a million.
func fillNormal(r *rand.Rand, t kernel.DeviceTensor, deviation float64) error {
	v := make([]uint16, min(t.Elems(), 1<<20+7))
	for i := range v {
		v[i] = kernel.ToBF16(float32(r.NormFloat64() * deviation))
	}
	for at := 0; at < t.Elems(); at += len(v) {
		if err := gpu.Upload(t.Ptr.Add(int64(2*at)), v[:min(len(v), t.Elems()-at)]); err != nil {
			return err
		}
	}
	return nil
}

// distanceOf returns |a - b| / |b| of tensors of bf16.
func distanceOf(a, b kernel.DeviceTensor) (float64, error) {
	va, vb := make([]uint16, a.Elems()), make([]uint16, b.Elems())
	if err := errors.Join(gpu.Download(va, a.Ptr), gpu.Download(vb, b.Ptr)); err != nil {
		return 0, err
	}
	var e, n float64
	for i := range va {
		x, y := float64(kernel.FromBF16(va[i])), float64(kernel.FromBF16(vb[i]))
		e, n = e+(x-y)*(x-y), n+y*y
	}
	return math.Sqrt(e / n), nil
}
