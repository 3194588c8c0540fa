//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
)

// GPU computes lengths, similarities with the anchors' losses, the sums, and the gradient.
func (o ContrastiveLoss) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	S, C := in[0].Shape[0], in[0].Shape[1]
	numbers := func(n int) int64 { return 8 * int64(n) }
	similar, lengths := g.Scratch, g.Scratch.Add(numbers(S*S))
	logSums, parts := lengths.Add(numbers(S)), lengths.Add(numbers(2*S))
	vectors, targets, scale := in[0].Ptr, in[1].Ptr, in[2].Ptr
	dots := int32(0)
	if o.Dot {
		dots = 1
	}
	type launch struct {
		at   cuda.Geometry
		args []any
	}
	launches := []launch{
		{cuda.ContrastLengths(S), []any{lengths, vectors, int32(S), int32(C), dots}},
		{cuda.Contrast("contrastive_anchors", S), []any{similar, logSums, parts, lengths, vectors, targets, int32(S),
			int32(C), double(o.Temperature)}},
		{cuda.Contrast("contrastive_sums", 1), append(pointers([]any{out[0].Ptr}, out[len(out)-contrastSums:]...),
			parts, scale, int32(S))},
	}
	if o.Grad {
		args := []any{out[1].Ptr, similar, logSums, lengths, vectors, targets, scale, scalingAt(o.Scaled, in), int32(S),
			int32(C), double(o.Temperature), dots}
		launches = append(launches, launch{cuda.Contrast("contrastive_gradient", S), args})
	}
	work := make([]func() error, len(launches))
	for i, l := range launches {
		var err error
		if work[i], err = g.Launch(l.at, l.args...); err != nil {
			return nil, err
		}
	}
	return inOrder(work...), nil
}
