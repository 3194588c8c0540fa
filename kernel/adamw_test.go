package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAdamW(t *testing.T) {
	var cases []kerneltest.Case
	for _, n := range []int{1, 5, 3<<13 + 1} {
		for _, decay := range []float64{0, 0.1} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%d decay %v", n, decay), Bound: 4e-7,
				Kernel: kernel.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay},
				In: []kerneltest.Input{
					kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Uniform(0.01, 2, n),
					kerneltest.Values([]float64{3, 0.3}, 2), kerneltest.Values([]float64{1e-2, 0.271, 0.002997, 0}, 4),
				},
			})
		}
	}
	kerneltest.Run(t, cases...)
}

// TestAdamWWithoutSkippedSteps: the seventh step after two skipped ones is the fifth.
func TestAdamWWithoutSkippedSteps(t *testing.T) {
	const n, beta1, beta2 = 9, 0.9, 0.95
	hyper := func(step uint32) []float64 {
		return []float64{1e-2, 1 - math.Pow(beta1, float64(step)), 1 - math.Pow(beta2, float64(step)), float64(math.Float32frombits(step))}
	}
	k := kernel.AdamW{Beta1: beta1, Beta2: beta2, Eps: 1e-6, WeightDecay: 0.1}
	step := func(k kernel.AdamW, factor float64, hyper []float64, more ...kernel.Tensor) []float64 {
		in := []kernel.Tensor{}
		for i, v := range [][]float64{normal64(1, n), normal64(2, n), normal64(3, n), normal64(4, n)} {
			if i == 3 {
				for j := range v {
					v[j] *= v[j]
				}
			}
			in = append(in, tensor64(kernel.T(kernel.F64, n), v))
		}
		in = append(in, tensor64(kernel.T(kernel.F64, 2), []float64{3, factor}), tensor64(kernel.T(kernel.F64, 4), hyper))
		var all []float64
		for _, y := range apply(t, k, append(in, more...)...) {
			all = append(all, y.F64()...)
		}
		return all
	}
	scaled := k
	scaled.Scaled = true
	want := step(k, 0.5, hyper(5))
	if got := step(scaled, 0.5, hyper(7), tensor64(kernel.T(kernel.F64, 3), []float64{1024, 1, 2})); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if other := step(k, 0.5, hyper(7)); slices.Equal(other, want) {
		t.Error("the step's number makes no difference")
	}
}

// Six steps of torch.optim.AdamW.
func TestAdamWIsTorchs(t *testing.T) {
	g := golden.Open(t, golden.Path(t, "schedule/adamw.safetensors"))
	for _, c := range []struct {
		tag   string
		dtype kernel.DType
		bound float64
	}{{"f32", kernel.F32, 3e-7}, {"f64", kernel.F64, 1e-15}} {
		k := kernel.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-6, WeightDecay: 0.1}
		var in []kernel.Tensor
		for _, n := range []int{33, 33, 33, 33, 2, 4} {
			typ := kernel.T(c.dtype, n)
			in = append(in, kernel.NewTensor(typ, kernel.Alloc(typ.Bytes())))
		}
		set := func(x kernel.Tensor, v []float64) {
			for i, v := range v {
				if c.dtype == kernel.F64 {
					x.F64()[i] = v
				} else {
					x.F32()[i] = float32(v)
				}
			}
		}
		near := func(what string, x kernel.Tensor, want []float64) {
			t.Helper()
			for i, w := range want {
				got := 0.0
				if c.dtype == kernel.F64 {
					got = x.F64()[i]
				} else {
					got = float64(x.F32()[i])
				}
				if math.Abs(got-w) > c.bound*math.Max(1, math.Abs(w)) {
					t.Fatalf("%s: %s, element %d is %v, torch has %v", c.tag, what, i, got, w)
				}
			}
		}
		set(in[0], g.Floats(c.tag+".param0"))
		set(in[4], []float64{0, 1})
		run, _ := work(t, 1, k, in...)
		grads := g.Floats("grads")
		for step := 1; step <= 6; step++ {
			set(in[1], grads[(step-1)*33:step*33])
			set(in[5], []float64{1e-2, 1 - math.Pow(k.Beta1, float64(step)), 1 - math.Pow(k.Beta2, float64(step)), 0})
			run()
			near(fmt.Sprintf("parameter after step %d", step), in[0], g.Floats(fmt.Sprintf("%s.step%d.param", c.tag, step)))
		}
		near("first moment", in[2], g.Floats(c.tag+".exp_avg"))
		near("second moment", in[3], g.Floats(c.tag+".exp_avg_sq"))
	}
}

// One call over many elements gives each the bits that it gets alone, where no vector form reaches.
func TestAdamWVectorsAreExact(t *testing.T) {
	const n = 65
	k := kernel.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}
	r := rand.New(rand.NewPCG(3, 4))
	var in [4][]float32
	for i := range in {
		for range n {
			in[i] = append(in[i], float32(math.Abs(r.NormFloat64())*math.Pow(10, float64(r.IntN(12)-8))))
		}
	}
	in[3][7], in[1][7] = 0, 0
	clip, hyper := tensor32([]float32{2, 0.5}, 2), tensor32([]float32{1e-3, 0.19, 0.001999, 0}, 4)
	at := func(lo, hi int) []kernel.Tensor {
		var x []kernel.Tensor
		for _, v := range in {
			x = append(x, tensor32(v[lo:hi], hi-lo))
		}
		return append(x, clip, hyper)
	}
	all := apply(t, k, at(0, n)...)
	for i := range n {
		for j, one := range apply(t, k, at(i, i+1)...) {
			if got, want := all[j].F32()[i], one.F32()[0]; got != want {
				t.Fatalf("output %d, element %d is %v, alone %v", j, i, got, want)
			}
		}
	}
}
