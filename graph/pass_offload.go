package graph

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// With Offload the inputs of layers wait for the backward pass in host memory, with OffloadAttention the outputs of
// attention too. A value leaves while its layer computes, and comes back while the layer behind it is differentiated:
// on a GPU both copies run beside the kernels.
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
	lastRead           int // by the forward pass; of a value within a layer, the layer's last call
	firstBack          int // by the backward pass
	lastBack           int
	within             bool // the value is not read outside its layer
	out, gone          *call
	in, back           *call
	prefetch           int // where prefetchFrom goes
	hostValue, fetched *Value
}

// offload copies to host memory the inputs of layers, and the outputs of attention that are kept, except those of the
// last layer that offloads: they are wanted first.
func offload(c *compilation) error {
	if !c.builder.recompute.mode.Offloads() {
		return nil
	}
	calls := c.calls
	readers, at := readersOf(calls, nil), placesOf(calls)
	mode := c.builder.recompute.modes(calls)
	var all []*offloadedValue
	for _, c := range calls {
		if c.backward || !mode(c).Offloads() {
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
				p.lastBack = i
			}
			p.within = layerOf(c.scope) == layerOf(calls[p.lastRead].scope)
			if p.firstBack >= 0 && (!p.within || isMixer(c) && layerOf(c.scope) != "") {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	all = scheduleOffloads(calls, all)
	before, after := map[int][]*call{}, map[int][]*call{}
	for _, p := range all {
		p.insert(calls, readers, before, after)
	}
	out := make([]*call, 0, len(calls)+4*len(all))
	for i, c := range calls {
		out = append(append(append(out, before[i]...), c), after[i]...)
	}
	c.calls = out
	return nil
}

// scheduleOffloads decides when the copies of values, which are in the order of their calls, begin and end. It leaves
// out the values that are made last.
func scheduleOffloads(calls []*call, all []*offloadedValue) []*offloadedValue {
	last := map[bool]int{}
	for _, p := range all {
		last[p.within] = p.made
	}
	all = slices.DeleteFunc(all, func(p *offloadedValue) bool { return p.made == last[p.within] })
	for i, p := range all {
		p.prefetch = p.firstBack
		if p.within {
			p.lastRead = layerEnd(calls, p.made)
		}
		for _, q := range all[i+1:] {
			if q.within != p.within || q.made == p.made {
				continue
			}
			at := q.firstBack
			if p.within { // the values of the next layer's feed-forward network, its largest, are free by then
				at = q.lastBack
			}
			p.prefetch = min(p.prefetch, at)
			break
		}
	}
	return all
}

// layerEnd returns the index of the last forward call of a layer, of which the call at index made is one.
func layerEnd(calls []*call, made int) int {
	end := made
	for end+1 < len(calls) && !calls[end+1].backward && layerOf(calls[end+1].scope) == layerOf(calls[made].scope) {
		end++
	}
	return end
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
