//go:build gpu

package kernel

import (
	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// GPU queues for every chunk the logits, the statistics and the slopes, one after the other.
func (o LinearLogProbs) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C, V := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	rowBytes := int64(C) * int64(in[0].DType.Size()) // of x and of slopes
	matrix := logitBytes(o.Chunk, in[0].Type, in[1].Type)
	scratch := g.Scratch.Add(matrix * int64(max(1, o.slopes())))
	entropies, reported := gpu.Ptr(0), gpu.Ptr(0)
	if o.Statistics {
		reported, out = out[len(out)-1].Ptr, out[:len(out)-1]
	}
	switch o.Entropy {
	case EntropyConstant:
		entropies = out[len(out)-1].Ptr
	case EntropyDifferentiable:
		entropies = out[0].Ptr.Add(int64(M) * 4)
	}
	var work []func() error
	for row := 0; row < M; row += o.Chunk {
		rows := min(o.Chunk, M-row)
		logits, back := headGEMMs(in[0].Type, in[1].Type, rows)
		forward, err := logits.bind(g, g.Scratch, in[0].Ptr.Add(int64(row)*rowBytes), in[1].Ptr, scratch)
		if err != nil {
			return nil, err
		}
		at := int64(row) * 4
		ofRows := entropies
		if ofRows != 0 {
			ofRows = ofRows.Add(at)
		}
		args := []any{out[0].Ptr.Add(at), ofRows, g.Scratch}
		if o.slopes() == 2 {
			args = append(args, g.Scratch.Add(matrix))
		}
		statistics, err := o.launch(g, rows, V, append(args, in[2].Ptr.Add(at), int32(V), int32(V))...)
		if err != nil {
			return nil, err
		}
		work = append(work, forward)
		if o.Statistics { // the log-probabilities overwrite the logits
			statistics, err := g.Launch(cuda.LogitStatistics(rows, V), reported.Add(at), g.Scratch, in[2].Ptr.Add(at),
				int32(V), int32(V), int32(M), float32(o.Cap))
			if err != nil {
				return nil, err
			}
			work = append(work, statistics)
		}
		if o.Entropy == EntropyCollision { // the statistics overwrite the logits
			collision, err := g.Launch(cuda.Collision(rows, V), out[len(out)-1].Ptr.Add(at), g.Scratch,
				in[2].Ptr.Add(at), int32(V), int32(V), float32(o.Cap))
			if err != nil {
				return nil, err
			}
			work = append(work, collision)
		}
		work = append(work, statistics)
		for i := range o.slopes() {
			w, err := back.bind(g, out[1+i].Ptr.Add(int64(row)*rowBytes), g.Scratch.Add(int64(i)*matrix), in[1].Ptr,
				scratch)
			if err != nil {
				return nil, err
			}
			work = append(work, w)
		}
	}
	return inOrder(work...), nil
}

// launch binds a launch over a chunk's logits; with a soft cap it takes the entry point for capped logits.
func (o LinearLogProbs) launch(g *GPU, rows, V int, args ...any) (func() error, error) {
	entry := [...]string{"logprobs_values", "logprobs_slopes", "logprobs_both"}[o.slopes()]
	if o.Cap > 0 {
		entry, args = entry+"_capped", append(args, float32(o.Cap))
	}
	return g.Launch(cuda.LogProbs(entry, rows, V), args...)
}

// GPU weighs the slopes.
func (o LinearLogProbsGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, C := in[2].Shape[0], in[2].Shape[1]
	entropySlope := gpu.Ptr(0)
	if o.Entropy {
		entropySlope = in[3].Ptr
	}
	return g.Launch(cuda.LogProbsGradient(M, C), out[0].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, entropySlope, int32(M),
		int32(C))
}
