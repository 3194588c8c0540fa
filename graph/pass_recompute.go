package graph

import (
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// Recompute says which forward values are recomputed for the backward pass instead of being kept. The
// numbers are the same bit for bit.
type Recompute uint8

const (
	KeepAll          Recompute = iota // nothing is recomputed
	RecomputeCheap                    // what little work makes: kernels that say so
	KeepAttention                     // all of a layer, from its input and the outputs of its attention
	RecomputeLayers                   // all of a layer, from its input
	OffloadAttention                  // as KeepAttention, with what is kept in host memory
	Offload                           // as RecomputeLayers, with the layers' inputs in host memory
)

// String names a mode by the value of training.gradient_checkpointing that may choose it.
func (r Recompute) String() string {
	return [...]string{"none", "selective", "full without attention", "full", "offload with attention", "offload"}[r]
}

// Offloads reports whether a mode moves values to host memory.
func (r Recompute) Offloads() bool { return r >= OffloadAttention }

// KeepsAttention reports whether a mode recomputes layers and keeps the outputs of their attention.
func (r Recompute) KeepsAttention() bool { return r == KeepAttention || r == OffloadAttention }

// Recompute sets what Compile leaves to be recomputed: by mode in the first layers, and by rest, which does not
// offload, in the others. 0 layers are all.
func (b *Builder) Recompute(mode Recompute, layers int, rest Recompute) {
	b.recompute = recomputePolicy{mode, layers, rest}
}

// recomputePolicy is a mode, how many layers it holds for, and the mode of the others.
type recomputePolicy struct {
	mode   Recompute
	layers int // 0 = all
	rest   Recompute
}

// modes is the mode of each layer by its scope, and of calls outside layers.
func (d recomputePolicy) modes(calls []*call) func(c *call) Recompute {
	number := map[string]int{}
	for _, c := range calls {
		l := layerOf(c.scope)
		if _, seen := number[l]; !seen && l != "" && !c.backward {
			number[l] = len(number)
		}
	}
	return func(c *call) Recompute {
		l := layerOf(c.scope)
		if l == "" || d.layers == 0 || d.mode == KeepAll || number[l] < d.layers {
			return d.mode
		}
		return d.rest
	}
}

// cheap is a kernel whose output costs less to recompute than to keep.
type cheap interface{ Cheap() }

// cheapAfter is a kernel that is cheap where its first input is recomputed: else that input had to be kept in the place
// of its output.
type cheapAfter interface{ CheapAfter() }

// isMixer reports whether a call mixes the tokens of rows. Its outputs are the costliest of a layer to recompute, for
// their bytes: the work of attention over a row of n tokens grows with n squared.
func isMixer(c *call) bool {
	switch c.kernel.(type) {
	case kernel.Attention, kernel.AttentionSinks, kernel.AttentionQKV, kernel.GatedDelta:
		return true
	}
	return false
}

// layerOf returns the scope up to its first number: "model.layers.3" of "model.layers.3.mlp", "" where there is none.
func layerOf(scope string) string {
	at := 0
	for _, part := range strings.SplitAfter(scope, ".") {
		at += len(part)
		name := strings.TrimSuffix(part, ".")
		if name != "" && strings.Trim(name, "0123456789") == "" {
			return scope[:at-len(part)+len(name)]
		}
	}
	return ""
}

// recomputer rewrites backward calls to read recomputed values.
type recomputer struct {
	recomputed map[*Value]bool   // forward values that are not kept
	clones     map[*Value]*Value // of the recomputed values
	out        []*call
}

// recompute inserts, before the first backward call that needs it, a second application of every call whose
// outputs are not kept.
func recompute(c *compilation) error {
	calls, d := c.calls, c.builder.recompute
	if d.mode == KeepAll {
		return nil
	}
	mode := d.modes(calls)
	r := &recomputer{recomputed: map[*Value]bool{}, clones: map[*Value]*Value{}}
	for _, c := range calls {
		if c.backward {
			continue
		}
		_, isCheap := c.kernel.(cheap)
		if _, after := c.kernel.(cheapAfter); after && r.recomputed[c.in[0]] {
			isCheap = true
		}
		m := mode(c)
		if m.KeepsAttention() && isMixer(c) {
			continue
		}
		if m == RecomputeCheap && isCheap || m >= KeepAttention && layerOf(c.scope) != "" {
			for _, v := range c.out {
				r.recomputed[v] = root(v).kind == Computed &&
					(m >= KeepAttention || 16*v.Type.Bytes() >= c.out[0].Type.Bytes())
			}
		}
	}
	for _, c := range calls { // a layer's input is what another layer, or none, made
		for _, v := range c.in {
			if !c.backward && v.call != nil && layerOf(v.call.scope) != layerOf(c.scope) &&
				max(mode(c), mode(v.call)) >= KeepAttention {
				r.recomputed[v] = false
			}
		}
	}
	for _, c := range calls {
		if c.backward {
			for i, v := range c.in {
				c.in[i] = r.value(v)
			}
		}
		r.out = append(r.out, c)
	}
	c.calls = r.out
	return nil
}

// value returns the value that a backward call reads in v's place.
func (r *recomputer) value(v *Value) *Value {
	if !r.recomputed[v] {
		return v
	}
	return r.clone(v)
}

// clone applies v's call again. What the call overwrites is always recomputed: the first application has
// used it up.
func (r *recomputer) clone(v *Value) *Value {
	if c, ok := r.clones[v]; ok {
		return c
	}
	overwritten := map[int]bool{}
	for _, a := range overwrites(v.call) {
		overwritten[a.In] = true
	}
	n := &call{kernel: v.call.kernel, scope: recomputedScope + v.call.scope, segment: v.call.segment, backward: true}
	for i, x := range v.call.in {
		if overwritten[i] && x.call != nil && root(x).kind == Computed {
			n.in = append(n.in, r.clone(x))
		} else {
			n.in = append(n.in, r.value(x))
		}
	}
	for i, x := range v.call.out {
		y := &Value{Type: x.Type, Name: "recomputed " + x.Name, call: n, out: i, requires: x.requires,
			depends: x.depends}
		n.out = append(n.out, y)
		r.clones[x] = y
	}
	r.out = append(r.out, n)
	return r.clones[v]
}
