package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

// packedAs returns a random weight [n,k], stored in any way; with the table of CUDA's scales one scale is the lowest.
func packedAs(t testing.TB, n, k int, c quant.Config) quant.Packed {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(r.NormFloat64()) * (1 + float32(i/64%5))
	}
	from := c
	from.Map = quant.MapCPU
	p, err := quant.Quantise(w, n, k, from)
	if err != nil {
		t.Fatal(err)
	}
	if c.DoubleQuant {
		p.Table2 = c.Map.Table()
		p.AbsmaxU8[len(p.AbsmaxU8)/2] = 0
	}
	return p
}

// fourBits are the ways in which four bits are stored.
var fourBits = []quant.Config{
	{Bits: 4, Type: "nf4", BlockSize: 64}, {Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: true},
	{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: true, Map: quant.MapCUDA},
	{Bits: 4, Type: "fp4", BlockSize: 64}, {Bits: 4, Type: "fp4", BlockSize: 64, DoubleQuant: true},
}

// packedTensors returns the inputs of a GEMM with a packed weight after the first.
func packedTensors(p quant.Packed) []kernel.Tensor {
	in := []kernel.Tensor{tensorOf(p.Codes)}
	if !p.Nested() {
		return append(in, tensor32(p.Absmax, len(p.Absmax)))
	}
	return append(in, tensorOf(p.AbsmaxU8), tensor32(p.Absmax2, len(p.Absmax2)), tensor32([]float32{p.Offset}, 1))
}

func packedInputs(p quant.Packed) []kerneltest.Input { return inputsOf(packedTensors(p)) }

// inputsOf returns tensors of u8 and f32 as a case's inputs.
func inputsOf(tensors []kernel.Tensor) []kerneltest.Input {
	var in []kerneltest.Input
	for _, x := range tensors {
		if x.DType == kernel.U8 {
			in = append(in, kerneltest.Bytes(x.Bytes(), x.Shape...))
			continue
		}
		wide := make([]float64, x.Elems())
		for i, v := range x.F32() {
			wide[i] = float64(v)
		}
		in = append(in, kerneltest.Values(wide, x.Shape...).As(kernel.F32))
	}
	return in
}

func TestMatMulNF4(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 7}, {2, 64, 64}, {5, 33, 130}, {9, 130, 172}, {20, 40, 401},
		{20, 401, 37}} {
		for _, c := range fourBits {
			for _, transposed := range []bool{false, true} {
				k := kernel.MatMulNF4{N: s[1], K: s[2], Nested: c.DoubleQuant, Transposed: transposed, Map: c.Map,
					FP4: c.Type == "fp4"}
				width := k.K
				if k.Transposed {
					width = k.N
				}
				name := fmt.Sprintf("%v nested %v transposed %v", s, k.Nested, k.Transposed)
				if k.FP4 || k.Map != quant.MapCPU {
					name += fmt.Sprintf(" %s map %d", c.Type, c.Map)
				}
				cases = append(cases, kerneltest.Case{
					Name: name, Kernel: k, Bound: 1e-6,
					In: append([]kerneltest.Input{kerneltest.Normal(s[0], width)},
						packedInputs(packedAs(t, k.N, k.K, c))...),
				})
			}
		}
	}
	kerneltest.Run(t, cases...)

	types := []kernel.Type{kernel.T(kernel.F32, 2, 64), kernel.T(kernel.U8, 32*64), kernel.T(kernel.F32, 64)}
	for what, k := range map[string]kernel.MatMulNF4{
		"no rows":          {N: 0, K: 64},
		"negative columns": {N: 64, K: -64},
		"too large":        {N: 1 << 40, K: 1 << 40},
	} {
		if _, err := k.Shape(types); err == nil {
			t.Errorf("%s: %+v is accepted", what, k)
		}
	}
	if _, err := (kernel.MatMulNF4{N: 64, K: 64}).Shape(types); err != nil {
		t.Error(err)
	}
}

// The GEMM with the packed weight equals the one with the weight dequantised first, bit for bit, in both
// directions and when the scales arrive after binding: in every scheme.
func TestPackedEqualsDequantised(t *testing.T) {
	for _, s := range [][3]int{{1, 64, 96}, {4, 33, 130}, {37, 192, 576}, {128, 401, 96}} {
		for _, c := range append(fourBits[:len(fourBits):len(fourBits)], quant.DefaultOf("int8")) {
			for _, transposed := range []bool{false, true} {
				m, n, k := s[0], s[1], s[2]
				p := packedAs(t, n, k, c)
				w := make([]float32, n*k)
				p.Dequantise(w)
				width := k
				packed := kernel.Packed[c.Type].MatMul(n, k, c)
				if transposed {
					width = n
					packed = packed.(kernel.Differentiable).Grads().Calls[0].Kernel
				}
				x := kernel.NewTensor(kernel.T(kernel.F32, m, width), kernel.Alloc(int64(4*m*width)))
				r := rand.New(rand.NewPCG(1, 2))
				for i := range x.F32() {
					x.F32()[i] = float32(r.NormFloat64())
				}
				want := apply(t, kernel.MatMul{TransB: !transposed}, x, tensor32(w, n, k))[0]

				late := packedTensors(p)
				in := []kernel.Tensor{x}
				for _, l := range late {
					in = append(in, kernel.NewTensor(l.Type, kernel.Alloc(l.Type.Bytes())))
				}
				run, out := work(t, 2, packed, in...)
				for i, l := range late {
					copy(in[i+1].Bytes(), l.Bytes())
				}
				run()
				if !slices.Equal(out[0].Bytes(), want.Bytes()) {
					t.Errorf("%v %+v transposed %v: not the GEMM with the dequantised weight", s, c, transposed)
				}
			}
		}
	}
}

// The GEMMs of one layer of SmolLM2-135M at 128 tokens, beside the same GEMM in plain float32.
func BenchmarkMatMulNF4(b *testing.B) {
	const m = 128
	for _, s := range [][2]int{{576, 576}, {192, 576}, {1536, 576}, {576, 1536}} {
		n, k := s[0], s[1]
		p := packedAs(b, n, k, quant.Default())
		w := make([]float32, n*k)
		p.Dequantise(w)
		for _, transposed := range []bool{false, true} {
			width, name := k, fmt.Sprintf("%d-%d/forward", k, n)
			if transposed {
				width, name = n, fmt.Sprintf("%d-%d/backward", k, n)
			}
			x := kernel.NewTensor(kernel.T(kernel.F32, m, width), kernel.Alloc(int64(4*m*width)))
			for i := range x.F32() {
				x.F32()[i] = float32(i%17) - 8
			}
			packed, _ := work(b, 0, kernel.MatMulNF4{N: n, K: k, Nested: true, Transposed: transposed},
				append([]kernel.Tensor{x}, packedTensors(p)...)...)
			dense, _ := work(b, 0, kernel.MatMul{TransB: !transposed}, x, tensor32(w, n, k))
			for kind, run := range map[string]func(){"nf4": packed, "f32": dense} {
				b.Run(name+"/"+kind, func(b *testing.B) {
					for b.Loop() {
						run()
					}
					b.ReportMetric(2*m*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

func TestDequantisePacked(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {5, 7}, {64, 64}, {33, 130}, {401, 37}} {
		for _, c := range append(fourBits[:len(fourBits):len(fourBits)], quant.DefaultOf("int8")) {
			p := packedAs(t, s[0], s[1], c)
			var in []kerneltest.Input
			var tensors []kernel.Tensor
			for _, part := range c.Parts(s[0], s[1]) {
				if part.Floats == nil {
					in, tensors = append(in, kerneltest.Bytes(part.Bytes(&p), part.Len)),
						append(tensors, tensorOf(part.Bytes(&p)))
					continue
				}
				var wide []float64
				for _, v := range part.Floats(&p) {
					wide = append(wide, float64(v))
				}
				in = append(in, kerneltest.Values(wide, part.Len).As(kernel.F32))
				tensors = append(tensors, tensor32(part.Floats(&p), part.Len))
			}
			at := func(d kernel.DType) kernel.Kernel {
				return kernel.Packed[c.Type].Dequantise(s[0], s[1], c, d)
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%v %s nested %v map %d", s, c.Type, c.DoubleQuant,
				c.Map), At: at, Bound: 1e-12, In: in})
			want := make([]float32, p.Len())
			p.Dequantise(want)
			for _, d := range []kernel.DType{kernel.F32, kernel.F64} {
				got := apply(t, at(d), tensors...)[0]
				for i, w := range want {
					if d == kernel.F32 && got.F32()[i] != w || d == kernel.F64 && got.F64()[i] != float64(w) {
						t.Fatalf("%v %+v as %v: element %d is another", s, c, d, i)
					}
				}
			}
		}
	}
}
