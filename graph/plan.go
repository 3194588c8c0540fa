package graph

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// Plan is a computation ready to be given memory: its calls in order, and for every value an offset in one
// of four regions (arena, batch, frozen, state).
type Plan struct {
	calls     []*call
	segments  []string
	inputs    []*Value // of kinds Batch, Frozen and State that some call reads or writes
	place     map[*Value]place
	scratch   map[*call]place
	outputs   []*Value
	arena     int64
	store     storage
	host      int64 // bytes of host memory for values that wait there
	constants int64 // bytes that the target keeps besides
	open      bool  // frozen values are stored as their readers want them
}

type place struct {
	offset, size int64
}

// Compile makes a plan of everything the outputs and the updates of State depend on. Outputs can be read
// after a run. workers is the number of CPU threads that scratch memory is reckoned for. A computation is
// compiled once: the plan rewrites its calls.
func (b *Builder) Compile(workers int, outputs ...*Value) (*Plan, error) {
	return b.compile(hostTarget{workers}, false, outputs)
}

func (b *Builder) compile(t target, open bool, outputs []*Value) (*Plan, error) {
	b.Fail(b.checkCompile(outputs))
	if b.err != nil {
		return nil, b.err
	}
	b.compiled = true
	p := &Plan{segments: b.segments, outputs: outputs, place: map[*Value]place{}, scratch: map[*call]place{}, open: open}
	p.calls = live(b.calls, outputs)
	if err := checkOverwrites(p.calls, outputs); err != nil {
		return nil, err
	}
	p.calls = accumulate(orderSums(t.widen(p.calls), outputs, t), outputs, t)
	p.calls = t.rewrite(recompute(p.calls, b.recompute), outputs)
	if err := p.checkSegments(); err != nil {
		return nil, err
	}
	p.collectInputs(b)
	if err := p.assignStorage(t); err != nil {
		return nil, err
	}
	p.hoist()
	p.layout(t, b.spacing)
	p.constants = t.constants()
	return p, nil
}

// live keeps the calls that an output or an update of State depends on.
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
	for i, j := 0, len(kept)-1; i < j; i, j = i+1, j-1 {
		kept[i], kept[j] = kept[j], kept[i]
	}
	return kept
}

func overwrites(c *call) []kernel.Alias {
	if o, ok := c.kernel.(kernel.Overwriting); ok {
		return o.Overwrites()
	}
	return nil
}

// root follows overwriting calls back to the value whose memory is written.
func root(v *Value) *Value {
	for v.call != nil {
		next := v
		for _, a := range overwrites(v.call) {
			if a.Out == v.out {
				next = v.call.in[a.In]
			}
		}
		if next == v {
			return v
		}
		v = next
	}
	return v
}

func updatesState(c *call) bool {
	for _, a := range overwrites(c) {
		if root(c.in[a.In]).kind == State {
			return true
		}
	}
	return false
}

func (p *Plan) checkSegments() error {
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

// collectInputs lists the inputs in use; a group is kept whole, so that its span and members agree.
func (p *Plan) collectInputs(b *Builder) {
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
}

// String lists the plan's calls in order, for reading and for tests that compare plans.
func (p *Plan) String() string {
	var s strings.Builder
	for i, c := range p.calls {
		fmt.Fprintf(&s, "%4d %s %v", i, p.segments[c.segment], c)
		for _, v := range c.out {
			fmt.Fprintf(&s, " %v@%d", v.Type, p.place[v].offset)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// Calls is the number of kernel calls, by segment.
func (p *Plan) Calls() map[string]int {
	n := map[string]int{}
	for _, c := range p.calls {
		n[p.segments[c.segment]]++
	}
	return n
}
