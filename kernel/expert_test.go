package kernel_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

// expertSizes are tokens, slots, experts, and a matrix's two sizes.
var expertSizes = [][5]int{{1, 1, 1, 1, 1}, {3, 2, 4, 5, 7}, {9, 2, 3, 64, 33}, {40, 4, 7, 24, 130}}

func TestExpertMatMul(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, source, starts := sorted(t, s[0], s[1], s[2])
		n, e := s[0]*s[1], s[2]
		first := kerneltest.Ints(starts, e+1)
		for _, stored := range []kernel.DType{0, kernel.BF16} {
			for _, transB := range []bool{false, true} {
				w, k := kerneltest.Normal(e*s[3], s[4]), kernel.ExpertMatMul{Experts: e, TransB: transB, Alpha: 0.5}
				if stored != 0 {
					w = w.As(stored)
				}
				width := s[3]
				if transB {
					width = s[4]
				}
				cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v stored %v transposed %v", s, stored,
					transB), Kernel: k, Bound: 1e-6,
					In: []kerneltest.Input{kerneltest.Normal(n, width), w, first}})
			}
		}
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(s, " gradient"),
			Kernel: kernel.ExpertWeightGrad{Experts: e}, Bound: 1e-6,
			In: []kerneltest.Input{kerneltest.Normal(n, s[3]), kerneltest.Normal(n, s[4]), first}},
			kerneltest.Case{Name: fmt.Sprint(s, " gathered gradient"),
				Kernel: kernel.ExpertWeightGradGathered{Experts: e, PerToken: s[1]}, Bound: 1e-6,
				In: []kerneltest.Input{kerneltest.Normal(n, s[3]), kerneltest.Normal(s[0], s[4]),
					kerneltest.Ints(source, n), first}})
	}
	kerneltest.Run(t, cases...)
	x, starts := kernel.T(kernel.F32, 6, 8), kernel.T(kernel.I32, 4)
	for what, in := range map[string][]kernel.Type{
		"rows of no expert": {x, kernel.T(kernel.F32, 25, 8), starts},
		"other depth":       {x, kernel.T(kernel.F32, 24, 9), starts},
		"other starts":      {x, kernel.T(kernel.F32, 24, 8), kernel.T(kernel.I32, 3)},
	} {
		if _, err := (kernel.ExpertMatMul{Experts: 3, TransB: true}).Shape(in); err == nil {
			t.Errorf("%s: %v is accepted", what, in)
		}
	}
}

// expertWeights returns matrices that stay packed, each by itself, and their parts one after the other.
func expertWeights(t testing.TB, experts, n, k int, scheme string, nested bool) (each []quant.Packed,
	parts []kernel.Tensor) {
	t.Helper()
	c := quant.DefaultOf(scheme)
	c.DoubleQuant = nested
	for e := range experts {
		w := normal32(uint64(e+1), n*k)
		p, err := quant.Quantise(w, n, k, c)
		if err != nil {
			t.Fatal(err)
		}
		each = append(each, p)
	}
	for i, first := range packedTensors(each[0]) {
		var raw []byte
		for _, p := range each {
			raw = append(raw, packedTensors(p)[i].Bytes()...)
		}
		x := zeros(first.DType, experts*first.Elems())
		copy(x.Bytes(), raw)
		parts = append(parts, x)
	}
	return each, parts
}

func schemeOf(fp4 bool) string {
	if fp4 {
		return "fp4"
	}
	return "nf4"
}

func TestExpertMatMulNF4(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		for _, k := range []kernel.ExpertMatMulNF4{{}, {Nested: true}, {Transposed: true},
			{Nested: true, Transposed: true}, {FP4: true}, {FP4: true, Nested: true, Transposed: true}} {
			k.Experts, k.N, k.K = s[2], s[3], s[4]
			width := k.K
			if k.Transposed {
				width = k.N
			}
			_, parts := expertWeights(t, k.Experts, k.N, k.K, schemeOf(k.FP4), k.Nested)
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v %s nested %v transposed %v", s, schemeOf(k.FP4),
				k.Nested, k.Transposed), Kernel: k, Bound: 1e-6,
				In: append([]kerneltest.Input{kerneltest.Normal(s[0]*s[1], width),
					kerneltest.Ints(starts, k.Experts+1)}, inputsOf(parts)...)})
		}
	}
	kerneltest.Run(t, cases...)
}

// TestExpertMatMulNF4Meaning: each expert's rows are what MatMulNF4 makes of them, to the bit.
func TestExpertMatMulNF4Meaning(t *testing.T) {
	const tokens, slots, experts, n, k = 13, 2, 5, 48, 40
	_, _, starts := sorted(t, tokens, slots, experts)
	for i := range 4 {
		nested, fp4 := i%2 == 1, i >= 2
		each, parts := expertWeights(t, experts, n, k, schemeOf(fp4), nested)
		x := f32s(normal32(3, tokens*slots*k), tokens*slots, k)
		in := append([]kernel.Tensor{x, i32s(starts)}, parts...)
		all := evaluate(t, kernel.ExpertMatMulNF4{Experts: experts, N: n, K: k, Nested: nested, FP4: fp4},
			in...)[0].F32()
		for e := range experts {
			from, to := int(starts[e]), int(starts[e+1])
			if from == to {
				continue
			}
			own := append([]kernel.Tensor{f32s(x.F32()[from*k:to*k], to-from, k)}, packedTensors(each[e])...)
			want := evaluate(t, kernel.MatMulNF4{N: n, K: k, Nested: nested, FP4: fp4}, own...)[0].F32()
			for i, w := range want {
				if got := all[from*n+i]; got != w {
					t.Fatalf("%s nested %v, expert %d: element %d is %v, alone %v", schemeOf(fp4), nested, e, i, got, w)
				}
			}
		}
	}
}

// TestExpertMatMulInt8: each expert's rows are what MatMulInt8 makes of them, to the bit.
func TestExpertMatMulInt8(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		for _, transposed := range []bool{false, true} {
			k := kernel.ExpertMatMulInt8{Experts: s[2], N: s[3], K: s[4], Transposed: transposed}
			width := k.K
			if transposed {
				width = k.N
			}
			each, parts := expertWeights(t, k.Experts, k.N, k.K, "int8", false)
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v int8 transposed %v", s, transposed), Kernel: k,
				Bound: 1e-6,
				In: append([]kerneltest.Input{kerneltest.Normal(s[0]*s[1], width),
					kerneltest.Ints(starts, k.Experts+1)}, inputsOf(parts)...)})
			x := f32s(normal32(3, s[0]*s[1]*width), s[0]*s[1], width)
			all := evaluate(t, k, append([]kernel.Tensor{x, i32s(starts)}, parts...)...)[0]
			n := all.Shape[1]
			for e := range k.Experts {
				from, to := int(starts[e]), int(starts[e+1])
				if from == to {
					continue
				}
				own := append([]kernel.Tensor{f32s(x.F32()[from*width:to*width], to-from, width)},
					packedTensors(each[e])...)
				want := evaluate(t, kernel.MatMulInt8{N: k.N, K: k.K, Transposed: transposed}, own...)[0].F32()
				if !slices.Equal(all.F32()[from*n:to*n], want) {
					t.Fatalf("%v transposed %v: expert %d is not what its matrix makes of its rows", s, transposed, e)
				}
			}
		}
	}
	kerneltest.Run(t, cases...)
}

// mxfp4Experts returns matrices in MXFP4, and the numbers that they stand for.
func mxfp4Experts(experts, n, k int) (codes, scales []byte, numbers []float32) {
	r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	codes, scales, numbers = make([]byte, experts*n*k/2), make([]byte, experts*n*k/quant.MXFP4Block),
		make([]float32, experts*n*k)
	for i := range codes {
		codes[i] = byte(r.UintN(256))
	}
	for i := range scales {
		scales[i] = byte(122 + r.UintN(6))
	}
	quant.MXFP4{Rows: experts * n, Cols: k, Codes: codes, Scales: scales}.DequantiseRange(numbers, 0, len(numbers))
	return codes, scales, numbers
}

func TestExpertMatMulMXFP4(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][5]int{{1, 1, 1, 1, 32}, {3, 2, 4, 5, 64}, {9, 2, 3, 64, 32}, {40, 4, 7, 24, 160}} {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		codes, scales, _ := mxfp4Experts(s[2], s[3], s[4])
		for _, transposed := range []bool{false, true} {
			k := kernel.ExpertMatMulMXFP4{Experts: s[2], N: s[3], K: s[4], Transposed: transposed}
			width := k.K
			if transposed {
				width = k.N
			}
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%v transposed %v", s, transposed), Kernel: k,
				Bound: 1e-6, In: []kerneltest.Input{
					kerneltest.Normal(s[0]*s[1], width), kerneltest.Ints(starts, k.Experts+1),
					kerneltest.Bytes(codes, len(codes)), kerneltest.Bytes(scales, len(scales))}})
		}
	}
	kerneltest.Run(t, cases...)
	x, starts := kernel.T(kernel.F32, 6, 64), kernel.T(kernel.I32, 4)
	bytes := func(n int) kernel.Type { return kernel.T(kernel.U8, n) }
	for what, in := range map[string][]kernel.Type{
		"codes of no matrix": {x, starts, bytes(3*40*32 - 1), bytes(3 * 40 * 2)},
		"too few scales":     {x, starts, bytes(3 * 40 * 32), bytes(3 * 40)},
		"other depth":        {kernel.T(kernel.F32, 6, 32), starts, bytes(3 * 40 * 32), bytes(3 * 40 * 2)},
	} {
		if _, err := (kernel.ExpertMatMulMXFP4{Experts: 3, N: 40, K: 64}).Shape(in); err == nil {
			t.Errorf("%s: %v is accepted", what, in)
		}
	}
	for _, k := range []kernel.ExpertMatMulMXFP4{{Experts: 3, N: 40, K: 48}, {Experts: 0, N: 40, K: 64},
		{Experts: 3, K: 64}} {
		if _, err := k.Shape([]kernel.Type{x, starts, bytes(3 * 40 * 32), bytes(3 * 40 * 2)}); err == nil {
			t.Errorf("%+v is accepted", k)
		}
	}
}

// TestExpertMatMulMXFP4Meaning: the product is ExpertMatMul's with the numbers that the codes stand for, which bf16
// has, to the bit.
func TestExpertMatMulMXFP4Meaning(t *testing.T) {
	const tokens, slots, experts, n, k = 13, 2, 5, 48, 96
	_, _, starts := sorted(t, tokens, slots, experts)
	codes, scales, numbers := mxfp4Experts(experts, n, k)
	w := zeros(kernel.BF16, experts*n, k)
	for i, v := range numbers {
		binary.LittleEndian.PutUint16(w.Bytes()[2*i:], uint16(math.Float32bits(v)>>16))
	}
	for _, transposed := range []bool{false, true} {
		width := k
		if transposed {
			width = n
		}
		x := f32s(normal32(3, tokens*slots*width), tokens*slots, width)
		got := evaluate(t, kernel.ExpertMatMulMXFP4{Experts: experts, N: n, K: k, Transposed: transposed}, x,
			i32s(starts), tensorOf(codes), tensorOf(scales))[0].F32()
		want := evaluate(t, kernel.ExpertMatMul{Experts: experts, TransB: !transposed}, x, w, i32s(starts))[0].F32()
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("transposed %v: element %d is %v, of the numbers %v", transposed, i, got[i], want[i])
			}
		}
	}
}

// TestGatheredGradient: the gradient of rows read where their tokens have them is that of the rows that GatherTokens
// makes, bit for bit, alone and onto what is there.
func TestGatheredGradient(t *testing.T) {
	for _, s := range expertSizes {
		rows, source, starts := sorted(t, s[0], s[1], s[2])
		n, e := s[0]*s[1], s[2]
		ints := func(x []int32, shape ...int) kernel.Tensor {
			y := zeros(kernel.I32, shape...)
			copy(y.I32(), x)
			return y
		}
		a, x := f32s(normal32(1, n*s[3]), n, s[3]), f32s(normal32(2, s[0]*s[4]), s[0], s[4])
		first, from := ints(starts, e+1), ints(source, n)
		gathered := evaluate(t, kernel.GatherTokens{}, x, ints(rows, s[0], s[1]), from)[0]
		want := evaluate(t, kernel.ExpertWeightGrad{Experts: e, Alpha: 0.5}, a, gathered, first)[0].F32()
		k := kernel.ExpertWeightGradGathered{Experts: e, PerToken: s[1], Alpha: 0.5}
		if got := evaluate(t, k, a, x, from, first)[0].F32(); !slices.Equal(got, want) {
			t.Errorf("%v: other numbers than of gathered rows", s)
		}
		if _, err := (kernel.ExpertWeightGradGathered{Experts: e, PerToken: s[1] + 1}).Shape([]kernel.Type{a.Type,
			x.Type, from.Type, first.Type}); err == nil {
			t.Errorf("%v: rows of other tokens are accepted", s)
		}
	}
}

// TestExpertUpdate: the update and what is added to are those of the kernels it stands for.
func TestExpertUpdate(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range expertSizes {
		_, _, starts := sorted(t, s[0], s[1], s[2])
		n, e, rank := s[0]*s[1], s[2], 3
		first := kerneltest.Ints(starts, e+1)
		for i := range 4 {
			transB, onto := i%2 == 1, i >= 2
			in, out, v := s[3], s[4], kerneltest.Normal(e*rank, s[4])
			if transB {
				in, out, v = s[4], s[3], kerneltest.Normal(e*s[3], rank)
			}
			low := kernel.ExpertMatMul{Experts: e, TransB: transB, Alpha: 0.75}
			_, parts := expertWeights(t, e, s[3], s[4], "nf4", true)
			for _, base := range []struct {
				kernel kernel.Kernel
				in     []kerneltest.Input
			}{
				{kernel.ExpertMatMul{Experts: e, TransB: transB},
					[]kerneltest.Input{kerneltest.Normal(e*s[3], s[4]).As(kernel.BF16), first}},
				{kernel.ExpertMatMulNF4{Experts: e, N: s[3], K: s[4], Nested: true, Transposed: !transB},
					append([]kerneltest.Input{first}, inputsOf(parts)...)},
			} {
				c := kerneltest.Case{Name: fmt.Sprintf("%v %s transposed %v onto %v", s, base.kernel.Name(), transB,
					onto), Bound: 1e-6,
					Kernel: kernel.ExpertUpdate{Base: base.kernel, Low: low, Onto: onto},
					In:     append([]kerneltest.Input{kerneltest.Normal(n, in)}, base.in...)}
				if onto {
					c.In = append(c.In, kerneltest.Normal(n, out))
				}
				c.In = append(c.In, kerneltest.Normal(n, rank), v)
				cases = append(cases, c)
			}
		}
	}
	kerneltest.Run(t, cases...)
}

// TestExpertUpdateMeaning: it is the sum of the two GEMMs.
func TestExpertUpdateMeaning(t *testing.T) {
	_, _, starts := sorted(t, 13, 2, 5)
	drawn := func(seed uint64, shape ...int) kernel.Tensor {
		return tensor32(normal32(seed, shape[0]*shape[1]), shape...)
	}
	x, w, u, v, first := drawn(1, 26, 40), drawn(2, 5*48, 40), drawn(3, 26, 8), drawn(4, 5*48, 8), i32s(starts)
	base, low := kernel.ExpertMatMul{Experts: 5, TransB: true},
		kernel.ExpertMatMul{Experts: 5, TransB: true, Alpha: 0.5}
	large, small := evaluate(t, base, x, w, first)[0].F32(), evaluate(t, low, u, v, first)[0].F32()
	for i, got := range evaluate(t, kernel.ExpertUpdate{Base: base, Low: low}, x, w, first, u, v)[0].F32() {
		if want := float64(large[i]) + float64(small[i]); !(math.Abs(float64(got)-want) <= 1e-5) {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

func TestExpertUpdateRefuses(t *testing.T) {
	base, low := kernel.ExpertMatMul{Experts: 3, TransB: true}, kernel.ExpertMatMul{Experts: 3, TransB: true, Alpha: 2}
	x, w, first, u, v := kernel.T(kernel.F32, 6, 8), kernel.T(kernel.F32, 15, 8), kernel.T(kernel.I32, 4),
		kernel.T(kernel.F32, 6, 2), kernel.T(kernel.F32, 15, 2)
	for _, c := range []struct {
		k    kernel.ExpertUpdate
		in   []kernel.Type
		want string
	}{
		{kernel.ExpertUpdate{Base: kernel.Add{}, Low: low}, []kernel.Type{x, w, first, u, v},
			"want a GEMM of experts without a factor"},
		{kernel.ExpertUpdate{Base: low, Low: low}, []kernel.Type{x, w, first, u, v},
			"want a GEMM of experts without a factor"},
		{kernel.ExpertUpdate{Base: base, Low: low}, []kernel.Type{x, w, first, u}, "takes 5 inputs, got 4"},
		{kernel.ExpertUpdate{Base: base, Low: low, Onto: true}, []kernel.Type{x, w, first, u, v},
			"takes 6 inputs, got 5"},
		{kernel.ExpertUpdate{Base: base, Low: low}, []kernel.Type{x, w, first, u, kernel.T(kernel.F32, 12, 2)},
			"is added to"},
		{kernel.ExpertUpdate{Base: base, Low: low, Onto: true},
			[]kernel.Type{x, w, first, kernel.T(kernel.F32, 6, 4), u, v}, "is added to"},
		{kernel.ExpertUpdate{Base: base, Low: low}, []kernel.Type{x, w, first, u, kernel.T(kernel.F32, 15, 3)},
			"update:"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v of %v: %v, want %q", c.k, c.in, err, c.want)
		}
	}
}
