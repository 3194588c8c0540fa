//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// expertOp is a GEMM for each of some experts on a GPU: y_e [rows,n] = alpha x_e [rows,k] op(w_e) + beta y_e.
type expertOp struct {
	expertShape
	transB      bool
	alpha, beta float32
	low         expertLow // with which alpha is 1
}

// expertLow is a low-rank update of an experts' GEMM: scale u_e op(v_e), with v transposed as Low says; rank 0 stands
// for none.
type expertLow struct {
	u, v   gpu.Ptr
	rank   int
	transB bool
	scale  float32
}

func (p expertOp) bind(g *GPU, y, x, w, starts gpu.Ptr) (func() error, error) {
	low := p.low
	if !p.up() && p.hopper(g.Device.SM()) && (y|x|w)%16 == 0 &&
		(low.rank == 0 || cuda.ExpertsTakeUpdate(low.rank) && low.transB == p.transB && (low.u|low.v)%16 == 0) {
		return p.bindHopper(g, y, x, w, starts)
	}
	if p.low.rank > 0 {
		return p.bindApart(g, y, x, w, starts)
	}
	at := cuda.ExpertGemm(p.transB, p.rows, p.n, p.experts)
	switch {
	case p.operand == F32:
		at = cuda.ExpertSingle(p.transB, p.rows, p.n, p.experts)
	case p.up() && (y|x|w)%16 == 0:
		at = cuda.ExpertUp(p.transB, p.rows, p.n, p.k, p.experts)
	}
	return g.Launch(at, y, x, w, starts, int32(p.rows), int32(p.experts), int32(p.n), int32(p.k), p.alpha, p.beta)
}

// bindApart makes the update by a kernel of its own, first, and adds the GEMM to it.
func (p expertOp) bindApart(g *GPU, y, x, w, starts gpu.Ptr) (func() error, error) {
	update := p
	update.k, update.transB, update.alpha, update.low = p.low.rank, p.low.transB, p.low.scale, expertLow{}
	first, err := update.bind(g, y, p.low.u, p.low.v, starts)
	if err != nil {
		return nil, err
	}
	p.beta, p.low = 1, expertLow{}
	then, err := p.bind(g, y, x, w, starts)
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := first(); err != nil {
			return err
		}
		return then()
	}, nil
}

func (p expertOp) bindHopper(g *GPU, y, x, w, starts gpu.Ptr) (func() error, error) {
	at, boxX, boxW := cuda.ExpertHopper(p.transB, p.rows, p.n, p.k, p.experts, p.low.rank)
	at.Grid[0] = min(at.Grid[0], g.Device.SMs)
	mapX, mapW, err := p.maps(x, w, p.k, boxX[:], boxW[:])
	if err != nil {
		return nil, err
	}
	args := []any{y, mapX, mapW, starts, int32(p.rows), int32(p.experts), int32(p.n), int32(p.k), p.alpha, p.beta}
	if p.low.rank > 0 {
		mapU, mapV, err := p.maps(p.low.u, p.low.v, p.low.rank, boxX[:], boxW[:])
		if err != nil {
			return nil, err
		}
		args[8] = p.low.scale
		args = append(args, mapU, mapV, int32(p.low.rank))
	}
	return g.Launch(at, args...)
}

// maps describes rows [S,depth] and the experts' matrices, of as many columns or rows as the result has columns.
func (p expertOp) maps(rows, matrices gpu.Ptr, depth int, boxRows, boxMatrices []int) (r, m gpu.TensorMap, err error) {
	inner, outer := int64(p.n), int64(depth) // of an expert's matrix as stored
	if p.transB {
		inner, outer = outer, inner
	}
	r, err = gpu.NewTensorMap(rows, []int64{int64(depth), int64(p.rows)}, []int64{int64(2 * depth)}, boxRows, 128)
	if err != nil {
		return r, m, err
	}
	m, err = gpu.NewTensorMap(matrices, []int64{inner, outer, int64(p.experts)}, []int64{2 * inner, 2 * inner * outer},
		boxMatrices, 128)
	return r, m, err
}

func (k ExpertMatMul) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertMatMul) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return k.bindUpdated(g, in, out, beta, expertLow{})
}

func (k ExpertMatMul) bindUpdated(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error, error) {
	p := expertOp{expertShape{k.Experts, in[0].Shape[0], out[0].Shape[1], in[0].Shape[1], in[0].DType}, k.TransB,
		float32(MatMul{Alpha: k.Alpha}.alpha()), beta, low}
	return p.bind(g, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr)
}

func (k ExpertWeightGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertWeightGrad) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n, width := in[0].Shape[1], in[1].Shape[1]
	at := cuda.ExpertWeight(n, width, k.Experts)
	if in[0].DType == F32 {
		at = cuda.ExpertSingleWeight(n, width, k.Experts)
	}
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(n), int32(width),
		float32(MatMul{Alpha: k.Alpha}.alpha()), beta)
}

func (k ExpertMatMulNF4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertMatMulNF4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return k.bindUpdated(g, in, out, beta, expertLow{})
}

func (k ExpertMatMulNF4) bindUpdated(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error,
	error) {
	n := int64(k.N) * int64(k.K)
	codes := g.nf4Codes(k.FP4)
	entry, args := "expert_nf4_dequantise", []any{g.Scratch, in[2].Ptr, codes, in[3].Ptr, n}
	if k.Nested {
		entry, args = "expert_nf4_dequantise_nested", []any{g.Scratch, in[2].Ptr, codes, in[3].Ptr, g.nf4Map(k.Map),
			in[4].Ptr, in[5].Ptr, n}
	}
	dequantise, err := g.Launch(cuda.ExpertNF4(entry, n, k.Experts), args...)
	if err != nil {
		return nil, err
	}
	return bindPackedExperts(g, dequantise, k.Experts, k.N, k.K, k.Transposed, in, out, beta, low)
}

// bindPackedExperts multiplies by the experts' matrices [n,k] that dequantise leaves in scratch.
func bindPackedExperts(g *GPU, dequantise func() error, experts, n, k int, transposed bool, in, out []DeviceTensor,
	beta float32, low expertLow) (func() error, error) {
	p := expertOp{expertShape{experts, in[0].Shape[0], n, k, in[0].DType}, true, 1, beta, low}
	if transposed {
		p.n, p.k, p.transB = k, n, false
	}
	mul, err := p.bind(g, out[0].Ptr, in[0].Ptr, g.Scratch, in[1].Ptr)
	if err != nil {
		return nil, err
	}
	g.Prologue = Prologue{dequantise, packedExpertsScratchGPU(in[0].DType, experts, n, k)}
	return mul, nil
}

func (k ExpertWeightGradGathered) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertWeightGradGathered) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	n, width := in[0].Shape[1], in[1].Shape[1]
	at := cuda.ExpertWeightGathered(n, width, k.Experts, in[0].DType == F32)
	return g.Launch(at, out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, int32(n), int32(width),
		int32(k.PerToken), int32(in[1].Shape[0]),
		float32(MatMul{Alpha: k.Alpha}.alpha()), beta)
}

func (k ExpertMatMulInt8) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertMatMulInt8) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return k.bindUpdated(g, in, out, beta, expertLow{})
}

func (k ExpertMatMulInt8) bindUpdated(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error,
	error) {
	dequantise, err := g.Launch(cuda.Int8Dequantise(k.Experts*k.N, k.K), g.Scratch, in[2].Ptr, in[3].Ptr, int32(k.K))
	if err != nil {
		return nil, err
	}
	return bindPackedExperts(g, dequantise, k.Experts, k.N, k.K, k.Transposed, in, out, beta, low)
}

func (k ExpertMatMulMXFP4) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k ExpertMatMulMXFP4) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return k.bindUpdated(g, in, out, beta, expertLow{})
}

func (k ExpertMatMulMXFP4) bindUpdated(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error,
	error) {
	n := int64(k.Experts) * int64(k.N) * int64(k.K)
	dequantise, err := g.Launch(cuda.ExpertMXFP4(n), g.Scratch, in[2].Ptr, in[3].Ptr, n)
	if err != nil {
		return nil, err
	}
	return bindPackedExperts(g, dequantise, k.Experts, k.N, k.K, k.Transposed, in, out, beta, low)
}

// expertsOnGPU is a GEMM of experts whose GPU body takes a low-rank update of the same rows along.
type expertsOnGPU interface {
	OnGPU
	bindUpdated(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error, error)
}

func (k ExpertUpdate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	base, _, low := splitUpdate(k, in)
	beta := float32(0)
	if k.Onto {
		beta = 1
	}
	return k.Base.(expertsOnGPU).bindUpdated(g, base, out, beta,
		expertLow{low[0].Ptr, low[1].Ptr, low[0].Shape[1], k.Low.TransB, float32(MatMul{Alpha: k.Low.Alpha}.alpha())})
}

func (o ExpertBias) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	S, N := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.ExpertBias(S, N, o.Experts), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(S), int32(N))
}
