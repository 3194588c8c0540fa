//go:build !gpu

package graph

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// NewGPU opens a GPU; this build has none.
func NewGPU(int, int) (Machine, error) {
	_, reason := gpu.Devices()
	return nil, errors.New(reason)
}
