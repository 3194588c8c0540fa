//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU queues for every chunk the logits, the rows' losses and the gradients, one after the other, and then the sum.
func (o LinearCrossEntropy) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	dw, in, out := takeHeadGradient(o.Head, in, out)
	M, C, V := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	rowBytes := int64(C) * int64(in[0].DType.Size()) // of x and dx
	loss, nll := out[0], out[len(out)-1]
	scratch := g.Scratch.Add(logitBytes(o.Chunk, in[0].Type, in[1].Type))
	var work []func() error
	for row := 0; row < M; row += o.Chunk {
		rows := min(o.Chunk, M-row)
		x, labels, losses := in[0].Ptr.Add(int64(row)*rowBytes), in[2].Ptr.Add(int64(row)*4), nll.Ptr.Add(int64(row)*4)
		logits, back := headGEMMs(in[0].Type, in[1].Type, rows)
		forward, err := logits.bind(g, g.Scratch, x, in[1].Ptr, scratch)
		if err != nil {
			return nil, err
		}
		if !o.Grad {
			l, err := o.launch(g, "crossentropy_loss", rows, V, losses, g.Scratch, labels, int32(V), int32(V))
			if err != nil {
				return nil, err
			}
			work = append(work, forward, l)
			continue
		}
		l, err := o.launch(g, "crossentropy_gradient", rows, V, losses, g.Scratch, labels, in[3].Ptr,
			scalingAt(o.Scaled, in), int32(V), int32(V))
		if err != nil {
			return nil, err
		}
		if work = append(work, forward, l); o.Head != HeadFrozen {
			head, err := o.Head.bindPart(g, dw, in[0].Type, x, rows, row == 0, scratch)
			if err != nil {
				return nil, err
			}
			work = append(work, head)
		}
		backward, err := back.bind(g, out[1].Ptr.Add(int64(row)*rowBytes), g.Scratch, in[1].Ptr, scratch)
		if err != nil {
			return nil, err
		}
		work = append(work, backward)
	}
	sum, err := g.Launch(cuda.Sum("reduce", "reduce_sum"), loss.Ptr, nll.Ptr, int32(M), in[3].Ptr, int32(0))
	if err != nil {
		return nil, err
	}
	return inOrder(append(work, sum)...), nil
}

// launch binds a launch over a chunk's logits; with a soft cap it takes the entry point for capped logits.
func (o LinearCrossEntropy) launch(g *GPU, entry string, rows, V int, args ...any) (func() error, error) {
	if o.Cap > 0 {
		entry, args = entry+"_capped", append(args, float32(o.Cap))
	}
	return g.Launch(cuda.CrossEntropy(entry, rows, V), args...)
}

// bindPart binds the part of some rows in the gradient for the vocabulary matrix, from their logits' gradients at the
// start of the scratch memory.
func (h HeadGradient) bindPart(g *GPU, dw DeviceTensor, of Type, x gpu.Ptr, rows int, first bool, scratch gpu.Ptr) (
	func() error, error) {
	beta := float32(1)
	if first && h == HeadTrained {
		beta = 0
	}
	return headGradientGEMM(of, dw.Type, rows, beta).bind(g, dw.Ptr, g.Scratch, x, scratch)
}
