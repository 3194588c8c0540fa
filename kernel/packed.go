package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/quant"
)

// PackedWeight is what computes with a weight W [N,K] that stays packed. Its inputs are the weight's parts, in
// the order of quant.Config.Parts, after the GEMM's x.
type PackedWeight struct {
	MatMul     func(n, k int, c quant.Config) Kernel              // y = x Wᵀ
	Dequantise func(n, k int, c quant.Config, float DType) Kernel // W
	// ExpertMatMul is MatMul for each of some experts, whose first rows are an input before the weight's parts; each
	// part holds the experts' one after the other. nil = there is none.
	ExpertMatMul func(experts, n, k int, c quant.Config) Kernel
}

// Packed lists them by the storage scheme's name in package quant.
var Packed = map[string]PackedWeight{"nf4": fourBits, "fp4": fourBits, "int8": {
	MatMul:     func(n, k int, _ quant.Config) Kernel { return MatMulInt8{N: n, K: k} },
	Dequantise: func(n, k int, _ quant.Config, float DType) Kernel { return DequantiseInt8{n, k, float} },
	ExpertMatMul: func(experts, n, k int, _ quant.Config) Kernel {
		return ExpertMatMulInt8{Experts: experts, N: n, K: k}
	},
}}

var fourBits = PackedWeight{
	MatMul: func(n, k int, c quant.Config) Kernel {
		return MatMulNF4{N: n, K: k, Nested: c.DoubleQuant, Map: c.Map, FP4: c.Type == "fp4"}
	},
	Dequantise: func(n, k int, c quant.Config, float DType) Kernel {
		return DequantiseNF4{N: n, K: k, Nested: c.DoubleQuant, Float: float, Map: c.Map, FP4: c.Type == "fp4"}
	},
	ExpertMatMul: func(experts, n, k int, c quant.Config) Kernel {
		return ExpertMatMulNF4{Experts: experts, N: n, K: k, Nested: c.DoubleQuant, Map: c.Map, FP4: c.Type == "fp4"}
	},
}

// packedShape returns the result of a GEMM with a weight [n,k] whose parts are the inputs after x.
func packedShape(in []Type, n, k int, transposed bool, c quant.Config) ([]Type, error) {
	if err := checkPacked(n, k); err != nil {
		return nil, err
	}
	width, result := k, n
	if transposed {
		width, result = n, k
	}
	d, err := Want(in, append([]string{fmt.Sprintf("f[M,%d]", width)}, partTypes(n, k, c)...)...)
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), result)}, nil
}

// dequantisedShape returns the weight [n,k] whose parts are the inputs.
func dequantisedShape(in []Type, n, k int, float DType, c quant.Config) ([]Type, error) {
	if float != F32 && float != F64 {
		return nil, fmt.Errorf("attribute Float is %v, want f32 or f64", float)
	}
	if err := checkPacked(n, k); err != nil {
		return nil, err
	}
	if _, err := Want(in, partTypes(n, k, c)...); err != nil {
		return nil, err
	}
	return []Type{T(float, n, k)}, nil
}

func checkPacked(n, k int) error {
	if n <= 0 || k <= 0 || n > 1<<40/k {
		return fmt.Errorf("a weight [%d,%d] can't be computed with: both sizes must be positive and their product at most 2^40", n, k)
	}
	return nil
}

// partTypes returns the types of a weight's parts as Want has them.
func partTypes(n, k int, c quant.Config) []string {
	var want []string
	for _, p := range c.Parts(n, k) {
		d := U8
		if p.Floats != nil {
			d = F32
		}
		want = append(want, fmt.Sprintf("%v[%d]", d, p.Len))
	}
	return want
}

// packedGrads returns the backward of a GEMM with a packed weight of so many parts: the other direction with the same
// weight.
func packedGrads(other Kernel, parts int) Backward {
	call := Call{Kernel: other, In: []Ref{Upstream()}}
	for i := range parts {
		call.In = append(call.In, In(i+1))
	}
	grads := make([]Ref, parts+1)
	grads[0] = FromCall(0, 0)
	return Backward{Calls: []Call{call}, Grads: grads}
}

// packedScratch returns the scratch of a GEMM with a packed weight on a CPU.
func packedScratch(x DType, n, k int) int64 {
	return panelBytes(x, T(F32, n, k)) + panelBytes(x, T(F32, n, k))/2
}

// bindPacked multiplies by a weight that is dequantised piece by piece; load is done before each run.
func bindPacked(c *CPU, x, out Tensor, w gemm.Dequantiser, n, k int, transposed bool, beta float64,
	load func()) func() {
	var multiply func()
	if x.DType == F64 {
		single := c.Scratch[panelBytes(F64, T(F32, n, k)):]
		row := NewTensor(T(F32, min(panelRows, n), k), single).F32()
		p := newPanels([]int{n, k}, c.Scratch, func(dst []float64, i int) {
			w.DequantiseRange(row[:len(dst)], i, i+len(dst))
			convert(dst, row)
		})
		multiply = p.gemm(c, !transposed, 1, x.F64(), beta, out)
	} else {
		a, y, pool := x.F32(), out.F32(), c.Pool
		rows, cols, depth := out.Shape[0], out.Shape[1], x.Shape[1]
		multiply = func() {
			gemm.GemmDequantised(pool, !transposed, rows, cols, depth, 1, a, depth, w, float32(beta), y, cols)
		}
	}
	return func() { load(); multiply() }
}

// bindDequantise writes the weight [n,k] to out; load is done before each run.
func bindDequantise(c *CPU, out Tensor, w gemm.Dequantiser, n, k int, load func()) func() {
	row := func(i int) {}
	if out.DType == F32 {
		y := out.F32()
		row = func(i int) { w.DequantiseRange(y[i*k:(i+1)*k], i*k, (i+1)*k) }
	} else {
		// A row's float32 values fit in its second half, and widen from the front without meeting one unread.
		y, half := out.F64(), NewTensor(T(F32, 2*n*k), out.Bytes()).F32()
		row = func(i int) {
			from := half[(2*i+1)*k : (2*i+2)*k]
			w.DequantiseRange(from, i*k, (i+1)*k)
			for j, to := 0, y[i*k:(i+1)*k]; j < k; j++ {
				to[j] = float64(from[j])
			}
		}
	}
	work := c.Range(n, rowGrain(k), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row(i)
		}
	})
	return func() { load(); work() }
}

// dequantisedBytes returns the scratch for a packed weight [n,k], dequantised to the type of x.
func dequantisedBytes(x Type, n, k int) int64 {
	return (int64(n)*int64(k)*int64(x.DType.Size()) + 255) &^ 255
}

// packedScratchGPU returns the scratch of a GEMM with a packed weight [n,k].
func packedScratchGPU(x, out Type, n, k int, transposed, apart bool, sm int) int64 {
	return dequantisedBytes(x, n, k) + packedOp(x, out, n, k, transposed, apart, 0).scratch(sm)
}

func packedOp(x, out Type, n, k int, transposed, apart bool, beta float32) gemmOp {
	p := gemmOp{m: out.Shape[0], n: n, k: k, transB: true, alpha: 1, beta: beta, operand: x.DType, out: out.DType,
		rowsApart: apart}
	if transposed {
		p.n, p.k, p.transB = k, n, false
	}
	return p
}
