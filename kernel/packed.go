package kernel

// Packed makes the GEMM with a frozen weight W [N,K] in each storage scheme of package quant, by the
// scheme's name: y = x Wᵀ. Inputs after x: the codes u8, then the scale of each block: f32, or, nested, u8 codes,
// f32 scales of 256 of them each, and an f32 offset.
var Packed = map[string]func(n, k int, nested bool) Kernel{
	"nf4": func(n, k int, nested bool) Kernel { return MatMulNF4{N: n, K: k, Nested: nested} },
}
