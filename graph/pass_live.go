package graph

import "slices"

// keepLive keeps the calls that an output or an update of State depends on.
func keepLive(c *compilation) error {
	c.calls = live(c.calls, c.outputs)
	return nil
}

// live returns the calls that an output or an update of State depends on.
func live(calls []*call, outputs []*Value) []*call {
	needed := map[*call]bool{}
	mark := func(v *Value) {
		if v.call != nil {
			needed[v.call] = true
		}
	}
	for _, v := range outputs {
		mark(v)
	}
	kept := make([]*call, 0, len(calls))
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		if !needed[c] && !updatesState(c) {
			continue
		}
		for _, v := range c.in {
			mark(v)
		}
		kept = append(kept, c)
	}
	slices.Reverse(kept)
	return kept
}

// listInputs lists the inputs in use; a group is kept whole, so that its span and members agree.
func listInputs(p *compilation) error {
	b := p.builder
	used, usedGroup := map[*Value]bool{}, map[string]bool{}
	note := func(v *Value) {
		if r := root(v); r.kind != Computed {
			used[r] = true
			usedGroup[r.group] = r.group != "" || usedGroup[r.group]
		}
	}
	for _, c := range p.calls {
		for _, v := range c.in {
			note(v)
		}
	}
	for _, v := range p.outputs {
		note(v)
	}
	for _, v := range b.inputs {
		if used[v] || v.group != "" && usedGroup[v.group] {
			p.inputs = append(p.inputs, v)
		}
	}
	if b.one != nil && used[b.one] {
		p.inputs = append(p.inputs, b.one)
	}
	return nil
}
