package kernel

import "fmt"

// AttentionQKV is Attention of queries, keys and values that lie side by side, as a fused projection makes them. None
// is copied: they are read, and their gradients written, in rows of all three.
//
//	qkv f[M,(H+2K)*D], cu i32[S+1] -> o f[M,H*D], lse f[H,M]
//
// A row is H heads of queries, K of keys, K of values. Queries and keys have the same sequence bounds. With Prefixes
// there is one more input after cu, Attention's prefix; with Spans there are its spans.
type AttentionQKV Attention

func (AttentionQKV) Name() string { return "attention_qkv" }

func (o AttentionQKV) Shape(in []Type) ([]Type, error) {
	if _, err := wantBounds(Attention(o), in, "f[M,W]", "i32[S]"); err != nil {
		return nil, err
	}
	if o.Heads <= 0 || o.KVHeads <= 0 {
		return nil, fmt.Errorf("%d heads over %d key heads, want one or more of each", o.Heads, o.KVHeads)
	}
	if heads := o.Heads + 2*o.KVHeads; in[0].Shape[1]%heads != 0 {
		return nil, fmt.Errorf("input 0 is %v, want rows of %d heads: %d of queries, %d of keys, %d of values", in[0],
			heads, o.Heads, o.KVHeads, o.KVHeads)
	}
	q, k := o.parts(in[0])
	return Attention(o).Shape(append([]Type{q, k, k, in[1]}, in[1:]...))
}

// head returns the size of a head.
func (o AttentionQKV) head(qkv Type) int { return qkv.Shape[1] / (o.Heads + 2*o.KVHeads) }

// parts returns the types of queries and of keys, or values, by themselves.
func (o AttentionQKV) parts(qkv Type) (q, k Type) {
	D := o.head(qkv)
	return T(qkv.DType, qkv.Shape[0], o.Heads*D), T(qkv.DType, qkv.Shape[0], o.KVHeads*D)
}

func (o AttentionQKV) Grads() Backward {
	refs := []Ref{In(0), Out(0), Out(1), Upstream(), In(1)}
	return Backward{
		Calls: []Call{{AttentionQKVGrad(o), addIf(bounded(Attention(o)), refs, In(2))}},
		Grads: addIf(bounded(Attention(o)), []Ref{FromCall(0, 0), {}}, Ref{}),
	}
}

func (o AttentionQKV) Scratch(in []Type, workers int) int64 {
	return int64(workers) * Attention(o).forwardSlot(in[0].DType, o.head(in[0]))
}

func (o AttentionQKV) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], attentionQKV[float32], attentionQKV[float64])(c, o, in, out)
}

func attentionQKV[F Float](c *CPU, o AttentionQKV, in, out []Tensor) func() {
	q, k, v := qkvParts(o, in[0].Type, Floats[F](in[0]))
	return attend(c, Attention(o), qkvShape[F](o, in[0], in[1:]), q, k, v, out)
}

// qkvShape returns the shape of attention over qkv; bounds are the sequences' and, where there are some, prefixes or
// spans.
func qkvShape[F Float](o AttentionQKV, qkv Tensor, bounds []Tensor) attentionShape[F] {
	q, k := o.parts(qkv.Type)
	s := newAttentionShape[F](Attention(o), Tensor{Type: q}, Tensor{Type: k}, append(bounds[:1:1], bounds...))
	s.queryWidth, s.keyWidth = qkv.Shape[1], qkv.Shape[1]
	return s
}

// qkvParts returns the rows of x, seen from the first query, key and value.
func qkvParts[F Float](o AttentionQKV, qkv Type, x []F) (q, k, v []F) {
	if len(x) == 0 {
		return nil, nil, nil
	}
	D := o.head(qkv)
	return x, x[o.Heads*D:], x[(o.Heads+o.KVHeads)*D:]
}

// AttentionQKVGrad is the gradient of AttentionQKV: AttentionGrad's, side by side as queries, keys and values are.
//
//	qkv f[M,(H+2K)*D], o f[M,H*D], lse f[H,M], do f[M,H*D], cu i32[S+1] -> dqkv f[M,(H+2K)*D]
type AttentionQKVGrad Attention

func (AttentionQKVGrad) Name() string { return "attention_qkv_grad" }

func (o AttentionQKVGrad) Shape(in []Type) ([]Type, error) {
	inputs := 5
	if bounded(Attention(o)) {
		inputs = 6
	}
	if len(in) != inputs {
		return nil, fmt.Errorf("takes %d inputs, got %d", inputs, len(in))
	}
	out, err := AttentionQKV(o).Shape(append([]Type{in[0]}, in[4:]...))
	if err != nil {
		return nil, err
	}
	for i, want := range []Type{out[0], out[1], out[0]} {
		if !in[i+1].Equal(want) {
			return nil, fmt.Errorf("input %d is %v, want %v", i+1, in[i+1], want)
		}
	}
	return []Type{in[0]}, nil
}

func (o AttentionQKVGrad) Scratch(in []Type, workers int) int64 {
	_, k := AttentionQKV(o).parts(in[0])
	return 2*AttentionGrad(o).partialBytes(k) + int64(workers)*Attention(o).backwardSlot(in[0].DType,
		AttentionQKV(o).head(in[0]))
}

func (o AttentionQKVGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], attentionQKVGrad[float32], attentionQKVGrad[float64])(c, o, in, out)
}

func attentionQKVGrad[F Float](c *CPU, o AttentionQKVGrad, in, out []Tensor) func() {
	f := AttentionQKV(o)
	b := &attentionBackward[F]{attentionShape: qkvShape[F](f, in[0], in[4:]), o: Floats[F](in[1]),
		lse: Floats[F](in[2]), do: Floats[F](in[3])}
	b.q, b.k, b.v = qkvParts(f, in[0].Type, Floats[F](in[0]))
	b.dq, b.dk, b.dv = qkvParts(f, in[0].Type, Floats[F](out[0]))
	_, k := f.parts(in[0].Type)
	return differentiateAttention(c, AttentionGrad(o), b, k)
}

func (o AttentionQKV) Cost(in, out []Type, c Content) Cost {
	return Cost{moved(in, out), Attention(o).flops(out[0], out[0].Shape[0], in[1].Shape[0]-1, 2, c)}
}

func (o AttentionQKVGrad) Cost(in, out []Type, c Content) Cost {
	return Cost{moved(in, out), Attention(o).flops(in[1], in[1].Shape[0], in[4].Shape[0]-1, 5, c)}
}

func (o AttentionQKV) Stored([]DType) (want, out []DType) {
	return addIf(bounded(Attention(o)), []DType{ComputeType, I32}, I32), []DType{ComputeType, F32}
}

func (o AttentionQKV) CheckGPU(_, out []Type, sm int) error {
	_, _, err := Attention(o).geometry(out[0], sm)
	return err
}

func (o AttentionQKVGrad) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, ComputeType, F32, ComputeType, I32}
	return addIf(bounded(Attention(o)), want, I32), []DType{ComputeType}
}

func (o AttentionQKVGrad) CheckGPU(in, _ []Type, sm int) error {
	_, _, err := Attention(o).geometry(in[1], sm)
	return err
}

func (o AttentionQKVGrad) ScratchGPU(in, _ []Type, sm int) int64 {
	return AttentionGrad(o).scratch(in[1], sm)
}
