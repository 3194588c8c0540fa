//go:build gpu

package graph

import "github.com/tierlora/tierlora/kernel"

func kernelsDigest() string { return kernel.CompiledDigest() }

func kernelsFor(sm int) (form string, jit bool, err error) { return kernel.CompiledFor(sm) }
