package graph

// scheduleEarly moves calls with little output, and those that only add to State, to just after the last call they
// depend on: what they read is free the sooner. The order of the others stays.
func scheduleEarly(p *compilation) error {
	var largest int64
	for _, c := range p.calls {
		for _, v := range c.out {
			if root(v).kind == Computed {
				largest = max(largest, p.stored(v).Bytes())
			}
		}
	}
	made := map[*Value]int{}      // value -> anchor of the call that makes it
	read := map[*Value]int{}      // value -> largest anchor of its readers
	touched := map[*Value]int{}   // state -> largest anchor of a call that reads or writes it
	anchored := map[int][]*call{} // light calls by anchor
	anchor := 0
	order := make([]*call, 0, len(p.calls))
	var heavy []int
	for i, c := range p.calls {
		anchor = i
		if c.backward && p.light(c, largest/16) && (i == 0 || p.calls[i-1].segment == c.segment) {
			anchor = p.firstOf(c.segment)
			for _, v := range c.in {
				anchor = max(anchor, made[v])
				if r := root(v); r.kind == State {
					anchor = max(anchor, touched[r])
				}
			}
			for _, a := range overwrites(c) {
				anchor = max(anchor, read[c.in[a.In]])
			}
			anchored[anchor] = append(anchored[anchor], c)
		} else {
			heavy = append(heavy, i)
		}
		for _, v := range c.out {
			made[v] = anchor
		}
		for _, v := range c.in {
			read[v] = max(read[v], anchor)
			if r := root(v); r.kind == State {
				touched[r] = max(touched[r], anchor)
			}
		}
	}
	for _, i := range heavy {
		order = append(order, p.calls[i])
		order = append(order, anchored[i]...)
	}
	p.calls = order
	return nil
}

// firstOf returns the index of a segment's first call, which always stays in its place.
func (p *Plan) firstOf(segment int) int {
	for i, c := range p.calls {
		if c.segment == segment {
			return i
		}
	}
	return 0
}

// light tells whether a call's outputs take at most most bytes of the arena.
func (p *Plan) light(c *call, most int64) bool {
	if isTransfer(c.kernel) {
		return false
	}
	for _, v := range c.out {
		if root(v).kind == Computed && p.stored(v).Bytes() > most {
			return false
		}
	}
	return true
}
