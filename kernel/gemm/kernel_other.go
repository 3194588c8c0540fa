//go:build !amd64

package gemm

type args struct{}

var chosen = &portable32

var kernels = []*kernel[float32]{&portable32}
