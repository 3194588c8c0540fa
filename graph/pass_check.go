package graph

import "fmt"

// checkOverwrites refuses calls that write over data a later call or the caller still reads, and over data
// that is not the computation's to change.
func checkOverwrites(c *compilation) error {
	last := lastReads(c.calls, c.outputs)
	for i, c := range c.calls {
		for _, a := range overwrites(c) {
			v := c.in[a.In]
			switch r := root(v); {
			case r.kind == Batch || r.kind == Frozen:
				return fmt.Errorf("%v overwrites %s, which a run may only read", c, r.Name)
			case r.kind == Computed && last[v] > i:
				return fmt.Errorf("%v overwrites %s, which is read afterwards", c, v.Name)
			}
		}
	}
	return nil
}

// checkSegments refuses computed values that cross segments, and a segment that uses a span and its members.
func checkSegments(p *compilation) error {
	type use struct {
		group   string
		segment int
	}
	spans, members := map[use]bool{}, map[use]bool{}
	for _, c := range p.calls {
		for _, v := range c.in {
			if v.call != nil && root(v).kind == Computed && v.call.segment != c.segment {
				return fmt.Errorf("%v reads %s, which segment %s computes: only State crosses segments", c, v.Name, p.segments[v.call.segment])
			}
			if r := root(v); r.kind == State && r.group != "" {
				u := use{r.group, c.segment}
				if r.span {
					spans[u] = true
				} else {
					members[u] = true
				}
			}
		}
	}
	for u := range spans {
		if members[u] {
			return fmt.Errorf("segment %s uses both the span of %q and its members", p.segments[u.segment], u.group)
		}
	}
	return nil
}
