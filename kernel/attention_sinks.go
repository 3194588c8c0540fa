package kernel

import (
	"fmt"
	"math"
)

// AttentionSinks is Attention with a score of its own for each head that takes part in the softmax and has no value, an
// attention sink (transformers' GptOssAttention; Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023).
//
//	Attention's inputs, sinks w[H] -> o f[M,H*D], lse f[H,M]
//	lse = log(exp(lse without) + exp(sink)),  o = o without * exp(lse without - lse)
//
// Its gradient is Attention's for this o and lse: the sink's value is zero. The sinks are frozen. With Ranks they are those of all
// ranks' heads, w[Ranks*H], of which this one takes its own.
type AttentionSinks struct {
	Attention Attention
	Ranks     int // that have a share of the heads each, all as many; 0 = this one has all
}

func (AttentionSinks) Name() string { return "attention_sinks" }

func (o AttentionSinks) Shape(in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes attention's inputs and sinks, got no inputs")
	}
	last := len(in) - 1
	out, err := o.Attention.Shape(in[:last])
	if err != nil {
		return nil, err
	}
	if _, err := Want(in[last:], "w[H]"); err != nil {
		return nil, err
	}
	if n := o.Attention.Heads * max(o.Ranks, 1); in[last].Shape[0] != n {
		return nil, fmt.Errorf("input %d is %v, want a sink for each of %d heads", last, in[last], n)
	}
	return out, nil
}

func (o AttentionSinks) Grads() Backward {
	b := o.Attention.Grads()
	b.Grads = append(b.Grads, Ref{})
	return b
}

func (o AttentionSinks) Scratch(in []Type, workers int) int64 {
	return o.Attention.Scratch(in[:len(in)-1], workers)
}

func (o AttentionSinks) CPU(c *CPU, in, out []Tensor) func() {
	last := len(in) - 1
	attend := o.Attention.CPU(c, in[:last], out)
	sink := byFloat(in[0], attentionSinks[float32], attentionSinks[float64])(c, o, in[last], out)
	return func() { attend(); sink() }
}

func attentionSinks[F Float](c *CPU, o AttentionSinks, sinks Tensor, out []Tensor) func() {
	y, lse := Floats[F](out[0]), Floats[F](out[1])
	rows, width := out[0].Shape[0], out[0].Shape[1]
	heads := o.Attention.Heads
	size := width / heads
	all, load := frozenRow[F](sinks)
	s := all[c.share(o.Ranks)*heads:]
	return after(load, c.Range(rows, rowGrain(width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for h := range heads {
				l, sink := float64(lse[h*rows+i]), float64(s[h])
				top := max(l, sink)
				sum := top + math.Log(math.Exp(l-top)+math.Exp(sink-top))
				lse[h*rows+i] = F(sum)
				by := F(math.Exp(l - sum))
				row := y[i*width+h*size:][:size]
				for j := range row {
					row[j] *= by
				}
			}
		}
	}))
}

func (o AttentionSinks) Cost(in, out []Type, c Content) Cost {
	return Cost{moved(in, out), o.Attention.Cost(in[:len(in)-1], out, c).FLOPs}
}
