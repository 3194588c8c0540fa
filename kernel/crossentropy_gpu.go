//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

func (o LinearCrossEntropy) Stored([]DType) (want, out []DType) {
	want = storedScaling(o.Scaled, ComputeType, ComputeType, I32, F32)
	if o.Grad {
		return want, []DType{F32, ComputeType, F32}
	}
	return want, []DType{F32, F32}
}

// logitBytes is the scratch for a chunk's logits.
func (o LinearCrossEntropy) logitBytes(x, w Type) int64 {
	return (int64(o.rows(x))*int64(w.Shape[0])*int64(x.DType.Size()) + 255) &^ 255
}

func (o LinearCrossEntropy) ScratchGPU(in, _ []Type, sm int) int64 {
	logits, back := o.ops(in[0], in[1], o.rows(in[0]))
	return o.logitBytes(in[0], in[1]) + max(logits.scratch(sm), back.scratch(sm))
}

// ops are a chunk's logits = x wᵀ and dx = dlogits w, for rows of the chunk.
func (o LinearCrossEntropy) ops(x, w Type, rows int) (logits, back gemmOp) {
	V, C := w.Shape[0], w.Shape[1]
	d := x.DType
	return gemmOp{m: rows, n: V, k: C, transB: true, alpha: 1, operand: d, out: d}, gemmOp{m: rows, n: C, k: V, alpha: 1, operand: d, out: d}
}

func (o LinearCrossEntropy) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, V := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	rowBytes := int64(C) * int64(in[0].DType.Size()) // of x and dx
	loss, nll := out[0], out[len(out)-1]
	scratch := g.Scratch.Add(o.logitBytes(in[0].Type, in[1].Type))
	var work []func() error
	for row := 0; row < M; row += o.Chunk {
		rows := min(o.Chunk, M-row)
		x, labels, losses := in[0].Ptr.Add(int64(row)*rowBytes), in[2].Ptr.Add(int64(row)*4), nll.Ptr.Add(int64(row)*4)
		logits, back := o.ops(in[0].Type, in[1].Type, rows)
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
		l, err := o.launch(g, "crossentropy_gradient", rows, V, losses, g.Scratch, labels, in[3].Ptr, scalingAt(o.Scaled, in), int32(V), int32(V))
		if err != nil {
			return nil, err
		}
		backward, err := back.bind(g, out[1].Ptr.Add(int64(row)*rowBytes), g.Scratch, in[1].Ptr, scratch)
		if err != nil {
			return nil, err
		}
		work = append(work, forward, l, backward)
	}
	sum, err := g.Launch(cuda.Sum("reduce", "reduce_sum"), loss.Ptr, nll.Ptr, int32(M), in[3].Ptr, int32(0))
	if err != nil {
		return nil, err
	}
	return inOrder(append(work, sum)...), nil
}

// launch binds a launch over a chunk's logits: of the capped form, which takes the cap too, where there is one.
func (o LinearCrossEntropy) launch(g *GPU, entry string, rows, V int, args ...any) (func() error, error) {
	if o.Cap > 0 {
		entry, args = entry+"_capped", append(args, float32(o.Cap))
	}
	return g.Launch(cuda.CrossEntropy(entry, rows, V), args...)
}
