//go:build gpu

package kernel

import (
	"errors"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// arguments returns the inputs and sizes that all kernels of the scan end with.
func (o StateSpace) arguments(in []DeviceTensor) []any {
	most := math.Inf(1)
	if o.MaxStep > 0 {
		most = o.MaxStep
	}
	return []any{in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr, int32(in[0].Shape[0]),
		int32(in[4].Shape[0] - 1), int32(o.Heads), int32(o.Groups), int32(o.headSize(in[0].Type)), int32(o.State),
		float32(o.MinStep), float32(most)}
}

// GPU binds the launch.
func (o StateSpace) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	at := cuda.StateSpace(cuda.StateSpaceForward, in[4].Shape[0]-1, o.Heads, 1, o.headSize(in[0].Type), o.State)
	return g.Launch(at, append([]any{out[0].Ptr}, o.arguments(in)...)...)
}

// GPU binds the launches: forward over the tokens, backward over them, and the sum of the shares.
func (o StateSpaceGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	rule, s, dy := StateSpace(o), o.scratch(in[0].Type), in[5].Ptr
	sums, read, rest := g.Scratch, g.Scratch.Add(s.Read), rule.arguments(in)
	at := func(entry cuda.StateSpaceEntry) cuda.Geometry {
		return cuda.StateSpace(entry, in[4].Shape[0]-1, o.Groups, s.Shares, rule.headSize(in[0].Type), o.State)
	}
	forward, err1 := g.Launch(at(cuda.StateSpaceGradForward), append([]any{out[0].Ptr, sums, read, dy}, rest...)...)
	backward, err2 := g.Launch(at(cuda.StateSpaceGradBackward), append([]any{out[0].Ptr, sums, read, dy}, rest...)...)
	sum, err3 := g.Launch(cuda.StateSpaceSum(in[0].Shape[0], in[0].Shape[1]),
		append([]any{out[0].Ptr, sums, int32(s.Shares)}, rest...)...)
	return inOrder(forward, backward, sum), errors.Join(err1, err2, err3)
}

// GPU binds the launch.
func (o StateSpaceCached) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	at := cuda.StateSpace(cuda.StateSpaceCached, in[4].Shape[0]-1, o.Scan.Heads, 1, o.Scan.headSize(in[0].Type),
		o.Scan.State)
	return g.Launch(at, append([]any{out[0].Ptr, out[1].Ptr, in[5].Ptr, int32(in[6].Shape[0]), int32(o.Tokens)},
		o.Scan.arguments(in)...)...)
}
