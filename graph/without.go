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

// NewChip plans for a kind of device; this build has not the kernels that say what they store.
func NewChip(Chip, int, kernel.Precision) (Machine, error) {
	return nil, errors.New("this build leaves out the GPU kernels, and with them how much memory they take; build with make gpu, which needs no GPU")
}

func kernelsDigest() string { return "" }

func kernelsFor(int) (form string, jit bool, err error) {
	return "", false, errors.New("this build leaves out the GPU kernels")
}
