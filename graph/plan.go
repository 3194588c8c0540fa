package graph

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// Plan is a compiled computation: its calls in order, and for every value an offset in one of four regions (arena,
// batch, frozen, state).
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
	ranks     int   // that hold frozen values in slices; 0 = each has all
	sharded   []*unit
	slow      []SlowPath // that its calls take, each once
	transient []string   // groups of State that may lie in the arena (Transient)
	early     int        // calls that wait for at most so many others begin before those have ended, where they can
}

type place struct {
	offset, size int64
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

// Input returns the type of a batch, frozen or state value by its name.
func (p *Plan) Input(name string) (t kernel.Type, ok bool) {
	for _, v := range p.inputs {
		if v.Name == name {
			return v.Type, true
		}
	}
	return t, false
}

// Calls returns the number of kernel calls, by segment.
func (p *Plan) Calls() map[string]int {
	n := map[string]int{}
	for _, c := range p.calls {
		n[p.segments[c.segment]]++
	}
	return n
}

// FrozenBytes returns the bytes of the frozen tensors that the plan reads and whose names begin with a prefix.
func (p *Plan) FrozenBytes(prefix string) (bytes int64) {
	for _, v := range p.inputs {
		if v.kind == Frozen && strings.HasPrefix(v.Name, prefix) {
			bytes += kernel.AlignUp(p.stored(v).Bytes())
		}
	}
	return bytes
}
