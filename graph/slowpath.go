package graph

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// SlowPath is a fast path that a run leaves.
type SlowPath = kernel.SlowPath

// SlowPaths returns those that plans take on a machine, each once: the machine's own, then their calls'. They are known
// when a run is planned.
func SlowPaths(on Machine, plans ...*Plan) []SlowPath {
	var all []SlowPath
	if m, ok := on.(interface{ slow() []SlowPath }); ok {
		all = m.slow()
	}
	for _, p := range plans {
		for _, s := range p.slow {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// slow: a processor that has vector instructions for GEMMs, and does without them.
func (*CPU) slow() []SlowPath { return slowInstructions(runtime.GOARCH, kernel.Instructions()) }

func slowInstructions(arch, set string) []SlowPath {
	if arch != "amd64" || set != "generic" {
		return nil
	}
	return []SlowPath{{What: "GEMMs run in plain Go: the processor lacks AVX2 and FMA, or TRAINER_CPU=generic is set",
		Cost:   "a step takes more than ten times as long (SmolLM2-135M 1x128, docs/internals/decisions/0070-strict.md)",
		Remedy: "unset TRAINER_CPU, or train on a processor with AVX2"}}
}

// slowLibrary: a GPU whose GEMMs run on the built-in kernels, since cuBLASLt is missing for a reason.
func slowLibrary(sm int, p kernel.Precision, reason error) SlowPath {
	s := SlowPath{What: "GEMMs run on the built-in kernels, as cuBLASLt is missing"}
	if reason != nil {
		s.What += fmt.Sprintf(" (%v)", reason)
	}
	switch {
	case p == kernel.PrecisionTF32:
		s.What += ": tf32 computes as fp32"
		s.Cost = "about 32.9 ms a step in place of 22.1 (SmolLM2-135M 1x512, H200, docs/internals/decisions/0020-precision.md)"
	case p == kernel.PrecisionFP32:
		s.Cost = kernel.NotMeasured
	case sm == 90:
		s.Cost = "GEMMs of 2,048 rows or more run at 70 to 113 % of its rate (H200, docs/internals/PERFORMANCE.md)"
	default:
		s.Cost = "GEMMs of 2,048 rows or more run at 30 to 54 % of its rate (as measured on an H200, docs/internals/PERFORMANCE.md)"
	}
	s.Remedy = "pip install nvidia-cublas-cu12, or TRAINER_CUBLASLT=/path/of/libcublasLt.so.12"
	return s
}

// slowCode: kernels that the driver makes of PTX for a chip that the program has none for.
func slowCode(sm int, form string) SlowPath {
	return SlowPath{What: fmt.Sprintf("the driver compiles the kernels from %s: the program has none for compute capability %d.%d", form, sm/10, sm%10),
		Cost: kernel.NotMeasured, Remedy: "a program built with kernels for this chip (scripts/kernels.py)"}
}

// slowKernels returns that the driver compiles the kernels on a device of compute capability sm.
func slowKernels(sm int) []SlowPath {
	if form, jit, err := kernelsFor(sm); err == nil && jit {
		return []SlowPath{slowCode(sm, form)}
	}
	return nil
}
