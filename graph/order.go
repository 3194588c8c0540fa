package graph

// before lists, for every call, those of its segment that must have run: the makers of what it reads, and the
// readers of what it writes over.
type before map[*call][]*call

func befores(calls []*call) before {
	readers := map[*Value][]*call{}
	for _, c := range calls {
		for _, v := range c.in {
			readers[v] = append(readers[v], c)
		}
	}
	d := before{}
	for _, c := range calls {
		for _, v := range c.in {
			if v.call != nil && v.call.segment == c.segment {
				d[c] = append(d[c], v.call)
			}
		}
		for _, a := range overwrites(c) {
			for _, r := range readers[c.in[a.In]] {
				if r != c && r.segment == c.segment {
					d[c] = append(d[c], r)
				}
			}
		}
	}
	return d
}

// reaches tells whether a call runs only after another has; a nil call is one of no computation.
func (d before) reaches(c, earlier *call) bool {
	seen := map[*call]bool{}
	var visit func(c *call) bool
	visit = func(c *call) bool {
		if c == nil || seen[c] {
			return false
		}
		seen[c] = true
		if c == earlier {
			return true
		}
		for _, p := range d[c] {
			if visit(p) {
				return true
			}
		}
		return false
	}
	return visit(c)
}

// ordered keeps the calls' order but for those that must come earlier.
func ordered(calls []*call) []*call {
	d := befores(calls)
	done := map[*call]bool{}
	out := make([]*call, 0, len(calls))
	var visit func(c *call)
	visit = func(c *call) {
		if done[c] {
			return
		}
		done[c] = true
		for _, p := range d[c] {
			visit(p)
		}
		out = append(out, c)
	}
	for _, c := range calls {
		visit(c)
	}
	return out
}
