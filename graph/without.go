//go:build !gpu

package graph

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// NewGPU opens a GPU; this build has none.
func NewGPU(int, int, kernel.Precision) (Machine, error) {
	_, reason := gpu.Devices()
	return nil, errors.New(reason)
}

func kernelsDigest() string { return "" }

// kernelsFor returns what a released program with GPU support holds: this one has none, and plans for it.
func kernelsFor(sm int) (form string, jit bool, err error) { return kernel.ReleasedFor(sm) }
