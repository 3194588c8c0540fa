//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/gpu"

// expertsOnGPU is a GEMM of experts whose GPU body takes a low-rank update of the same rows along.
type expertsOnGPU interface {
	OnGPU
	bindGPU(g *GPU, in, out []DeviceTensor, beta float32, low expertLow) (func() error, error)
}

// expertLow is a low-rank update of an experts' GEMM: scale u_e op(v_e), with v transposed as Low says; rank 0 stands for none.
type expertLow struct {
	u, v   gpu.Ptr
	rank   int
	transB bool
	scale  float32
}

func (k ExpertUpdate) Stored(in []DType) (want, out []DType) {
	_, n, _ := k.base()
	want, out = k.Base.(OnGPU).Stored(in[:n])
	if k.Onto {
		want = append(want, ComputeType)
	}
	return append(want, ComputeType, ComputeType), out
}

func (k ExpertUpdate) ScratchGPU(in, out []Type, sm int) int64 {
	if s, ok := k.Base.(ScratchOnGPU); ok {
		base, _, _ := splitUpdate(k, in)
		return s.ScratchGPU(base, out, sm)
	}
	return 0
}

// PrologueGPU marks the dequantising of Base's weights, which waits for no activation; where they are not packed there is none.
func (ExpertUpdate) PrologueGPU() {}

func (k ExpertUpdate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	base, _, low := splitUpdate(k, in)
	beta := float32(0)
	if k.Onto {
		beta = 1
	}
	return k.Base.(expertsOnGPU).bindGPU(g, base, out, beta, expertLow{low[0].Ptr, low[1].Ptr, low[0].Shape[1], k.Low.TransB, float32(MatMul{Alpha: k.Low.Alpha}.alpha())})
}
