//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU sums all answers in one block.
func (AnswerSums) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	args := pointers(pointers(nil, out...), in...)
	return g.Launch(cuda.AnswerSums(), append(args, int32(in[1].Shape[0]), int32(in[2].Shape[0]),
		int32(in[2].Shape[1]))...)
}
