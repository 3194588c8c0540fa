//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU queues for every chunk the logits, the rows' losses and the gradient, one after the other, and then the sums.
func (o SmoothedCrossEntropy) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	dw, in, out := takeHeadGradient(o.Head, in, out)
	M, C, V := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	rowBytes := int64(C) * int64(in[0].DType.Size()) // of x and dx
	loss, each, sums := out[0], out[len(out)-3], out[len(out)-2:]
	nll := g.Scratch.Add(logitBytes(o.Chunk, in[0].Type, in[1].Type))
	squares := nll.Add(rowNumbers(M))
	scratch := squares.Add(rowNumbers(M))
	weights := gpu.Ptr(0)
	if o.Weighted {
		weights = in[4].Ptr
	}
	var work []func() error
	for row := 0; row < M; row += o.Chunk {
		rows, at := min(o.Chunk, M-row), int64(row)*4
		logits, back := headGEMMs(in[0].Type, in[1].Type, rows)
		forward, err := logits.bind(g, g.Scratch, in[0].Ptr.Add(int64(row)*rowBytes), in[1].Ptr, scratch)
		if err != nil {
			return nil, err
		}
		ofRows := weights
		if ofRows != 0 {
			ofRows = ofRows.Add(at)
		}
		l, err := o.launch(g, rows, V, each.Ptr.Add(at), nll.Add(at), squares.Add(at), g.Scratch, in[2].Ptr.Add(at),
			ofRows, in[3].Ptr, scalingAt(o.Scaled, in), float32(o.Smoothing), float32(o.ZLoss), int32(V), int32(V))
		if err != nil {
			return nil, err
		}
		work = append(work, forward, l)
		if !o.Grad {
			continue
		}
		if o.Head != HeadFrozen {
			head, err := o.Head.bindPart(g, dw, in[0].Type, in[0].Ptr.Add(int64(row)*rowBytes), rows, row == 0, scratch)
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
	for _, s := range []struct{ to, of, scale gpu.Ptr }{
		{loss.Ptr, each.Ptr, in[3].Ptr}, {sums[0].Ptr, nll, 0}, {sums[1].Ptr, squares, 0},
	} {
		sum, err := g.Launch(cuda.Sum("reduce", "reduce_sum"), s.to, s.of, int32(M), s.scale, int32(0))
		if err != nil {
			return nil, err
		}
		work = append(work, sum)
	}
	return inOrder(work...), nil
}

// launch binds a launch over a chunk's logits; with a soft cap it takes the entry point for capped logits.
func (o SmoothedCrossEntropy) launch(g *GPU, rows, V int, args ...any) (func() error, error) {
	entry := "smoothed_crossentropy_loss"
	if o.Grad {
		entry = "smoothed_crossentropy_gradient"
	}
	if o.Cap > 0 {
		entry, args = entry+"_capped", append(args, float32(o.Cap))
	}
	return g.Launch(cuda.SmoothedCrossEntropy(entry, rows, V), args...)
}
