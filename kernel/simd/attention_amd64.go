package simd

// Attention for sixteen queries of a head side by side in a vector of AVX-512; attention_amd64.s says what each does.
// Strides are in bytes. They run only where gemm.Path is "avx512".

//go:noescape
func Scores(dst, q, x *float32, stride, n, d int)

//go:noescape
func Softmax(p *float32, n int, stat *float32)

//go:noescape
func SoftmaxGrad(s, dp *float32, n int, stat *float32, scale float32)

//go:noescape
func Gather(acc, fix, p, x *float32, stride, n, d int)

//go:noescape
func Spread(dst, p, x *float32, dstStride, xStride, n, d int)

//go:noescape
func Columns(dst, src *float32, stride, d int, scale float32)

//go:noescape
func Rows(dst *float32, stride int, src, factor *float32, d int)

//go:noescape
func Dots(dst, a, b *float32, d int)
