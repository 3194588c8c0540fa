package kernel

import (
	"errors"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// Attention is causal softmax attention over packed sequences, without a matrix of T*T scores
// (Dao et al., "FlashAttention", 2022; grouped heads: Ainslie et al., "GQA", 2023).
//
//	q f[M,H*D], k f[N,K*D], v f[N,K*D], cuQ i32[S+1], cuK i32[S+1] -> o f[M,H*D], lse f[H,M]
//	o = softmax(s) v,  lse = log(sum(exp(s))),  s = Scale * q kᵀ
//
// With Cap > 0 the scores are s = Cap * tanh(Scale * q kᵀ / Cap), a soft cap (Gemma Team, "Gemma 2", 2024).
//
// Sequence s has the queries cuQ[s]..cuQ[s+1] and the keys cuK[s]..cuK[s+1]. The last query sees all keys,
// the one before all but the last, and so on; with Window > 0 each sees only the last Window of them, its
// own included. Query head h reads key head h/(Heads/KVHeads). A query that sees no key, because it has
// none or is in no sequence, gives zeros, in lse too.
//
// With Prefixes there is one more input after cuK, prefix i32[S]: sequence s continues the sequence prefix[s], which
// lies before it. Its queries see the keys of that sequence, as if these came before its own. A number that is not from
// 0 to s-1 stands for none. So a prompt with several answers is computed once. Several sequences that continue the same
// one follow it immediately, and a sequence that others continue has no prefix.
//
// With Spans there is one more input after cuK, spans i32[2*M], which says how tokens of spans, such as those of an
// image, see one another in both directions: query i sees spans[2*i+1] keys of its sequence after its own too, and so
// the key of row i is seen by the spans[2*i] queries before its own. Both are zero outside of spans. The first key that
// a query sees stays: a window counts back from the query's own key.
type Attention struct {
	Heads, KVHeads int
	Scale          float64
	Window         int     // 0: no limit
	Cap            float64 // 0: none
	// Prefixes says that sequences may continue others.
	Prefixes bool
	// Spans says that tokens of spans see one another. It excludes Prefixes.
	Spans bool
	// keys of a sequence at most, where those have bounds of their own; 0: not known. It changes no number's meaning
	Longest int
}

func (Attention) Name() string { return "attention" }

func (o Attention) Shape(in []Type) ([]Type, error) {
	d, err := wantBounds(o, in, "f[M,E]", "f[N,L]", "f[N,L]", "i32[S]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if err := o.check(in, d, 0, 1, 2); err != nil {
		return nil, err
	}
	return []Type{in[0], T(in[0].DType, o.Heads, d.At('M'))}, nil
}

// wantBounds matches inputs with patterns, which end with sequence bounds i32[S], and with one more for prefixes or
// spans.
func wantBounds(o Attention, in []Type, patterns ...string) (Dims, error) {
	if o.Prefixes && o.Spans {
		return Dims{}, errors.New("attributes Prefixes and Spans exclude each other")
	}
	if !o.Prefixes && !o.Spans {
		return Want(in, patterns...)
	}
	d, err := Want(in, append(patterns, "i32[P]")...)
	last := len(in) - 1
	switch {
	case err != nil:
	case o.Prefixes && d.At('P') != d.At('S')-1:
		err = fmt.Errorf("input %d is %v, want a number for each of %d sequences", last, in[last], d.At('S')-1)
	case o.Spans && d.At('P') != 2*d.At('M'):
		err = fmt.Errorf("input %d is %v, want two numbers for each of %d tokens", last, in[last], d.At('M'))
	}
	return d, err
}

// bounded returns whether attention has one more input after the sequences' bounds: prefixes or spans.
func bounded(o Attention) bool { return o.Prefixes || o.Spans }

// addIf appends an element where a condition holds.
func addIf[E any](condition bool, all []E, one E) []E {
	if !condition {
		return all
	}
	return append(all, one)
}

func (o Attention) check(in []Type, d Dims, floats ...int) error {
	if err := sameElements(in, floats...); err != nil {
		return err
	}
	if o.Heads <= 0 || o.KVHeads <= 0 || o.Heads%o.KVHeads != 0 {
		return fmt.Errorf("%d heads over %d key heads, want a whole number for each", o.Heads, o.KVHeads)
	}
	if d.At('E')%o.Heads != 0 || d.At('E')/o.Heads*o.KVHeads != d.At('L') {
		return fmt.Errorf("queries are %v with %d heads, keys %v with %d: the head sizes must agree", in[0], o.Heads,
			in[1], o.KVHeads)
	}
	if d.At('E') == 0 {
		return fmt.Errorf("queries are %v: the heads are empty", in[0])
	}
	if !(o.Scale > 0) {
		return fmt.Errorf("attribute Scale is %v, want more than zero", o.Scale)
	}
	if !(o.Cap >= 0) || math.IsInf(o.Cap, 0) {
		return fmt.Errorf("attribute Cap is %v, want a number above zero, or zero for none", o.Cap)
	}
	if o.Window < 0 {
		return fmt.Errorf("attribute Window is %d, want zero or more", o.Window)
	}
	if d.At('S') < 1 {
		return fmt.Errorf("the sequence bounds are i32[0], want one more than there are sequences")
	}
	return nil
}

func (o Attention) Grads() Backward {
	refs := []Ref{In(0), In(1), In(2), Out(0), Out(1), Upstream(), In(3), In(4)}
	grads := []Ref{FromCall(0, 0), FromCall(0, 1), FromCall(0, 2), {}, {}}
	return Backward{
		Calls: []Call{{AttentionGrad(o), addIf(bounded(o), refs, In(5))}},
		Grads: addIf(bounded(o), grads, Ref{}),
	}
}

func (o Attention) Scratch(in []Type, workers int) int64 {
	return int64(workers) * o.forwardSlot(in[0].DType, in[0].Shape[1]/o.Heads)
}

// forwardSlot and backwardSlot are the scratch of a worker in bytes, see attentionSlot.
func (o Attention) forwardSlot(d DType, head int) int64 {
	return attentionSlot(d.Size(), head, o.Heads/o.KVHeads, 2, 1, 2)
}

func (o Attention) backwardSlot(d DType, head int) int64 {
	return attentionSlot(d.Size(), head, o.Heads/o.KVHeads, 3, 2, 1)
}

func (o Attention) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], attention[float32], attention[float64])(c, o, in, out)
}

// AttentionGrad are the gradients of Attention for q, k and v.
//
//	q, k, v, o, lse, do f[M,H*D], cuQ, cuK -> dq f[M,H*D], dk f[N,K*D], dv f[N,K*D]
//	p = exp(s - lse),  ds = Scale * p * (do vᵀ - rowsum(do*o)),  dq = ds k,  dk = dsᵀ q,  dv = pᵀ do
//
// with s, prefix and spans as there. With Cap > 0 ds has the factor 1 - (s/Cap)² besides.
type AttentionGrad Attention

func (AttentionGrad) Name() string { return "attention_grad" }

func (o AttentionGrad) Shape(in []Type) ([]Type, error) {
	d, err := wantBounds(Attention(o), in, "f[M,E]", "f[N,L]", "f[N,L]", "f[M,E]", "f[H,M]", "f[M,E]", "i32[S]",
		"i32[S]")
	if err != nil {
		return nil, err
	}
	if err := Attention(o).check(in, d, 0, 1, 2, 3, 4, 5); err != nil {
		return nil, err
	}
	if d.At('H') != o.Heads {
		return nil, fmt.Errorf("input 4 is %v, want %d rows, one for each head", in[4], o.Heads)
	}
	return []Type{in[0], in[1], in[2]}, nil
}

func (o AttentionGrad) Scratch(in []Type, workers int) int64 {
	return 2*o.partialBytes(in[1]) + int64(workers)*Attention(o).backwardSlot(in[0].DType, in[0].Shape[1]/o.Heads)
}

func (o AttentionGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], attentionGrad[float32], attentionGrad[float64])(c, o, in, out)
}

func (o Attention) Cost(in, out []Type, c Content) Cost {
	return Cost{moved(in, out), o.flops(in[0], in[1].Shape[0], in[3].Shape[0]-1, 2, c)}
}

func (o AttentionGrad) Cost(in, out []Type, c Content) Cost {
	return Cost{moved(in, out), Attention(o).flops(in[0], in[1].Shape[0], in[6].Shape[0]-1, 5, c)}
}

func (o Attention) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, ComputeType, ComputeType, I32, I32}
	return addIf(bounded(o), want, I32), []DType{ComputeType, F32}
}

// ErrPrefixesGPU is the error of attention over sequences that continue others which GPUs have no kernel for.
var ErrPrefixesGPU = errors.New("attention over sequences that continue others has no kernel for it on GPUs")

// CheckPrefixesGPU returns why GPUs cannot compute attention over sequences that continue others with heads of a size,
// nil if they can.
func (o Attention) CheckPrefixesGPU(head int) error {
	if o.Window > 0 || o.Cap > 0 || head > cuda.PrefixedHead {
		return fmt.Errorf("%w: heads of %d, window %d, soft cap %v; heads of up to %d without window and cap have some",
			ErrPrefixesGPU, head, o.Window, o.Cap, cuda.PrefixedHead)
	}
	return nil
}

// ErrSpansGPU is the error of attention over spans, which GPUs have no kernel for.
var ErrSpansGPU = errors.New("attention over tokens that see later ones, such as those of Gemma 3's images, has no " +
	"kernel on GPUs: use device: cpu, or rows without images")

// geometry plans both directions, so that they are always of one family; y is the type of attention's output.
func (o Attention) geometry(y Type, sm int) (a cuda.Attention, D int, err error) {
	if o.Spans {
		return a, 0, ErrSpansGPU
	}
	D = y.Shape[1] / o.Heads
	family, err := cuda.AttentionFamily(y.DType.String(), sm, D)
	if err != nil {
		return a, D, err
	}
	plan := cuda.NewAttention
	if o.Prefixes {
		plan = cuda.NewPrefixedAttention
	}
	a, err = plan(family, y.Shape[0], o.Heads, o.KVHeads, D)
	if err == nil && o.Cap > 0 {
		a = a.Capped()
	}
	if err == nil && o.Prefixes {
		err = o.CheckPrefixesGPU(D)
	}
	return a, D, err
}

// CheckGPU refuses head sizes without kernels. Keys of a cache have other kernels than keys of the queries' own bounds,
// for the same head sizes.
func (o Attention) CheckGPU(_, out []Type, _ int) error {
	if o.Spans {
		return ErrSpansGPU
	}
	if o.Prefixes {
		return o.CheckPrefixesGPU(out[0].Shape[1] / o.Heads)
	}
	_, err := cuda.HeadSize(out[0].Shape[1] / o.Heads)
	return err
}

func (o AttentionGrad) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, ComputeType, ComputeType, ComputeType, F32, ComputeType, I32, I32}
	return addIf(bounded(Attention(o)), want, I32), []DType{ComputeType, ComputeType, ComputeType}
}

// deltaBytes returns the scratch for the rows' sums of o dO.
func (o AttentionGrad) deltaBytes(q Type) int64 {
	return (int64(o.Heads)*int64(q.Shape[0])*4 + 255) &^ 255
}

func (o AttentionGrad) CheckGPU(in, _ []Type, sm int) error {
	_, _, err := Attention(o).geometry(in[3], sm)
	return err
}

func (o AttentionGrad) ScratchGPU(in, _ []Type, sm int) int64 { return o.scratch(in[3], sm) }

// scratch returns what attention's gradient needs; y is the type of attention's output.
func (o AttentionGrad) scratch(y Type, sm int) int64 {
	a, _, err := Attention(o).geometry(y, sm)
	if err != nil {
		return 0 // the forward body reports it
	}
	return o.deltaBytes(y) + a.Part
}

// AttentionSinks is Attention with a score of its own for each head that takes part in the softmax and has no value, an
// attention sink (transformers' GptOssAttention; Xiao et al., "Efficient Streaming Language Models with Attention
// Sinks", 2023).
//
//	Attention's inputs, sinks w[H] -> o f[M,H*D], lse f[H,M]
//	lse = log(exp(lse without) + exp(sink)),  o = o without * exp(lse without - lse)
//
// Its gradient is Attention's for this o and lse: the sink's value is zero. The sinks are frozen. With Ranks they are
// those of all ranks' heads, w[Ranks*H], of which this one takes its own.
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

// groupedFrom returns how attention of types in runs on attention_grouped_*; ok is false where it does not.
func groupedFrom(o Attention, in []Type) (a cuda.AttentionSplit, ok bool) {
	M, S, elem := in[0].Shape[0], in[3].Shape[0]-1, in[0].DType.String()
	if cuda.ServesPrompt(elem, M, S) {
		return a, false
	}
	return cuda.NewAttentionGrouped(elem, M, o.Heads, o.KVHeads, in[0].Shape[1]/o.Heads, o.Longest, o.Cap > 0)
}

// ScratchGPU returns the bytes that the split form keeps between its two launches.
func (o Attention) ScratchGPU(in, _ []Type, _ int) int64 {
	if a, ok := groupedFrom(o, in); ok {
		return a.PartBytes + a.Stat
	}
	a, ok, err := cuda.NewAttentionSplit(in[0].Shape[0], o.Heads, in[0].Shape[1]/o.Heads, o.Longest, o.Cap > 0)
	if !ok || err != nil {
		return 0
	}
	return a.PartBytes + a.Stat
}

// slow says whether attention whose output is of type y goes by mma.sync on a device whose fast kernels are wgmma's.
func (o Attention) slow(y Type, sm int) SlowPath {
	a, D, err := o.geometry(y, sm)
	if err != nil || sm != 90 || a.Family != cuda.MMA {
		return SlowPath{}
	}
	cost := NotMeasured
	switch {
	case D > 256:
		cost = "heads of 512 reach 103 and 74 TFLOP/s forward and backward where heads of 256 reach 192 and 94 " +
			"(H200, docs/internals/decisions/0094-heads-of-512.md)"
	case D > 128:
		cost = "heads of 256 reach 177 and 100 TFLOP/s forward and backward where heads of 128 reach 490 and " +
			"310 to 350 (H200, docs/internals/PERFORMANCE.md)"
	}
	return SlowPath{fmt.Sprintf("attention over heads of %d runs on mma.sync: compute capability 9.0 has wgmma "+
		"kernels for heads of 40 to 128", D),
		cost, "none for this model; without training.strict the run goes by it"}
}

func (o Attention) SlowGPU(_, out []Type, sm int) SlowPath { return o.slow(out[0], sm) }

func (o AttentionQKV) SlowGPU(_, out []Type, sm int) SlowPath { return Attention(o).slow(out[0], sm) }

func (o AttentionSinks) Stored(in []DType) (want, out []DType) {
	want, out = o.Attention.Stored(in)
	return append(want, ComputeType), out
}

func (o AttentionSinks) ScratchGPU(in, out []Type, sm int) int64 {
	return o.Attention.ScratchGPU(in[:len(in)-1], out, sm)
}
