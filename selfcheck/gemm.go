package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// gemmChecks are GEMMs, of numbers and of packed weights.
func gemmChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, K := range checkWidths {
			for _, N := range []int{8, 64, 172} {
				all = append(all, matMulChecks(n, M, N, K)...)
			}
		}
	}
	for _, M := range checkRows {
		for _, C := range checkWidths {
			all = append(all, streamOfGEMMs(n, M, C))
		}
	}
	for _, w := range [][2]int{{64, 64}, {172, 64}, {64, 172}, {576, 192}, {33, 40}} {
		for _, nested := range []bool{false, true} {
			cfg := quant.Default()
			cfg.DoubleQuant = nested
			source := n.normal32(0.5, w[0], w[1])
			row := make([]float32, len(source.values))
			for i, x := range source.values {
				row[i] = float32(x)
			}
			packed, err := quant.Quantise(row, w[0], w[1], cfg)
			if err != nil {
				panic(err) // a broken list of checks
			}
			for _, M := range checkRows {
				all = append(all, packedChecks(n, M, packed)...)
			}
			all = append(all, dequantiseCheck(packed))
		}
	}
	return all
}

func matMulChecks(n checkNumbers, M, N, K int) []check {
	var all []check
	for _, c := range []struct {
		name   string
		ta, tb bool
	}{{"a b", false, false}, {"a bᵀ", false, true}, {"aᵀ b", true, false}} {
		a, b := []int{M, K}, []int{K, N}
		if c.ta {
			a = []int{K, M}
		}
		if c.tb {
			b = []int{N, K}
		}
		k := kernel.MatMul{TransA: c.ta, TransB: c.tb, Alpha: 0.5}
		wide := k
		wide.FP32Out = true
		size := fmt.Sprintf("%s, [%d,%d,%d]", c.name, M, N, K)
		onto := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(kernel.MatMulTo(k), in[0], in[1], g.Apply(kernel.Add{}, in[2], in[3]))
		}
		a1, b1 := n.normal(1, a...), n.normal(1, b...)
		plain := func(f format, in [][]float64) [][]float64 { // a GEMM and a sum
			at := func(v []float64, rows, cols int, trans bool, i, j int) float64 {
				if trans {
					return v[j*rows+i]
				}
				return v[i*cols+j]
			}
			y := make([]float64, M*N)
			for i := range y {
				for l := range K {
					y[i] += at(in[0], M, K, c.ta, i/N, l) * at(in[1], K, N, c.tb, l, i%N)
				}
				y[i] = f.round(f.round(y[i]*k.Alpha) + in[2][i])
			}
			return [][]float64{y}
		}
		all = append(all,
			check{kernel: "matmul", name: size, build: one(k), bounds: []bound{rounded}, in: []checkInput{a1, b1}, gemm: true},
			check{kernel: "matmul", name: size + " in fp32", build: one(wide), bounds: []bound{summed}, in: []checkInput{a1, b1}, gemm: true},
			check{kernel: "matmul", name: size + " onto activations", build: onto, bounds: []bound{rounded}, plain: plain, gemm: true,
				in: []checkInput{a1, b1, n.normal(8, M, N), zeros(M, N)}},
			check{kernel: "matmul", name: size + " onto fp32", build: one(kernel.MatMulTo(k)), bounds: []bound{summed}, gemm: true,
				in: []checkInput{a1, b1, n.normal32(8, M, N).overwritten()}})
	}
	return all
}

// streamOfGEMMs adds two GEMMs to a residual stream, the second of which nearly takes the first away: what 16 bits
// lose of either is three times a rounding of what is left. A GPU's plan stores such outputs as fp32.
func streamOfGEMMs(n checkNumbers, M, C int) check {
	const K = 64
	b, back := n.normal(1, K, C), n.normal(0.05, K, C)
	for i := range back.values {
		back.values[i] -= b.values[i]
	}
	formats[kernel.PrecisionBF16].all(back.values)
	formats[kernel.PrecisionFP16].all(back.values)
	build := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
		x, a, weight := in[0], in[1], in[2]
		var read []*graph.Value
		for _, b := range in[3:] {
			x = g.Apply(kernel.Add{}, x, g.Apply(kernel.MatMul{}, a, b))
			read = append(read, g.Apply(kernel.RMSNorm{Eps: 1e-5}, x, weight))
		}
		return append(read, x)
	}
	return check{kernel: "rmsnorm", name: fmt.Sprintf("[%d,%d] of sums with GEMMs", M, C), build: build, bounds: []bound{rounded, rounded, rounded}, gemm: true,
		in: []checkInput{n.normal(1, M, C), n.normal(1, M, K), n.normal(1, C), b, back}}
}

// packedInputs are the parts of a packed weight.
func packedInputs(p quant.Packed) []checkInput {
	bytes := func(v []byte) checkInput {
		x := checkInput{typ: kernel.U8, shape: []int{len(v)}, values: make([]float64, len(v))}
		for i, b := range v {
			x.values[i] = float64(b)
		}
		return x
	}
	scales := func(v ...float32) checkInput {
		x := checkInput{typ: kernel.F32, shape: []int{len(v)}, values: make([]float64, len(v))}
		for i, f := range v {
			x.values[i] = float64(f)
		}
		return x
	}
	if p.Nested() {
		return []checkInput{bytes(p.Codes), bytes(p.AbsmaxU8), scales(p.Absmax2...), scales(p.Offset)}
	}
	return []checkInput{bytes(p.Codes), scales(p.Absmax...)}
}

// dequantiseCheck is the weight that a packed one stands for.
func dequantiseCheck(p quant.Packed) check {
	return check{kernel: "nf4_dequantise", name: fmt.Sprintf("[%d,%d], nested scales %v", p.Rows, p.Cols, p.Nested()), bounds: []bound{rounded}, in: packedInputs(p),
		build: func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(kernel.DequantiseNF4{N: p.Rows, K: p.Cols, Nested: p.Nested(), Float: g.Float()}, in...)
		}}
}

func packedChecks(n checkNumbers, M int, p quant.Packed) []check {
	weight := packedInputs(p)
	dequantised := make([]float32, p.Len())
	p.Dequantise(dequantised)
	weights := func(f format) []float64 { // as the device dequantises them
		w := make([]float64, p.Len())
		for i, x := range dequantised {
			w[i] = f.round(float64(x))
		}
		return w
	}
	var all []check
	for _, transposed := range []bool{false, true} {
		k := kernel.MatMulNF4{N: p.Rows, K: p.Cols, Nested: p.Nested(), Transposed: transposed}
		wide := k
		wide.FP32Out = true
		in, out := p.Cols, p.Rows
		name := fmt.Sprintf("x Wᵀ, [%d,%d,%d]", M, out, in)
		if transposed {
			in, out = out, in
			name = fmt.Sprintf("x W, [%d,%d,%d]", M, out, in)
		}
		if k.Nested {
			name += ", scales in 8 bits"
		}
		inputs := append([]checkInput{n.normal(1, M, in)}, weight...)
		last := len(inputs)
		onto := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(kernel.MatMulNF4To(k), append(in[:last:last], g.Apply(kernel.Add{}, in[last], in[last+1]))...)
		}
		plain := func(f format, v [][]float64) [][]float64 {
			y := plainGEMM(f, v[0], weights(f), M, out, in, p.Cols, transposed)
			if len(v) > last {
				axpy(y, 1, v[last])
				f.all(y)
			}
			return [][]float64{y}
		}
		all = append(all,
			check{kernel: "nf4", name: name, build: one(k), bounds: []bound{rounded}, in: inputs, plain: plain, gemm: true},
			check{kernel: "nf4", name: name + " in fp32", build: one(wide), bounds: []bound{rounded}, in: inputs, plain: plain, gemm: true},
			check{kernel: "nf4", name: name + " onto activations", build: onto, bounds: []bound{rounded}, plain: plain, gemm: true,
				in: append(inputs[:last:last], n.normal(2, M, out), zeros(M, out))})
	}
	return all
}

// plainGEMM is x Wᵀ, or x W, with the packed weight dequantised and rounded, rows of W cols numbers long.
func plainGEMM(f format, x, w []float64, M, out, in, cols int, transposed bool) []float64 {
	y := make([]float64, M*out)
	for m := range M {
		for n := range out {
			for k := range in {
				at := n*cols + k
				if transposed {
					at = k*cols + n
				}
				y[m*out+n] += x[m*in+k] * w[at]
			}
		}
	}
	f.all(y)
	return y
}
