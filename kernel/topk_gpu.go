//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/cuda"

// GPU computes a chunk's logits, and then its rows' most likely tokens.
func (o LinearTopK) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, V := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	rowBytes := int64(C) * int64(in[0].DType.Size())
	scratch := g.Scratch.Add(logitBytes(o.Chunk, in[0].Type, in[1].Type))
	var work []func() error
	for row := 0; row < M; row += o.Chunk {
		rows, at := min(o.Chunk, M-row), int64(row)*4
		logits, _ := headGEMMs(in[0].Type, in[1].Type, rows)
		forward, err := logits.bind(g, g.Scratch, in[0].Ptr.Add(int64(row)*rowBytes), in[1].Ptr, scratch)
		if err != nil {
			return nil, err
		}
		find, err := g.Launch(cuda.TopK(rows, V), out[0].Ptr.Add(at*int64(o.K)), out[1].Ptr.Add(at*int64(o.K+1)),
			g.Scratch, in[2].Ptr.Add(at), int32(V), int32(V), int32(o.K), float32(1/o.Temperature), float32(o.Cap))
		if err != nil {
			return nil, err
		}
		work = append(work, forward, find)
	}
	return inOrder(work...), nil
}
