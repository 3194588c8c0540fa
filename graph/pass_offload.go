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
//	forward   x -> offloadTo -> (host) ... offloaded, after which x's memory is free
//	backward  (host) -> prefetchFrom -> x' ... prefetched, after which x' may be read

// offloadTo copies its input to host memory.
type offloadTo struct{}

// offloaded waits for a copy out: it reads the value, which so keeps its memory until here, and the place.
type offloaded struct{}

// prefetchFrom copies from host memory.
type prefetchFrom struct{ to kernel.Type }

// prefetched waits for a copy in.
type prefetched struct{}

func (offloadTo) Name() string    { return "offload" }
func (offloaded) Name() string    { return "offloaded" }
func (prefetchFrom) Name() string { return "prefetch" }
func (prefetched) Name() string   { return "prefetched" }

func (offloadTo) Shape(in []kernel.Type) ([]kernel.Type, error)   { return in[:1], nil }
func (offloaded) Shape(in []kernel.Type) ([]kernel.Type, error)   { return in[1:2], nil }
func (m prefetchFrom) Shape([]kernel.Type) ([]kernel.Type, error) { return []kernel.Type{m.to}, nil }
func (prefetched) Shape(in []kernel.Type) ([]kernel.Type, error)  { return in[:1], nil }

func (offloaded) Overwrites() []kernel.Alias  { return []kernel.Alias{{Out: 0, In: 1}} }
func (prefetched) Overwrites() []kernel.Alias { return []kernel.Alias{{Out: 0, In: 0}} }

func (offloadTo) CPU(_ *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() { copy(out[0].Bytes(), in[0].Bytes()) }
}
func (offloaded) CPU(*kernel.CPU, []kernel.Tensor, []kernel.Tensor) func() { return func() {} }
func (prefetchFrom) CPU(_ *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() { copy(out[0].Bytes(), in[0].Bytes()) }
}
func (prefetched) CPU(*kernel.CPU, []kernel.Tensor, []kernel.Tensor) func() { return func() {} }

func (offloadTo) Cost(in, out []kernel.Type, _ kernel.Content) kernel.Cost {
	return kernel.Cost{Bytes: in[0].Bytes() + out[0].Bytes()}
}
func (offloaded) Cost(_, _ []kernel.Type, _ kernel.Content) kernel.Cost { return kernel.Cost{} }
func (prefetchFrom) Cost(in, out []kernel.Type, _ kernel.Content) kernel.Cost {
	return kernel.Cost{Bytes: in[0].Bytes() + out[0].Bytes()}
}
func (prefetched) Cost(_, _ []kernel.Type, _ kernel.Content) kernel.Cost { return kernel.Cost{} }

// isTransfer tells whether a call is one of the four, which store their values as they come.
func isTransfer(k kernel.Kernel) bool {
	switch k.(type) {
	case offloadTo, offloaded, prefetchFrom, prefetched:
		return true
	}
	return false
}

// offloadLeast is the size in bytes from which a value is worth the way to the host and back.
const offloadLeast = 1 << 16

// offloadedValue is a value on its way through host memory.
type offloadedValue struct {
	value              *Value
	made               int // index of the call that makes it
	lastRead           int // by the forward pass
	firstBack          int // by the backward pass
	out, gone          *call
	in, back           *call
	prefetch           int // where prefetchFrom goes
	hostValue, fetched *Value
}

// offload copies to host memory what layers were kept for, all but what the last of their calls makes: that is wanted
// at once.
func offload(c *compilation) error {
	if c.builder.recompute.mode != Offload {
		return nil
	}
	calls := c.calls
	readers, at := readersOf(calls, nil), placesOf(calls)
	var all []*offloadedValue
	for _, c := range calls {
		if c.backward {
			continue
		}
		for _, v := range c.out {
			if root(v) != v || v.Type.Bytes() < offloadLeast {
				continue
			}
			p := &offloadedValue{value: v, made: at[c], lastRead: at[c], firstBack: -1}
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
	all = slices.DeleteFunc(all, func(p *offloadedValue) bool { return p.made == last })
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
func (p *offloadedValue) insert(calls []*call, readers map[*Value][]int, before, after map[int][]*call) {
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
	p.out, away = call1(offloadTo{}, false, v)
	away.host = true
	p.gone, p.hostValue = call1(offloaded{}, false, v, away)
	p.hostValue.host = true
	p.in, here = call1(prefetchFrom{v.Type}, true, p.hostValue)
	p.back, p.fetched = call1(prefetched{}, true, here)
	after[p.made] = append(after[p.made], p.out)
	after[p.lastRead] = append(after[p.lastRead], p.gone)
	before[p.prefetch] = append(before[p.prefetch], p.in)
	before[p.firstBack] = append(before[p.firstBack], p.back)
	for _, i := range readers[v] {
		if calls[i].backward {
			for j, x := range calls[i].in {
				if x == v {
					calls[i].in[j] = p.fetched
				}
			}
		}
	}
}
