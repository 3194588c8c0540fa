//go:build gpu

package kernel

import (
	"errors"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/quant"
)

func uploadNF4Tables(to gpu.Ptr) error {
	return errors.Join(
		gpu.Upload(to, quant.Schemes["nf4"].(quant.Tabled).Table()),
		gpu.Upload(to.Add(fp4CodeOffset), quant.Schemes["fp4"].(quant.Tabled).Table()),
		gpu.Upload(to.Add(nf4CodeBytes), quant.MapCPU.Table()),
		gpu.Upload(to.Add(nf4CodeBytes+nestedBytes), quant.MapCUDA.Table()))
}

// nf4Codes and nf4Map are where a weight's tables lie.
func (g *GPU) nf4Codes(fp4 bool) gpu.Ptr {
	if fp4 {
		return g.Constants.Add(fp4CodeOffset)
	}
	return g.Constants
}

func (g *GPU) nf4Map(m quant.NestedMap) gpu.Ptr {
	return g.Constants.Add(nf4CodeBytes + int64(m)*nestedBytes)
}

func (k MatMulNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMulNF4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n := int64(k.N) * int64(k.K)
	codes := g.nf4Codes(k.FP4)
	if k.skinny(in[0].Type, out[0].Type) && cuda.SkinnyTiled(in[0].Shape[0]) {
		store, tables := k.skinnyTables(g)
		t := skinnyTile{store: store, M: in[0].Shape[0], K: k.K, N: []int{k.N}, alpha: 1, beta: beta, out: out[0].DType}
		var weight []any
		for _, p := range in[1:k.inputs()] {
			weight = append(weight, p.Ptr)
		}
		return t.bind(g, []gpu.Ptr{out[0].Ptr}, in[0].Ptr, tables, [][]any{weight})
	}
	if k.skinny(in[0].Type, out[0].Type) {
		kind, args := "skinny_nf4", []any{out[0].Ptr, in[0].Ptr, in[1].Ptr, codes, in[2].Ptr}
		if k.Nested {
			kind, args = "skinny_nf4_nested", append(args, g.nf4Map(k.Map), in[3].Ptr, in[4].Ptr)
		}
		M := in[0].Shape[0]
		return g.Launch(cuda.Skinny(kind, M, k.N), append(args, int32(M), int32(k.N), int32(k.K), float32(1), beta,
			isFP32(out[0].DType))...)
	}
	entry, args := "nf4_dequantise", []any{g.Scratch, in[1].Ptr, codes, in[2].Ptr, n}
	if k.Nested {
		entry, args = "nf4_dequantise_nested", []any{g.Scratch, in[1].Ptr, codes, in[2].Ptr, g.nf4Map(k.Map), in[3].Ptr,
			in[4].Ptr, n}
	}
	return bindPackedGPU(g, in[0], out[0], k.N, k.K, k.Transposed, k.RowsApart, beta, cuda.NF4Dequantise(entry, n),
		args...)
}

// skinnyTables returns how skinny_tile_* kernels name the weight's storage, and the tables that they take.
func (k MatMulNF4) skinnyTables(g *GPU) (store string, tables []any) {
	if k.Nested {
		return "_nf4_nested", []any{g.nf4Codes(k.FP4), g.nf4Map(k.Map)}
	}
	return "_nf4", []any{g.nf4Codes(k.FP4)}
}

func (k DequantiseNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	n := int64(k.N) * int64(k.K)
	codes := g.nf4Codes(k.FP4)
	if k.Nested {
		return g.Launch(cuda.NF4Dequantise("nf4_dequantise_nested", n), out[0].Ptr, in[0].Ptr, codes, in[1].Ptr,
			g.nf4Map(k.Map), in[2].Ptr, in[3].Ptr, n)
	}
	return g.Launch(cuda.NF4Dequantise("nf4_dequantise", n), out[0].Ptr, in[0].Ptr, codes, in[1].Ptr, n)
}

// nf4Parts is where a weight's parts lie.
type nf4Parts struct{ codes, absmax, scale8, scale2, offset gpu.Ptr }

// PackGPU quantises as package quant does, to the bit.
func (k MatMulNF4) PackGPU(g *GPU, dst []DeviceTensor, from DType, dequantised bool) (Packing, bool) {
	n := k.N * k.K
	blocks := (n + nf4Block - 1) / nf4Block
	encode := "nf4_quantise_" + from.String()
	if k.FP4 {
		encode = "nf4_quantise_fp4_" + from.String()
	}
	if k.Map != quant.MapCPU || blocks > math.MaxInt32 || !cuda.Has("nf4", encode) {
		return Packing{}, false
	}
	dequantise := "nf4_dequantise" // writes ComputeType
	if k.Nested {
		dequantise += "_nested"
	}
	if dequantised && dst[0].DType != g.Precision.Stored(ComputeType) {
		if dst[0].DType != F32 {
			return Packing{}, false
		}
		dequantise += "_f32"
	}
	_, staging := k.parts(dst, dequantised, blocks, 0)
	return Packing{
		Block:   nf4Block,
		Staging: staging,
		Piece: func(g *GPU, staging, src gpu.Ptr, from, n int) error {
			p, _ := k.parts(dst, dequantised, blocks, staging)
			return g.Once(cuda.NF4Quantise(encode, int64(n)), p.codes.Add(int64(from)/2),
				p.absmax.Add(int64(from)/nf4Block*4), src, int64(n))
		},
		Finish: func(g *GPU, staging, check gpu.Ptr) error {
			p, _ := k.parts(dst, dequantised, blocks, staging)
			if err := g.Once(cuda.Sum("nf4", "nf4_offset"), check, p.absmax, int32(blocks)); err != nil {
				return err
			}
			codes, table := g.nf4Codes(k.FP4), g.nf4Map(k.Map)
			if k.Nested {
				if err := g.Stream.Copy(p.offset, check, 4); err != nil {
					return err
				}
				if err := g.Once(cuda.NF4Nest(blocks), p.scale8, p.scale2, p.absmax, table, p.offset,
					int32(blocks)); err != nil {
					return err
				}
			}
			switch {
			case !dequantised:
				return nil
			case k.Nested:
				return g.Once(cuda.NF4Dequantise(dequantise, int64(n)), dst[0].Ptr, p.codes, codes, p.scale8, table,
					p.scale2, p.offset, int64(n))
			}
			return g.Once(cuda.NF4Dequantise(dequantise, int64(n)), dst[0].Ptr, p.codes, codes, p.absmax, int64(n))
		},
	}, true
}

// parts places what dst has no place for in staging, and counts the bytes.
func (k MatMulNF4) parts(dst []DeviceTensor, dequantised bool, blocks int, staging gpu.Ptr) (p nf4Parts, bytes int64) {
	take := func(n int) gpu.Ptr {
		at := staging.Add(bytes)
		bytes += (int64(n) + gpu.Align - 1) &^ (gpu.Align - 1)
		return at
	}
	if dequantised {
		p.codes, p.absmax = take((k.N*k.K+1)/2), take(4*blocks)
		if k.Nested {
			p.scale8, p.scale2, p.offset = take(blocks), take(4*((blocks+quant.NestedBlock-1)/quant.NestedBlock)),
				take(4)
		}
		return p, bytes
	}
	p.codes, p.absmax = dst[0].Ptr, dst[1].Ptr
	if k.Nested {
		p.absmax, p.scale8, p.scale2, p.offset = take(4*blocks), dst[1].Ptr, dst[2].Ptr, dst[3].Ptr
	}
	return p, bytes
}
