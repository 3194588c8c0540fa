package kernel

// PackedWeight is what computes with a weight W [N,K] that stays packed. Its inputs are the weight's parts, in
// the order of quant.Config.Parts, after the GEMM's x.
type PackedWeight struct {
	MatMul     func(n, k int, nested bool) Kernel              // y = x Wᵀ
	Dequantise func(n, k int, nested bool, float DType) Kernel // W
	// ExpertMatMul is MatMul for each of some experts, whose first rows are an input before the weight's parts; each part
	// holds the experts' one after the other. nil = there is none.
	ExpertMatMul func(experts, n, k int, nested bool) Kernel
}

// Packed lists them by the storage scheme's name in package quant.
var Packed = map[string]PackedWeight{
	"nf4": {
		MatMul:     func(n, k int, nested bool) Kernel { return MatMulNF4{N: n, K: k, Nested: nested} },
		Dequantise: func(n, k int, nested bool, float DType) Kernel { return DequantiseNF4{n, k, nested, float} },
		ExpertMatMul: func(experts, n, k int, nested bool) Kernel {
			return ExpertMatMulNF4{Experts: experts, N: n, K: k, Nested: nested}
		},
	},
}
