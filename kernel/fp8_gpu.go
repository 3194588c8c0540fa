//go:build gpu

package kernel

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU rounds each row in one block.
func (QuantiseRows) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, K := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.FP8Rows(M, K), out[0].Ptr, out[1].Ptr, in[0].Ptr, int32(K))
}

// GPU makes the weight in 8-bit floats and multiplies by it with cuBLASLt.
func (k MatMulFP8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMulFP8) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	if g.BLAS == nil {
		return nil, errors.New("GEMM of 8-bit floats: cuBLASLt is needed for it; use training.frozen_gemm: bf16")
	}
	w, parts := k.Weight, in[2:]
	scalesAt, workspaceAt := k.fp8Scratch()
	scales, result := g.Scratch.Add(scalesAt), out[0].Shape[1]
	blocks := w.N * w.K / nf4Block
	var scale func() error
	var err error
	codes := g.nf4Codes(w.FP4)
	entry, args := "fp8_weight", []any{g.Scratch, scales, parts[0].Ptr, codes, parts[1].Ptr, int32(w.N), int32(w.K)}
	if w.Nested {
		outer := (blocks + 255) / 256
		scale, err = g.Launch(cuda.Sum("fp8", "fp8_scale"), scales, parts[2].Ptr, parts[3].Ptr, int32(outer),
			int32(result))
		entry, args = "fp8_weight_nested", []any{g.Scratch, scales, parts[0].Ptr, codes, parts[1].Ptr, g.nf4Map(w.Map),
			parts[2].Ptr, parts[3].Ptr, int32(w.N), int32(w.K)}
	} else {
		scale, err = g.Launch(cuda.Sum("fp8", "fp8_scale"), scales, parts[1].Ptr, gpu.Ptr(0), int32(blocks),
			int32(result))
	}
	if err != nil {
		return nil, err
	}
	round, err := g.Launch(cuda.FP8Weight(entry, w.Transposed, w.N, w.K), args...)
	if err != nil {
		return nil, err
	}
	plan, err := g.BLAS.Plan(gpu.Gemm{M: out[0].Shape[0], N: result, K: in[0].Shape[1], TransB: true, In: gpu.E4M3,
		Out: libraryTypes[out[0].DType], Alpha: 1, Beta: beta}, blasWorkspace, g.Algorithms)
	if err != nil {
		return nil, err
	}
	g.Prologue = Prologue{inOrder(scale, round), workspaceAt}
	s, scratch := g.Stream, g.Scratch
	return func() error {
		return plan.RunScaled(s, out[0].Ptr, in[0].Ptr, scratch, in[1].Ptr, scales, scratch.Add(workspaceAt))
	}, nil
}
