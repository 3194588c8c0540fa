//go:build !amd64

package kernel

// vectorAdamW is nil: this processor has no vector form.
func vectorAdamW() func(p, g, m, v []float32, s adamScalars[float32]) int { return nil }
