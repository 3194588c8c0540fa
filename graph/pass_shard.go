package graph

import (
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// With Shard each rank of a run holds a slice of every layer's frozen values, and of the large ones outside layers,
// such as embeddings. A layer is gathered from all ranks while the one before it computes, in the forward pass and
// again in the backward pass, and its memory is free behind its last reader: what FSDP and ZeRO stage 3 do with a
// frozen model.
//
//	slice of layer 3 (frozen) -> allgather -> q_proj's codes, q_proj's scales, ...
//
// A layer's values lie one after the other, so that one operation moves all of them.

// Shard makes Compile leave a slice of the frozen values to each of so many ranks; 0 and 1 leave all to each.
func (b *Builder) Shard(ranks int) { b.ranks = ranks }

// shardLeast is the size in bytes from which a frozen value outside layers is held in slices.
const shardLeast = 1 << 16

// unit is frozen values that are gathered together.
type unit struct {
	name   string
	slice  *Value
	values []*Value
	kernel kernel.AllGather
	number int
	alone  bool // larger than two layers: nothing else is gathered while it is, or decides how much memory a step takes
}

// use is calls one after the other that read a unit, for which it is gathered once.
type use struct {
	of      *unit
	first   int
	last    int
	segment int
	values  map[*Value]*Value // what is gathered, by what it is of
}

// shardFrozen puts a slice in the place of each frozen value of a unit, and what is gathered in the place of its reads.
func shardFrozen(c *compilation) error {
	if c.builder.ranks < 2 {
		return nil
	}
	c.ranks = c.builder.ranks
	of := c.units()
	if len(of) == 0 {
		return nil
	}
	uses := c.usesOf(of)
	before := map[int][]*call{}
	for i, u := range uses {
		at := c.firstOf(u.segment)
		if i > 0 && uses[i-1].segment == u.segment {
			at = uses[i-1].first
			if u.of.alone || uses[i-1].of.alone {
				at = min(uses[i-1].last+1, u.first)
			}
		}
		before[at] = append(before[at], c.gather(u, c.calls[u.first]))
	}
	out := make([]*call, 0, len(c.calls)+len(uses))
	for i, x := range c.calls {
		out = append(append(out, before[i]...), x)
	}
	c.calls = out
	return nil
}

// units returns the frozen values that are held in slices, by value; their slices take their place among the inputs.
func (c *compilation) units() map[*Value]*unit {
	inLayers := map[*Value]bool{} // read by a layer
	for _, x := range c.calls {
		for _, v := range x.in {
			inLayers[v] = inLayers[v] || layerOf(x.scope) != ""
		}
	}
	byName, of := map[string]*unit{}, map[*Value]*unit{}
	var all []*unit
	for _, v := range c.inputs {
		name := layerOf(v.Name)
		// whole numbers are tables
		if v.kind != Frozen || name == "" && (inLayers[v] || v.Type.DType == kernel.I32 ||
			c.stored(v).Bytes() < shardLeast) {
			continue
		}
		if name == "" {
			name = v.Name
		}
		u := byName[name]
		if u == nil {
			u = &unit{name: name, number: len(all)}
			byName[name], all = u, append(all, u)
		}
		of[v], u.values = u, append(u.values, v)
	}
	var layer int64 // bytes of the largest
	for _, u := range all {
		if layerOf(u.name) != "" {
			var n int64
			for _, v := range u.values {
				n += kernel.AlignUp(c.stored(v).Bytes())
			}
			layer = max(layer, n)
		}
	}
	for _, u := range all {
		var n int64
		for _, v := range u.values {
			u.kernel.Parts, u.kernel.At = append(u.kernel.Parts, c.stored(v)), append(u.kernel.At, n)
			n += kernel.AlignUp(c.stored(v).Bytes())
		}
		u.kernel.World = c.ranks
		each := kernel.AlignUp((n + int64(c.ranks) - 1) / int64(c.ranks))
		u.alone = n > 2*layer
		u.slice = &Value{Type: kernel.T(kernel.U8, int(each)), Name: "slice of " + u.name, kind: Frozen}
	}
	var inputs []*Value
	for _, v := range c.inputs {
		switch u := of[v]; {
		case u == nil:
			inputs = append(inputs, v)
		case u.values[0] == v:
			inputs = append(inputs, u.slice)
		}
	}
	c.inputs, c.sharded = inputs, all
	return of
}

// usesOf finds the uses of units in the order of their first calls. A use ends where two others are read before the
// unit is read again, or one that is alone: the neighbours of a layer may be read between its own calls, and the last
// layer waits for the loss where the head is small.
func (c *compilation) usesOf(of map[*Value]*unit) []*use {
	var all []*use
	open := make([]*use, len(c.sharded))
	others := make([]bitset, len(c.sharded))
	for i, x := range c.calls {
		for j, v := range x.in {
			u := of[v]
			if u == nil {
				continue
			}
			now := open[u.number]
			if now == nil || now.segment != x.segment || len(others[u.number].members()) > 1 {
				now = &use{of: u, first: i, segment: x.segment, values: map[*Value]*Value{}}
				for k, w := range u.values {
					now.values[w] = &Value{Type: w.Type, Name: "gathered " + w.Name, out: k}
				}
				open[u.number], all = now, append(all, now)
			}
			others[u.number] = newBitset(len(c.sharded))
			for n := range open {
				if n != u.number && open[n] != nil {
					others[n].add(u.number)
					if u.alone {
						open[n] = nil
					}
				}
			}
			now.last = i
			x.in[j] = now.values[v]
		}
	}
	return all
}

// gather makes the call that a use begins with.
func (c *compilation) gather(u *use, reader *call) *call {
	g := &call{kernel: u.of.kernel, in: []*Value{u.of.slice}, scope: u.of.name, segment: u.segment,
		backward: reader.backward}
	for _, w := range u.of.values {
		v := u.values[w]
		v.call = g
		g.out = append(g.out, v)
		if d, ok := c.store.types[w]; ok {
			c.store.types[v] = d
		}
	}
	c.store.inputs[g] = []kernel.DType{kernel.U8}
	return g
}

// Gathered is what a run of a segment brings together of frozen values that are held in slices.
type Gathered struct {
	Ranks   int
	Slices  int64 // bytes that a rank holds
	Bytes   int64 // of the whole values, each time that they are gathered
	Gathers int
}

// Gathered tells what a segment gathers; no Ranks where nothing is held in slices.
func (p *Plan) Gathered(segment string) Gathered {
	g := Gathered{Ranks: p.ranks}
	for _, u := range p.sharded {
		g.Slices += u.slice.Type.Bytes()
	}
	for _, c := range p.calls {
		if k, ok := c.kernel.(kernel.AllGather); ok && p.segments[c.segment] == segment {
			g.Gathers++
			g.Bytes += int64(k.World) * c.in[0].Type.Bytes()
		}
	}
	return g
}

// Exchanged tells how often a run of a segment exchanges heads for tokens among ranks that share them, and how many
// bytes a rank receives from the others.
func (p *Plan) Exchanged(segment string) (exchanges int, received int64) {
	for _, c := range p.calls {
		if k, ok := c.kernel.(kernel.AllToAll); ok && p.segments[c.segment] == segment {
			exchanges++
			received += p.stored(c.in[0]).Bytes() / int64(k.Ranks) * int64(k.Ranks-1)
		}
	}
	return exchanges, received
}

// GathersAs tells whether two plans gather the same values, and exchange heads for tokens, in the same order, segment
// by segment: then ranks may run one beside the other.
func (p *Plan) GathersAs(q *Plan) bool { return slices.Equal(p.gathers(), q.gathers()) }

func (p *Plan) gathers() []string {
	var all []string
	for _, c := range p.calls {
		switch c.kernel.(type) {
		case kernel.AllGather:
			all = append(all, p.segments[c.segment]+" "+c.in[0].Name)
		case kernel.AllToAll:
			all = append(all, p.segments[c.segment]+" "+c.String())
		}
	}
	return all
}
