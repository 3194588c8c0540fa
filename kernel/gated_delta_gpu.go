//go:build gpu

package kernel

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
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

func (o GatedDeltaGrad) scratch(qkv Type) cuda.GatedDeltaScratch {
	return cuda.NewGatedDeltaScratch(qkv.DType.String(), qkv.Shape[0], o.ValueHeads, o.KeySize, GatedDelta(o).valueSize(qkv))
}

// ScratchGPU are the states before the chunks of a window of rows, and their gradients.
func (o GatedDeltaGrad) ScratchGPU(in, _ []Type, _ int) int64 { return o.scratch(in[0]).Bytes }

// GPU goes over the rows in windows, from the last to the first. Where there are several, the states before them are worked out first.
func (o GatedDeltaGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rule, dy, M, S, E := GatedDelta(o), in[6].Ptr, in[0].Shape[0], in[5].Shape[0]-1, GatedDelta(o).valueSize(in[0].Type)
	s, window, inputs := o.scratch(in[0].Type), cuda.DeltaWindow, rule.arguments(in)
	states, grads, borders := g.Scratch, g.Scratch.Add(s.Grads), g.Scratch.Add(s.Borders)
	var all []func() error
	var failed error
	add := func(at cuda.Geometry, args ...any) {
		work, err := g.Launch(at, append(args, inputs...)...)
		all, failed = append(all, work), errors.Join(failed, err)
	}
	if M > window {
		add(cuda.GatedDeltaStates(S, o.ValueHeads, E), gpu.Ptr(0), borders, int32(window), int32(0), int32(M))
	}
	for from := (M - 1) / window * window; from >= 0; from -= window {
		to, turn := min(from+window, M), int64(from/window%2)
		behind, before := g.Scratch.Add(s.Edges+(1-turn)*s.Edge), g.Scratch.Add(s.Edges+turn*s.Edge)
		add(cuda.GatedDeltaStates(S, o.ValueHeads, E), states, borders, int32(window), int32(from), int32(to))
		add(cuda.GatedDeltaCarry(S, o.ValueHeads, E), out[0].Ptr, grads, behind, before, dy, int32(from), int32(to))
		add(cuda.GatedDeltaGradients(to-from, o.KeyHeads), out[0].Ptr, out[1].Ptr, out[2].Ptr, dy, states, grads, int32(from))
	}
	return inOrder(all...), failed
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
