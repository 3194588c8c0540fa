package kernel_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
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
		return []float64{1e-2, 1 - math.Pow(beta1, float64(step)), 1 - math.Pow(beta2, float64(step)),
			float64(math.Float32frombits(step))}
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
		in = append(in, tensor64(kernel.T(kernel.F64, 2), []float64{3, factor}),
			tensor64(kernel.T(kernel.F64, 4), hyper))
		var all []float64
		for _, y := range apply(t, k, append(in, more...)...) {
			all = append(all, y.F64()...)
		}
		return all
	}
	scaled := k
	scaled.Scaled = true
	want := step(k, 0.5, hyper(5))
	if got := step(scaled, 0.5, hyper(7), tensor64(kernel.T(kernel.F64, 3), []float64{1024, 1, 2})); !slices.Equal(got,
		want) {
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
			near(fmt.Sprintf("parameter after step %d", step), in[0],
				g.Floats(fmt.Sprintf("%s.step%d.param", c.tag, step)))
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

// TestAdamW8Bit: tensors of one number, of a block and a bit, of several blocks; at odd places, and without some of the
// kinds.
func TestAdamW8Bit(t *testing.T) {
	var cases []kerneltest.Case
	for _, c := range []struct {
		n         int
		blocks    [][2]int32
		quantised int
	}{{1, [][2]int32{{0, 1}}, 1}, {300, [][2]int32{{1, 256}, {257, 20}, {280, 19}}, 2}, {40, [][2]int32{{0, 40}}, 0},
		{700, [][2]int32{{0, 256}, {256, 256}, {512, 188}}, 3}} {
		q, r := max(c.quantised, 1), max(len(c.blocks)-c.quantised, 1)
		var table []int32
		for _, b := range c.blocks {
			table = append(table, b[0], b[1])
		}
		codes := make([]byte, 256*q)
		for i := range codes {
			codes[i] = byte(i*37 + 5)
		}
		for _, decay := range []float64{0, 0.1} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%d decay %v", c.n, decay), Bound: 1e-6,
				Kernel: kernel.AdamW8Bit{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay,
					Quantised: c.quantised},
				In: []kerneltest.Input{
					kerneltest.Normal(c.n), kerneltest.Normal(c.n), kerneltest.Bytes(codes, 256*q),
					kerneltest.Bytes(codes, 256*q),
					kerneltest.Uniform(0.1, 2, q), kerneltest.Uniform(0.1, 2, q), kerneltest.Normal(256 * r),
					kerneltest.Uniform(0.01, 2, 256*r),
					kerneltest.Ints(table, len(c.blocks), 2), kerneltest.Values([]float64{3, 0.3}, 2),
					kerneltest.Values([]float64{1e-2, 0.271, 0.002997, 0}, 4),
				},
			})
		}
	}
	kerneltest.Run(t, cases...)
}

// TestDeviceMapsAreQuants: the numbers in the device code are those of package quant.
func TestDeviceMapsAreQuants(t *testing.T) {
	source, err := os.ReadFile("cuda/dynamic_map.cuh")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*quant.DynamicMap{"signed_map": quant.DynamicSigned,
		"unsigned_map": quant.DynamicUnsigned} {
		_, rest, found := bytes.Cut(source, []byte(name+"[256] = {"))
		list, _, ended := bytes.Cut(rest, []byte("}"))
		numbers := regexp.MustCompile(`[^\s,]+`).FindAllString(string(list), -1)
		if !found || !ended || len(numbers) != 256 {
			t.Fatalf("%s: %d numbers", name, len(numbers))
		}
		for i, n := range numbers {
			x, err := strconv.ParseFloat(n[:len(n)-1], 32)
			if err != nil || float32(x) != m.Values[i] || n[len(n)-1] != 'f' {
				t.Errorf("%s[%d] is %s, want %v (%v)", name, i, n, m.Values[i], err)
			}
		}
	}
}

// momentsOf8 returns the inputs of AdamW8Bit over one tensor of p in 8 bits.
func momentsOf8(p []float32) (k kernel.AdamW8Bit, in []kernel.Tensor) {
	q := (len(p) + 255) / 256
	var table []int32
	for at := 0; at < len(p); at += 256 {
		table = append(table, int32(at), int32(min(256, len(p)-at)))
	}
	u8 := func() kernel.Tensor {
		return kernel.NewTensor(kernel.T(kernel.U8, 256*q), kernel.Alloc(int64(256*q)))
	}
	i32 := kernel.NewTensor(kernel.T(kernel.I32, q, 2), kernel.Alloc(int64(8*q)))
	copy(i32.I32(), table)
	zero := func(n int) kernel.Tensor { return tensor32(make([]float32, n), n) }
	return kernel.AdamW8Bit{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, Quantised: q}, []kernel.Tensor{
		tensor32(p, len(p)), zero(len(p)), u8(), u8(), zero(q), zero(q), zero(256), zero(256), i32,
		tensor32([]float32{1, 1}, 2), zero(4)}
}

// TestAdamW8BitExtremes: gradients from the least number to the largest leave nothing that is not finite, a block of
// zeros stays zero, a negative moment stays negative, and a clip factor that is not a number changes no byte.
func TestAdamW8BitExtremes(t *testing.T) {
	p := make([]float32, 1024)
	k, in := momentsOf8(p)
	run, _ := work(t, 1, k, in...)
	copy(in[10].F32(), []float32{1e-3, 0.1, 0.001, 0})
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		for i := range in[1].F32() {
			switch i / 256 {
			case 0:
				in[1].F32()[i] = math.SmallestNonzeroFloat32
			case 1:
				in[1].F32()[i] = float32(r.NormFloat64()) * 1e37
			case 2:
				in[1].F32()[i] = float32(math.Copysign(math.Pow(10, -float64(r.IntN(20))), r.NormFloat64()))
			}
		}
		run()
	}
	for o, name := range map[int]string{0: "parameter", 4: "absmax", 5: "absmax of squares"} {
		for i, x := range in[o].F32() {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("%s %d is %v", name, i, x)
			}
		}
	}
	if a := in[4].F32(); a[3] != 0 || a[0] != 0 || a[2] == 0 {
		t.Errorf("scales %v", a)
	}
	for i, c := range in[2].Bytes()[768:] {
		if c != 127 || in[3].Bytes()[768+i] != 0 || in[0].F32()[768+i] != 0 {
			t.Fatalf("number %d of a block without gradient: codes %d and %d, parameter %v", i, c, in[3].Bytes()[768+i],
				in[0].F32()[768+i])
		}
	}
	before := append(bytes.Clone(in[2].Bytes()), in[0].Bytes()...)
	in[9].F32()[1] = float32(math.NaN())
	run()
	if !bytes.Equal(before, append(bytes.Clone(in[2].Bytes()), in[0].Bytes()...)) {
		t.Error("a step without a clip factor changed something")
	}
	k, in = momentsOf8(make([]float32, 256))
	run, _ = work(t, 1, k, in...)
	copy(in[10].F32(), []float32{1e-3, 0.1, 0.001, 0})
	for i := range 256 {
		in[1].F32()[i] = -1e-12
	}
	in[1].F32()[0], in[1].F32()[1] = 1, 1e-12
	run()
	if c := in[2].Bytes(); c[0] != 255 || c[1] != 127 || c[2] != 126 || c[255] != 126 {
		t.Errorf("codes of a large, a small positive and small negative moments: %v", c[:3])
	}
}
