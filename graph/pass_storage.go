package graph

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// storage is how a plan's values lie in memory: their element types, and which parameter groups also have a
// copy in the plan's compute type that GEMMs read.
type storage struct {
	types  map[*Value]kernel.DType // where not as typed
	copied map[string]kernel.DType // groups of State, and the type of the copy
	inputs map[*call][]kernel.DType
}

// assignStorage asks the target call by call. Computed values are stored as their producer writes them,
// frozen ones as their readers want them, states without gradient (caches) as their first reader wants them,
// the rest as typed.
func assignStorage(p *compilation) error {
	p.store = storage{map[*Value]kernel.DType{}, map[string]kernel.DType{}, map[*call][]kernel.DType{}}
	for _, v := range p.inputs {
		if v.narrow && p.open {
			p.store.types[v] = kernel.BF16
		}
	}
	read := map[*Value]bool{}
	for _, c := range p.calls {
		in, declared := make([]kernel.DType, len(c.in)), make([]kernel.DType, len(c.out))
		for i, v := range c.in {
			in[i] = p.storedAs(v)
		}
		for i, t := range types(c.out) {
			declared[i] = t.DType
		}
		want, out, err := in, in[len(in)-1:], error(nil)
		if !isTransfer(c.kernel) {
			want, out, err = p.target.stored(c.kernel, in, declared)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if len(want) != len(c.in) || len(out) != len(c.out) {
			return fmt.Errorf("%v: storage of %d inputs and %d outputs, it has %d and %d", c, len(want), len(out),
				len(c.in), len(c.out))
		}
		for i, v := range c.in {
			r := root(v)
			switch {
			case want[i] == in[i] || want[i] == 0:
			case in[i] == 0:
				p.store.types[v] = want[i]
			case v.narrow:
				return fmt.Errorf("%v reads %s as %v, and it is stored in bf16 alone, which stochastic rounding asks "+
					"for", c, v.Name, want[i])
			case r.kind == State && r.requires && want[i].IsFloat() && want[i].Size() == 2:
				p.store.copied[r.group] = want[i]
			case v.kind == State && !v.requires && !v.span && !read[v]:
				p.store.types[v] = want[i]
			default:
				return fmt.Errorf("%v reads %s as %v, it is stored as %v", c, v.Name, want[i], in[i])
			}
		}
		for _, v := range c.in {
			read[v] = true
		}
		p.store.inputs[c] = want
		aliased := map[int]int{}
		for _, a := range overwrites(c) {
			aliased[a.Out] = a.In
		}
		for i, v := range c.out {
			if in, ok := aliased[i]; ok && out[i] != p.storedAs(c.in[in]) {
				return fmt.Errorf("%v writes %v over %s, which is stored as %v", c, out[i], c.in[in].Name,
					p.storedAs(c.in[in]))
			}
			if out[i] != v.Type.DType {
				p.store.types[v] = out[i]
			}
		}
	}
	return nil
}

// storedAs returns a value's element type in memory; 0 for a frozen number that nobody has read yet.
func (p *Plan) storedAs(v *Value) kernel.DType {
	if d, ok := p.store.types[v]; ok {
		return d
	}
	if v.kind == Frozen && v.call == nil && p.open && v.Type.DType.IsFloat() {
		return 0
	}
	return v.Type.DType
}

// stored returns a value's type in memory.
func (p *Plan) stored(v *Value) kernel.Type {
	if d, ok := p.store.types[v]; ok {
		return kernel.Type{DType: d, Shape: v.Type.Shape}
	}
	return v.Type
}

func (p *Plan) storedAll(vs []*Value) []kernel.Type {
	t := make([]kernel.Type, len(vs))
	for i, v := range vs {
		t[i] = p.stored(v)
	}
	return t
}

// types returns the types as the computation has them.
func types(vs []*Value) []kernel.Type {
	t := make([]kernel.Type, len(vs))
	for i, v := range vs {
		t[i] = v.Type
	}
	return t
}
