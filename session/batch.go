package session

import (
	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// Batch is the host memory of a micro-batch: the values that every network reads, and those that an objective or an
// optimizer adds.
type Batch struct {
	IDs, Positions, Cu []int32
	store              graph.Store
	prefix             string
	names              []string
	sent               []string // what the last Put sent; kept, so that a step allocates nothing
	counter            []int32  // nil without dropout
	realTokens         []int32  // nil if no layer distinguishes padding from tokens
	prefixes           []int32  // nil if no sequence continues another (Network.Prefixes)
	wide               []wide
	images             *ImageRows
	err                error // of the last Fill, which Put returns
}

// wide is a value that a plan in float64 reads, with the float32 numbers that the host writes for it.
type wide struct {
	to   []float64
	from []float32
}

// BindBatch finds a plan's batch values in its memory, by the names that Declare gave them.
func BindBatch(m graph.Store, prefix string) (*Batch, error) {
	b := &Batch{store: m, prefix: prefix}
	for name, dst := range map[string]*[]int32{"input_ids": &b.IDs, "cu_seqlens": &b.Cu} {
		t, err := m.Tensor(prefix + name)
		if err != nil {
			return nil, err
		}
		*dst = t.I32()
	}
	b.names = []string{prefix + "input_ids", prefix + "cu_seqlens"}
	if t, err := m.Tensor(prefix + "positions"); err == nil { // a model whose layers use no positions has none
		b.Positions = t.I32()
		b.names = append(b.names, prefix+"positions")
	}
	if t, err := m.Tensor(prefix + "real_tokens"); err == nil {
		b.realTokens = t.I32()
		b.names = append(b.names, prefix+"real_tokens")
	}
	if t, err := m.Tensor(prefix + namePrefixes); err == nil {
		b.prefixes = t.I32()
		b.names = append(b.names, prefix+namePrefixes)
	}
	if t, err := m.Tensor(adapter.DropoutCounter); err == nil {
		b.counter = t.I32()
		b.names = append(b.names, adapter.DropoutCounter)
	}
	b.bindImages()
	return b, nil
}

// Int32s returns the memory of a value that a plan declared with the batch's prefix, and makes Put send it.
func (b *Batch) Int32s(name string) ([]int32, error) {
	t, err := b.store.Tensor(b.prefix + name)
	if err != nil {
		return nil, err
	}
	b.names = append(b.names, b.prefix+name)
	return t.I32(), nil
}

// Float32s does what Int32s does for real numbers. For a plan in float64, Put converts them.
func (b *Batch) Float32s(name string) ([]float32, error) {
	t, err := b.store.Tensor(b.prefix + name)
	if err != nil {
		return nil, err
	}
	b.names = append(b.names, b.prefix+name)
	if t.DType == kernel.F64 {
		b.wide = append(b.wide, wide{t.F64(), make([]float32, t.Elems())})
		return b.wide[len(b.wide)-1].from, nil
	}
	return t.F32(), nil
}

// Part is the range [From, To) of a micro-batch's tokens that a rank computes; tokens after the micro-batch's end are
// padding. The zero value means all tokens.
type Part struct{ From, To int }

// PartOf returns the part of the rank with index place among ranks, in a plan for the given number of tokens.
func PartOf(tokens, place, ranks int) Part {
	if ranks < 2 {
		return Part{}
	}
	own := Own(tokens, ranks)
	return Part{place * own, (place + 1) * own}
}

// Copy copies the part of a micro-batch's values to the start of dst, and fills the rest of the part with padding.
func (p Part) Copy(dst, values []int32, padding int32) {
	if p == (Part{}) {
		copy(dst, values)
		return
	}
	n := copy(dst[:p.To-p.From], values[min(p.From, len(values)):min(p.To, len(values))])
	for i := n; i < p.To-p.From; i++ {
		dst[i] = padding
	}
}

// Fill writes a part of a micro-batch's tokens, and the embeddings of its images, to the start of the values, which the
// longest plan of the memory reads as a whole. Put returns an error of Fill.
func (b *Batch) Fill(from dataset.Batch, own Part) {
	own.Copy(b.IDs, from.IDs, 0)
	if b.Positions != nil {
		own.Copy(b.Positions, from.Positions, 0)
	}
	copy(b.Cu, from.CuSeqlens)
	b.err = b.fillImages(from)
	if b.prefixes != nil {
		for i := copy(b.prefixes, from.Prefixes); i < len(b.prefixes); i++ {
			b.prefixes[i] = -1
		}
	}
	if b.realTokens != nil && from.Real != nil {
		own.Copy(b.realTokens, from.Real, 0)
	} else {
		for i := range b.realTokens {
			b.realTokens[i] = 1
		}
	}
}

// Put sends what was written to the machine.
func (b *Batch) Put() error {
	if b.err != nil {
		return b.err
	}
	for _, w := range b.wide {
		for i, x := range w.from {
			w.to[i] = float64(x)
		}
	}
	b.sent = append(append(b.sent[:0], b.names...), b.images.Named()...)
	return b.store.Put(b.sent...)
}

// SetDropout makes dropout masks a function of seed, step and micro-batch.
func (b *Batch) SetDropout(seed uint64, step, micro int) {
	if b.counter != nil {
		h := Mix(seed<<20 ^ uint64(micro))
		b.counter[0], b.counter[1] = int32(h), int32(step)
	}
}

// Mix is a step of SplitMix64 (Steele, Lea, Flood 2014): every bit of the result depends on all bits of x.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
