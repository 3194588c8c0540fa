package graph

import (
	"maps"
	"slices"
)

// Living is what one kernel's calls have in the arena at the same time.
type Living struct {
	Kernel string `json:"kernel"` // that made the values; "scratch of" one that runs
	Values int    `json:"values"`
	Bytes  int64  `json:"bytes"`
}

// span is the calls during which memory of the arena is in use.
type span struct {
	from, to int
	place
	kernel string
}

// Peak lists what lies in the arena where most of it is in use, by the kernel that made it, the largest first: what
// a plan's activations are made of. The arena is larger by what its layout leaves unused between them.
func (p *Plan) Peak() []Living {
	last := lastReads(p.calls, p.outputs)
	end := len(p.calls) - 1
	var spans []span
	made := map[*Value]int{} // the span of a value's memory
	for i, c := range p.calls {
		if s := p.scratch[c]; s.size > 0 {
			spans = append(spans, span{i, i, s, "scratch of " + c.kernel.Name()})
		}
		for _, v := range c.out {
			r := root(v)
			if r.kind != Computed || r.host {
				continue
			}
			if n, ok := made[r]; ok {
				spans[n].to = min(max(spans[n].to, last[v]), end)
				continue
			}
			for _, x := range c.in { // written over what the call reads last
				if n, ok := made[root(x)]; ok && spans[n].to == i && spans[n].offset == p.place[v].offset {
					spans[n].to--
				}
			}
			made[r] = len(spans)
			spans = append(spans, span{i, min(max(last[v], i), end), p.place[v], c.kernel.Name()})
		}
	}
	more := make([]int64, len(p.calls)+1) // bytes that are in use from a call on
	for _, s := range spans {
		more[s.from] += s.size
		more[s.to+1] -= s.size
	}
	var used, most int64
	peak := 0
	for i := range p.calls {
		if used += more[i]; used > most {
			peak, most = i, used
		}
	}
	sums := map[string]*Living{}
	for _, s := range spans {
		if s.from > peak || s.to < peak {
			continue
		}
		if sums[s.kernel] == nil {
			sums[s.kernel] = &Living{Kernel: s.kernel}
		}
		sums[s.kernel].Values++
		sums[s.kernel].Bytes += s.size
	}
	all := make([]Living, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, *sums[name])
	}
	slices.SortStableFunc(all, func(a, b Living) int { return int(max(-1, min(1, b.Bytes-a.Bytes))) })
	return all
}
