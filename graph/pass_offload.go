package graph

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// With Offload the inputs of layers wait for the backward pass in host memory. A value leaves while its layer
// computes, and is on its way back while the layer behind it is differentiated: on a GPU both copies run
// beside the kernels.
//
//	forward   x -> moveOut -> (host) ... departed, after which x's memory is free
//	backward  (host) -> moveIn -> x' ... arrived, after which x' may be read

// moveOut copies its input to host memory.
type moveOut struct{}

// departed waits for a copy out: it reads the value, which so keeps its memory until here, and the place.
type departed struct{}

// moveIn copies from host memory.
type moveIn struct{ to kernel.Type }

// arrived waits for a copy in.
type arrived struct{}

func (moveOut) Name() string  { return "move out" }
func (departed) Name() string { return "departed" }
func (moveIn) Name() string   { return "move in" }
func (arrived) Name() string  { return "arrived" }

func (moveOut) Shape(in []kernel.Type) ([]kernel.Type, error)  { return in[:1], nil }
func (departed) Shape(in []kernel.Type) ([]kernel.Type, error) { return in[1:2], nil }
func (m moveIn) Shape([]kernel.Type) ([]kernel.Type, error)    { return []kernel.Type{m.to}, nil }
func (arrived) Shape(in []kernel.Type) ([]kernel.Type, error)  { return in[:1], nil }

func (departed) Overwrites() []kernel.Alias { return []kernel.Alias{{Out: 0, In: 1}} }
func (arrived) Overwrites() []kernel.Alias  { return []kernel.Alias{{Out: 0, In: 0}} }

func (moveOut) CPU(_ *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() { copy(out[0].Bytes(), in[0].Bytes()) }
}
func (departed) CPU(*kernel.CPU, []kernel.Tensor, []kernel.Tensor) func() { return func() {} }
func (moveIn) CPU(_ *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() { copy(out[0].Bytes(), in[0].Bytes()) }
}
func (arrived) CPU(*kernel.CPU, []kernel.Tensor, []kernel.Tensor) func() { return func() {} }

// isMove tells whether a call is one of the four, which store their values as they come.
func isMove(k kernel.Kernel) bool {
	switch k.(type) {
	case moveOut, departed, moveIn, arrived:
		return true
	}
	return false
}

// offloadLeast is the size in bytes from which a value is worth the way to the host and back.
const offloadLeast = 1 << 16

// parked is a value on its way through host memory.
type parked struct {
	value            *Value
	made             int // index of the call that makes it
	lastRead         int // by the forward pass
	firstBack        int // by the backward pass
	out, gone        *call
	in, back         *call
	prefetch         int // where moveIn goes
	hostValue, again *Value
}

// offload parks what layers were kept for, all but what the last of their calls makes: that is wanted at once.
func offload(c *compilation) error {
	if c.builder.recompute.mode != Offload {
		return nil
	}
	calls := c.calls
	readers, at := readersOf(calls, nil), placesOf(calls)
	var all []*parked
	for _, c := range calls {
		if c.backward {
			continue
		}
		for _, v := range c.out {
			if root(v) != v || v.Type.Bytes() < offloadLeast {
				continue
			}
			p := &parked{value: v, made: at[c], lastRead: at[c], firstBack: -1}
			for _, i := range readers[v] {
				switch {
				case !calls[i].backward:
					p.lastRead = max(p.lastRead, i)
				case p.firstBack < 0:
					p.firstBack = i
				}
			}
			if p.firstBack >= 0 && layerOf(c.scope) != layerOf(calls[p.lastRead].scope) {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	last := all[len(all)-1].made
	all = slices.DeleteFunc(all, func(p *parked) bool { return p.made == last })
	before, after := map[int][]*call{}, map[int][]*call{}
	for i, p := range all {
		p.prefetch = p.firstBack
		for _, q := range all[i+1:] {
			if q.made != p.made {
				p.prefetch = min(p.prefetch, q.firstBack)
				break
			}
		}
		p.insert(calls, readers, before, after)
	}
	out := make([]*call, 0, len(calls)+4*len(all))
	for i, c := range calls {
		out = append(append(append(out, before[i]...), c), after[i]...)
	}
	c.calls = out
	return nil
}

// insert makes the four calls and gives the backward pass the value that comes back.
func (p *parked) insert(calls []*call, readers map[*Value][]int, before, after map[int][]*call) {
	v := p.value
	name := func(what string) string { return fmt.Sprintf("%s of %s", what, v.Name) }
	made := calls[p.made]
	call1 := func(k kernel.Kernel, backward bool, in ...*Value) (*call, *Value) {
		c := &call{kernel: k, in: in, scope: made.scope, segment: made.segment, backward: backward}
		o := &Value{Type: v.Type, Name: name(k.Name()), call: c, requires: v.requires, depends: v.depends}
		c.out = []*Value{o}
		return c, o
	}
	var away, here *Value
	p.out, away = call1(moveOut{}, false, v)
	away.host = true
	p.gone, p.hostValue = call1(departed{}, false, v, away)
	p.hostValue.host = true
	p.in, here = call1(moveIn{v.Type}, true, p.hostValue)
	p.back, p.again = call1(arrived{}, true, here)
	after[p.made] = append(after[p.made], p.out)
	after[p.lastRead] = append(after[p.lastRead], p.gone)
	before[p.prefetch] = append(before[p.prefetch], p.in)
	before[p.firstBack] = append(before[p.firstBack], p.back)
	for _, i := range readers[v] {
		if calls[i].backward {
			for j, x := range calls[i].in {
				if x == v {
					calls[i].in[j] = p.again
				}
			}
		}
	}
}
