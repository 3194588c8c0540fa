//go:build !amd64

package gemm

var chosen = &portable32

var kernels = []*kernel[float32]{&portable32}

func kernel64(*kernel[float32]) *kernel[float64] { return &portable64 }

func pause() {}
