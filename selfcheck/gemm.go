package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// gemmChecks returns GEMMs, of numbers and of packed weights.
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
	return append(all, allPackedChecks(n)...)
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
			return g.ApplyAll(kernel.Onto[kernel.MatMul]{Of: k}, in[0], in[1], g.Apply(kernel.Add{}, in[2], in[3]))
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
			check{kernel: "matmul", name: size, build: one(k), bounds: []bound{rounded}, in: []checkInput{a1, b1},
				gemm: true},
			check{kernel: "matmul", name: size + " in fp32", build: one(wide), bounds: []bound{summed},
				in: []checkInput{a1, b1}, gemm: true},
			check{kernel: "matmul", name: size + " onto activations", build: onto, bounds: []bound{rounded},
				plain: plain, gemm: true,
				in: []checkInput{a1, b1, n.normal(8, M, N), zeros(M, N)}},
			check{kernel: "matmul", name: size + " onto fp32", build: one(kernel.Onto[kernel.MatMul]{Of: k}),
				bounds: []bound{summed}, gemm: true,
				in: []checkInput{a1, b1, n.normal32(8, M, N).overwritten()}})
		if c.tb && !c.ta && M <= 256 {
			apart, wideApart := k, wide
			apart.RowsApart, wideApart.RowsApart = true, true
			all = append(all,
				check{kernel: "matmul", name: size + ", rows apart", build: one(apart), bounds: []bound{rounded},
					in: []checkInput{a1, b1}, gemm: true},
				check{kernel: "matmul", name: size + " in fp32, rows apart", build: one(wideApart),
					bounds: []bound{summed}, in: []checkInput{a1, b1}, gemm: true})
		}
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
	return check{kernel: "rmsnorm", name: fmt.Sprintf("[%d,%d] of sums with GEMMs", M, C), build: build,
		bounds: []bound{rounded, rounded, rounded}, gemm: true,
		in: []checkInput{n.normal(1, M, C), n.normal(1, M, K), n.normal(1, C), b, back}}
}
