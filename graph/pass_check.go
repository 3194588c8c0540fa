package graph

import (
	"fmt"
	"slices"
)

// checkOverwrites refuses calls that write over data a later call or the caller still reads, and over data
// that is not the computation's to change.
func checkOverwrites(c *compilation) error {
	last := lastReads(c.calls, c.outputs)
	calls := c.calls
	for i, c := range calls {
		for _, a := range overwrites(c) {
			v := c.in[a.In]
			switch r := root(v); {
			case r.kind == Batch || r.kind == Frozen:
				return fmt.Errorf("%v overwrites %s, which a run may only read", c, r.Name)
			case r.kind == Computed && last[v] > i:
				return fmt.Errorf("%v overwrites %s, which is read afterwards", c, v.Name)
			case r.kind == State:
				// Calls are put in another order by what they read and write: a reader of v comes before what
				// overwrites it.
				for _, later := range calls[i+1:] {
					if later.segment == c.segment && slices.Contains(later.in, v) {
						return fmt.Errorf("%v reads %s, which %v has written over: read that call's output, or read it before", later, v.Name, c)
					}
				}
			}
		}
	}
	return nil
}

// checkServed refuses calls that a GPU has no body for, such as attention with heads of a size that none has, and notes
// those whose body is not the fastest.
func checkServed(p *compilation) error {
	for _, c := range p.calls {
		if isTransfer(c.kernel) {
			continue
		}
		in, out := p.storedAll(c.in), p.storedAll(c.out)
		if err := p.target.serves(c.kernel, in, out); err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if s := p.target.slow(c.kernel, in, out); s.What != "" && !slices.Contains(p.slow, s) {
			p.slow = append(p.slow, s)
		}
	}
	return nil
}

// checkSegments refuses computed values that cross segments, and a segment that uses two of a group's
// members, its parts and its span.
func checkSegments(p *compilation) error {
	type use struct {
		group   string
		segment int
	}
	seen := map[use]string{} // as what a segment sees a group
	for _, c := range p.calls {
		for _, v := range c.in {
			if v.call != nil && root(v).kind == Computed && v.call.segment != c.segment {
				return fmt.Errorf("%v reads %s, which segment %s computes: only State crosses segments", c, v.Name,
					p.segments[v.call.segment])
			}
			if r := root(v); r.kind == State && r.group != "" {
				u := use{r.group, c.segment}
				as := "members"
				if r.part != "" {
					as = "parts"
				} else if r.span {
					as = "span"
				}
				if seen[u] != "" && seen[u] != as {
					return fmt.Errorf("segment %s uses both the %s and the %s of %q", p.segments[c.segment], seen[u],
						as, r.group)
				}
				seen[u] = as
			}
		}
	}
	return nil
}
