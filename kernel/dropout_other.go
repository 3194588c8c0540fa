//go:build !amd64

package kernel

// vectorDropout is nil: this processor has no vector form.
func vectorDropout(threshold uint32, scale float32) func(y, x []float32, group uint64, step uint32, key uint64) int {
	return nil
}
