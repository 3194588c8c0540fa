package graph

import (
	"sort"

	"github.com/tierlora/tierlora/kernel"
)

// Overlap keeps memory that a call is done with from being used again by the next calls, as many as said. On a
// machine that runs calls side by side they then need not wait for one another.
func (b *Builder) Overlap(calls int) { b.reuseDistance = calls }

// layOut gives every computed value and every scratch an offset in the arena.
func layOut(p *compilation) error {
	t, reuseDistance := p.target, p.builder.reuseDistance
	last := lastReads(p.calls, p.outputs)
	holder := map[*Value]*interval{}
	var all []*interval
	for i, c := range p.calls {
		if n := t.scratch(c.kernel, p.storedAll(c.in), p.storedAll(c.out)); n > 0 {
			all = append(all, &interval{size: kernel.AlignUp(n), from: i, to: i, call: c})
		}
		if k, ok := c.kernel.(kernel.AllGather); ok {
			all = append(all, gatheredInterval(k, c, i, last))
			continue
		}
		shared := map[int]int{}
		for _, a := range overwrites(c) {
			shared[a.Out] = a.In
		}
		taken := map[*interval]bool{}
		for o, v := range c.out {
			to := max(last[v], i)
			in, forced := shared[o]
			if forced && root(v).kind != Computed {
				continue
			}
			if root(v).host {
				if !forced {
					p.place[v] = place{offset: p.host, size: p.stored(v).Bytes()}
					p.host += kernel.AlignUp(p.stored(v).Bytes())
				}
				continue
			}
			if !forced {
				in = p.reuse(c, o, i, last, holder, taken)
			}
			if in >= 0 {
				iv := holder[c.in[in]]
				iv.to = max(iv.to, to)
				holder[v] = iv
				taken[iv] = true
				iv.values = append(iv.values, v)
				continue
			}
			iv := &interval{size: kernel.AlignUp(p.stored(v).Bytes()), from: i, to: to, values: []*Value{v}}
			holder[v] = iv
			all = append(all, iv)
		}
	}
	for _, iv := range all {
		iv.to += reuseDistance
		if iv.call != nil && t.prologue(iv.call.kernel) {
			iv.from -= reuseDistance / 2
		}
	}
	p.arena = assignOffsets(all)
	for _, iv := range all {
		if iv.call != nil {
			p.scratch[iv.call] = place{offset: iv.offset, size: iv.size}
		}
		for k, v := range iv.values {
			p.place[v] = place{offset: iv.offset, size: p.stored(v).Bytes()}
			if iv.at != nil {
				p.place[v] = place{offset: iv.offset + iv.at[k], size: p.stored(v).Bytes()}
			}
		}
	}
	return nil
}

// reuse finds the input whose memory output o of call i may take, or -1.
func (p *Plan) reuse(c *call, o, i int, last map[*Value]int, holder map[*Value]*interval,
	taken map[*interval]bool) int {
	k, ok := c.kernel.(kernel.InPlace)
	if !ok {
		return -1
	}
	for _, a := range k.InPlace() {
		v := c.in[a.In]
		iv := holder[v]
		if a.Out != o || iv == nil || taken[iv] || iv.to > i || p.stored(v).Bytes() != p.stored(c.out[o]).Bytes() {
			continue
		}
		twice := false
		for j, w := range c.in {
			twice = twice || j != a.In && holder[w] == iv
		}
		if !twice {
			return a.In
		}
	}
	return -1
}

// interval is a buffer of the arena and the calls during which it is held.
type interval struct {
	size, offset int64
	from, to     int
	values       []*Value
	at           []int64 // of each value in the buffer; nil = all at its start
	call         *call   // scratch of
}

// gatheredInterval returns the buffer of what call i gathers, for as long as any of it is read. None of it is written
// over.
func gatheredInterval(k kernel.AllGather, c *call, i int, last map[*Value]int) *interval {
	iv := &interval{size: int64(k.World) * c.in[0].Type.Bytes(), from: i, to: i, values: c.out, at: k.At}
	for _, v := range c.out {
		iv.to = max(iv.to, last[v])
	}
	return iv
}

// assignOffsets places buffers so that those held at the same time do not overlap, large ones first, each
// at the lowest offset that is free for its whole life. It returns the bytes needed.
func assignOffsets(all []*interval) int64 {
	order := append([]*interval(nil), all...)
	sort.SliceStable(order, func(i, j int) bool { return order[i].size > order[j].size })
	var top int64
	placed := make([]*interval, 0, len(order)) // by offset
	for _, iv := range order {
		var at int64
		for _, q := range placed {
			if q.from > iv.to || iv.from > q.to {
				continue
			}
			if q.offset >= at+iv.size {
				break
			}
			at = max(at, q.offset+q.size)
		}
		iv.offset = at
		k := sort.Search(len(placed), func(i int) bool { return placed[i].offset > at })
		placed = append(placed, nil)
		copy(placed[k+1:], placed[k:])
		placed[k] = iv
		top = max(top, at+iv.size)
	}
	return top
}
