//go:build gpu

package kernel

import (
	"errors"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/gpu"
)

var errKeyBounds = errors.New("the gradient for keys with sequence bounds of their own (a cache) is not " +
	"supported on the GPU")

func (o Attention) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	if in[3].Ptr == in[4].Ptr {
		return o.attend(g, in[0], in[1], in[2], in[3:], out)
	}
	if o.Prefixes {
		return nil, errKeyBounds
	}
	return o.cached(g, in, out)
}

// attend is attention of q, k and v where they lie: of each the address of its first head, and from row to row as many
// elements as its type has columns. bounds begin with the sequences' bounds and end with the prefixes, if there
// are any.
func (o Attention) attend(g *GPU, q, k, v DeviceTensor, bounds, out []DeviceTensor) (func() error, error) {
	y, lse, cu := out[0].Ptr, out[1].Ptr, bounds[0]
	a, D, err := o.geometry(out[0].Type, g.Device.SM())
	if err != nil {
		return nil, err
	}
	ldq, ldk, ldo := int32(q.Shape[1]), int32(k.Shape[1]), int32(o.Heads*D)
	if a.Family == cuda.Hopper {
		m := o.maps(g, D)
		order, sort := m.order(a, cuda.OrderForward, q, cu)
		args := []any{y, lse, m.q(q, a.Boxes.ForwardQ), m.k(k, a.Boxes.ForwardK), m.k(v, a.Boxes.ForwardK), cu.Ptr,
			order}
		work, err := m.launch(a.Forward, o.args(args, q, bounds, D, ldo))
		return inOrder(sort, work), err
	}
	return g.Launch(a.Forward, o.args([]any{y, lse, q.Ptr, k.Ptr, v.Ptr, cu.Ptr}, q, bounds, D, ldq, ldk, ldo)...)
}

// args returns a launch's arguments: buffers, sizes, row strides, scale, window and, if there is one, the cap. Launches
// over sequences that continue others take the prefixes in place of the window.
func (o Attention) args(buffers []any, q DeviceTensor, bounds []DeviceTensor, D int, strides ...int32) []any {
	args := append(buffers, int32(q.Shape[0]), int32(bounds[0].Shape[0]-1), int32(o.Heads), int32(o.KVHeads), int32(D))
	for _, s := range strides {
		args = append(args, s)
	}
	if o.Prefixes {
		return append(args, float32(o.Scale), bounds[len(bounds)-1].Ptr)
	}
	return append(args, o.scores()...)
}

// scores returns the arguments that say how scores are made: what the launches end with.
func (o Attention) scores() []any {
	if o.Cap > 0 {
		return []any{float32(o.Scale), int32(o.Window), float32(o.Cap)}
	}
	return []any{float32(o.Scale), int32(o.Window)}
}

// headMaps makes the tensor maps of one attention and keeps the first error.
type headMaps struct {
	o   Attention
	g   *GPU
	D   int
	err error
}

func (o Attention) maps(g *GPU, D int) *headMaps { return &headMaps{o: o, g: g, D: D} }

func (m *headMaps) q(t DeviceTensor, rows int) gpu.TensorMap { return m.heads(t, m.o.Heads, rows) }
func (m *headMaps) k(t DeviceTensor, rows int) gpu.TensorMap { return m.heads(t, m.o.KVHeads, rows) }

// heads maps [M,heads,D], whose rows may hold more, in boxes of 64 columns of one head and so many rows.
func (m *headMaps) heads(t DeviceTensor, heads, rows int) gpu.TensorMap {
	x, err := gpu.NewTensorMap(t.Ptr, []int64{int64(m.D), int64(heads), int64(t.Shape[0])},
		[]int64{int64(t.DType.Size() * m.D), int64(t.DType.Size() * t.Shape[1])}, []int{64, 1, rows}, 128)
	m.err = errors.Join(m.err, err)
	return x
}

// order is the order of one launch's tiles, and the work that sorts them where nothing did before.
func (m *headMaps) order(a cuda.Attention, launch int, q, cu DeviceTensor) (gpu.Ptr, func() error) {
	if a.Orders == nil {
		return 0, func() error { return nil }
	}
	at, work, err := m.g.tileOrder(a.Orders[launch], q.Shape[0], cu.Shape[0]-1, m.o.Window, cu.Ptr)
	m.err = errors.Join(m.err, err)
	return at, work
}

func (m *headMaps) launch(at cuda.Geometry, args []any) (func() error, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.g.Launch(at, args...)
}

func (o AttentionGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	if in[6].Ptr != in[7].Ptr {
		return nil, errKeyBounds
	}
	return o.differentiate(g, in, in[6:], [3]gpu.Ptr{out[0].Ptr, out[1].Ptr, out[2].Ptr})
}

// differentiate writes the gradients of q, k and v to where d says, in rows as attend reads those. in is q, k, v, o,
// lse and the gradient of o.
func (o AttentionGrad) differentiate(g *GPU, in, bounds []DeviceTensor, d [3]gpu.Ptr) (func() error, error) {
	q, k, v, y, lse, dy, cu := in[0], in[1], in[2], in[3], in[4].Ptr, in[5], bounds[0]
	f := Attention(o)
	a, D, err := f.geometry(y.Type, g.Device.SM())
	if err != nil {
		return nil, err
	}
	dq, dk, dv := d[0], d[1], d[2]
	delta, part := g.Scratch, g.Scratch.Add(o.deltaBytes(y.Type))
	if a.Splits == 1 {
		part = 0
	}
	M, ldq, ldk, ldo := int32(q.Shape[0]), int32(q.Shape[1]), int32(k.Shape[1]), int32(o.Heads*D)
	sums, err := g.Launch(a.Delta, delta, y.Ptr, dy.Ptr, M, int32(o.Heads), int32(D), ldo)
	if err != nil {
		return nil, err
	}
	var keys func() error
	var queries func() (func() error, error)
	if a.Family == cuda.Hopper {
		m, b := f.maps(g, D), a.Boxes
		keyOrder, sortKeys := m.order(a, cuda.OrderKV, q, cu)
		queryOrder, sortQueries := m.order(a, cuda.OrderQuery, q, cu)
		sums = inOrder(sums, sortKeys, sortQueries)
		kv := []any{dk, dv, part, m.q(q, b.KVQ), m.k(k, b.KVK), m.k(v, b.KVK), m.q(dy, b.KVQ), lse, delta, cu.Ptr,
			keyOrder}
		if keys, err = m.launch(a.KV, f.args(kv, q, bounds, D, ldk, int32(a.Splits))); err != nil {
			return nil, err
		}
		query := []any{dq, m.q(q, b.QueryQ), m.k(k, b.QueryK), m.k(v, b.QueryK), m.q(dy, b.QueryQ), lse, delta, cu.Ptr,
			queryOrder}
		queries = func() (func() error, error) { return m.launch(a.Query, f.args(query, q, bounds, D, ldq)) }
	} else {
		buffers := []any{q.Ptr, k.Ptr, v.Ptr, dy.Ptr, lse, delta, cu.Ptr}
		if keys, err = g.Launch(a.KV, f.args(append([]any{dk, dv, part}, buffers...), q, bounds, D, ldq, ldk,
			ldo)...); err != nil {
			return nil, err
		}
		queries = func() (func() error, error) {
			return g.Launch(a.Query, f.args(append([]any{dq}, buffers...), q, bounds, D, ldq, ldk, ldo)...)
		}
	}
	if a.Splits > 1 {
		combine, err := g.Launch(a.Combine, dk, dv, part, int32(a.Splits), M, int32(o.KVHeads), int32(D), ldk)
		if err != nil {
			return nil, err
		}
		keys = inOrder(keys, combine)
	}
	both, err := g.Beside(keys, queries)
	if err != nil {
		return nil, err
	}
	return inOrder(sums, both), nil
}

// cached binds attention over keys with sequence bounds of their own.
func (o Attention) cached(g *GPU, in, out []DeviceTensor) (func() error, error) {
	M, N, S, D := in[0].Shape[0], in[1].Shape[0], in[3].Shape[0]-1, in[0].Shape[1]/o.Heads
	if elem := in[0].DType.String(); cuda.ServesPrompt(elem, M, S) {
		return o.prompt(g, elem, in, out)
	}
	if a, ok := groupedFrom(o, typesOf(in)); ok {
		return o.split(g, a, in, out, nil)
	}
	if a, ok, err := cuda.NewAttentionSplit(M, o.Heads, D, o.Longest, o.Cap > 0); ok || err != nil {
		return o.split(g, a, in, out, err)
	}
	at, err := cuda.AttentionCached(M, o.Heads, D, o.Cap > 0)
	if err != nil {
		return nil, err
	}
	args := []any{out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr,
		int32(M), int32(N), int32(S), int32(o.Heads), int32(o.KVHeads), int32(D)}
	return g.Launch(at, append(args, o.scores()...)...)
}

// prompt binds attention of a piece of one prompt over its cache.
func (o Attention) prompt(g *GPU, elem string, in, out []DeviceTensor) (func() error, error) {
	M, N, D := in[0].Shape[0], in[1].Shape[0], in[0].Shape[1]/o.Heads
	family, err := cuda.AttentionFamily(elem, g.Device.SM(), D)
	if err != nil {
		return nil, err
	}
	a, err := cuda.NewAttentionPrompt(family, M, o.Heads, D, o.Cap > 0)
	if err != nil {
		return nil, err
	}
	args := []any{out[0].Ptr, out[1].Ptr, in[0].Ptr, in[1].Ptr, in[2].Ptr}
	m := o.maps(g, D)
	if family == cuda.Hopper {
		args = []any{out[0].Ptr, out[1].Ptr, m.q(in[0], a.BoxesQ), m.k(in[1], a.BoxesK), m.k(in[2], a.BoxesK)}
	}
	args = append(args, in[3].Ptr, in[4].Ptr, int32(M), int32(N), int32(o.Heads), int32(o.KVHeads), int32(D))
	return m.launch(a.Geometry, append(args, o.scores()...))
}

// split binds attention whose keys are divided among blocks, if there is more than one for a row.
func (o Attention) split(g *GPU, a cuda.AttentionSplit, in, out []DeviceTensor, err error) (func() error, error) {
	if err != nil {
		return nil, err
	}
	M, N, S, D := in[0].Shape[0], in[1].Shape[0], in[3].Shape[0]-1, in[0].Shape[1]/o.Heads
	part, stat := g.Scratch, g.Scratch.Add(a.PartBytes)
	args := []any{part, stat, in[0].Ptr, in[1].Ptr, in[2].Ptr, in[3].Ptr, in[4].Ptr,
		int32(M), int32(N), int32(S), int32(o.Heads), int32(o.KVHeads), int32(D)}
	if a.Z == 1 {
		args[0], args[1] = out[0].Ptr, out[1].Ptr
		return g.Launch(a.Part, append(args, o.scores()...)...)
	}
	args = append(args, int32(a.Span))
	parts, err := g.Launch(a.Part, append(args, o.scores()...)...)
	if err != nil {
		return nil, err
	}
	join, err := g.Launch(a.Join, out[0].Ptr, out[1].Ptr, part, stat, int32(M), int32(o.Heads), int32(D), int32(a.Z))
	if err != nil {
		return nil, err
	}
	return inOrder(parts, join), nil
}

func (o AttentionQKV) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	p := o.at(in[0])
	return Attention(o).attend(g, p[0], p[1], p[2], in[1:], out)
}

// at returns queries, keys and values where they lie in qkv.
func (o AttentionQKV) at(qkv DeviceTensor) (p [3]DeviceTensor) {
	D := o.head(qkv.Type)
	for i, first := range []int{0, o.Heads, o.Heads + o.KVHeads} {
		p[i] = DeviceTensor{Type: qkv.Type, Ptr: qkv.Ptr.Add(int64(first * D * qkv.DType.Size()))}
	}
	return p
}

func (o AttentionQKVGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	f := AttentionQKV(o)
	p, d := f.at(in[0]), f.at(out[0])
	return AttentionGrad(o).differentiate(g, append(p[:], in[1:4]...), in[4:], [3]gpu.Ptr{d[0].Ptr, d[1].Ptr, d[2].Ptr})
}

func (o AttentionSinks) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	last, M, H := len(in)-1, in[0].Shape[0], o.Attention.Heads
	attend, err := o.Attention.GPU(g, in[:last], out)
	if err != nil {
		return nil, err
	}
	place, err := g.share(o.Ranks)
	if err != nil {
		return nil, err
	}
	sinks := in[last].Ptr.Add(int64(place * H * in[last].DType.Size()))
	sink, err := g.Launch(cuda.AttentionSinks(M, H), out[0].Ptr, out[1].Ptr, sinks, int32(M), int32(H),
		int32(in[0].Shape[1]/H))
	return inOrder(attend, sink), err
}
