//go:build gpu

package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

func (GatedDelta) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32}, []DType{ComputeType}
}

func (o GatedDelta) CheckGPU(in, _ []Type, sm int) error {
	if E := o.valueSize(in[0]); !cuda.FitsGatedDelta(o.KeySize, E) {
		return fmt.Errorf("heads of %d for queries and keys and of %d for values: want multiples of 4, the former at most 128", o.KeySize, E)
	}
	if sm < 80 {
		return fmt.Errorf("compute capability %d.%d, want 8.0 or later", sm/10, sm%10)
	}
	return nil
}

// arguments are the inputs of the rule and the sizes, which all of its kernels end with.
func (o GatedDelta) arguments(in []DeviceTensor) []any {
	return []any{in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr, in[5].Ptr, int32(in[0].Shape[0]), int32(in[5].Shape[0] - 1), int32(o.KeyHeads), int32(o.ValueHeads),
		int32(o.KeySize), int32(o.valueSize(in[0].Type))}
}

func (o GatedDelta) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	at := cuda.GatedDelta(in[5].Shape[0]-1, o.ValueHeads, o.valueSize(in[0].Type))
	return g.Launch(at, append([]any{out[0].Ptr}, o.arguments(in)...)...)
}

func (GatedDeltaGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32, ComputeType}, []DType{ComputeType, ComputeType, ComputeType}
}

func (o GatedDeltaGrad) CheckGPU(in, out []Type, sm int) error {
	return GatedDelta(o).CheckGPU(in, out, sm)
}

// keptBytes are those of the states before each chunk.
func (o GatedDeltaGrad) keptBytes(qkv Type) int64 {
	return cuda.GatedDeltaKept(qkv.DType.String(), qkv.Shape[0], o.ValueHeads, o.KeySize, GatedDelta(o).valueSize(qkv))
}

// ScratchGPU are the states before each chunk, and their gradients.
func (o GatedDeltaGrad) ScratchGPU(in, _ []Type, _ int) int64 { return 2 * o.keptBytes(in[0]) }

func (o GatedDeltaGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rule, dy, M, S, E := GatedDelta(o), in[6].Ptr, in[0].Shape[0], in[5].Shape[0]-1, GatedDelta(o).valueSize(in[0].Type)
	states, grads, all := g.Scratch, g.Scratch.Add(o.keptBytes(in[0].Type)), rule.arguments(in)
	first, err := g.Launch(cuda.GatedDeltaStates(S, o.ValueHeads, E), append([]any{states}, all...)...)
	if err != nil {
		return nil, err
	}
	second, err := g.Launch(cuda.GatedDeltaCarry(S, o.ValueHeads, E), append([]any{out[0].Ptr, grads, dy}, all...)...)
	if err != nil {
		return nil, err
	}
	third, err := g.Launch(cuda.GatedDeltaGradients(M, o.KeyHeads), append([]any{out[0].Ptr, out[1].Ptr, out[2].Ptr, dy, states, grads}, all...)...)
	if err != nil {
		return nil, err
	}
	return inOrder(first, second, third), nil
}

func (GatedDeltaCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32, I32, F32}, []DType{ComputeType, F32}
}

func (o GatedDeltaCached) CheckGPU(in, out []Type, sm int) error { return o.Rule.CheckGPU(in, out, sm) }

func (o GatedDeltaCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, S, E := in[0].Shape[0], in[5].Shape[0]-1, o.Rule.valueSize(in[0].Type)
	return g.Launch(cuda.GatedDeltaCached(S, o.Rule.ValueHeads, E), out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr, in[5].Ptr, in[6].Ptr,
		int32(M), int32(S), int32(o.Rule.KeyHeads), int32(o.Rule.ValueHeads), int32(o.Rule.KeySize), int32(E), int32(in[7].Shape[0]), int32(o.Tokens))
}
