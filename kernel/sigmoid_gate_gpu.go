//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (SigmoidGate) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.Flat("sigmoid_gate", "sigmoid_gate_rows", int64(M)*int64(C)), out[0].Ptr, in[0].Ptr, in[1].Ptr,
		int32(M), int32(C))
}

func (SigmoidGateGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[0].Shape[0], in[0].Shape[1]
	return g.Launch(cuda.SigmoidGateGrad(M), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, int32(M),
		int32(C))
}
