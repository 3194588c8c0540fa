package adapter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// loraExperts are experts with low-rank updates: y = base(x) + s (x A_eᵀ) B_eᵀ. The experts' matrices lie one below the other;
// those of an expert that is no target are zero, and with both zero have no gradient.
type loraExperts struct {
	n       *nn.Net
	base    nn.Experts
	a, b    *nn.Value // [E*R,In], [E*Out,R]
	scale   float64
	dropout float64
	counter *nn.Value
}

// wrapLoRAExperts adapts the experts of which adapted is true.
func wrapLoRAExperts(t *Trained, c Config, n *nn.Net, paths []string, adapted []bool, base nn.Experts) nn.Experts {
	if c.lora().LoRABias {
		n.Fail(fmt.Errorf("lora.lora_bias: %s is an expert's layer, whose update has no bias here: leave the key out, or "+
			"the experts", paths[slices.Index(adapted, true)]))
		return base
	}
	experts, in, out := base.Size()
	first := paths[slices.Index(adapted, true)]
	r, scale := c.Rank(first), c.Scale(first)
	for e, path := range paths {
		if adapted[e] && (c.Rank(path) != r || c.Scale(path) != scale) {
			n.Fail(fmt.Errorf("lora.rank_pattern, lora.alpha_pattern: %s has rank %d and scale %g, %s rank %d and scale %g; experts of one layer must have the same",
				first, r, scale, path, c.Rank(path), c.Scale(path)))
			return base
		}
	}
	var a, b []member
	for e, path := range paths {
		var nameA, nameB string
		if adapted[e] {
			nameA, nameB = path+suffixA, path+suffixB
		}
		a = append(a, member{Param: Param{Name: nameA, Shape: []int{r, in}}})
		b = append(b, member{Param: Param{Name: nameB, Shape: []int{out, r}}})
	}
	name := n.Scope()
	l := &loraExperts{n: n, base: base, scale: scale, dropout: c.Dropout,
		a: t.stack(n, name+suffixA, a, experts*r, in), b: t.stack(n, name+suffixB, b, experts*out, r)}
	if c.Dropout > 0 {
		l.counter = n.Batch(DropoutCounter, kernel.T(kernel.I32, 2))
	}
	return l
}

func (l *loraExperts) Size() (experts, in, out int) { return l.base.Size() }

func (l *loraExperts) Apply(x *nn.Value, at nn.Sorted) *nn.Value {
	y := l.base.Apply(x, at)
	branch := x
	if l.dropout > 0 {
		branch = l.n.Shared(x, "dropout", func() *nn.Value {
			return l.n.Apply(kernel.DropSlots{P: l.dropout, Stream: stream(l.n.Scope()), Ranks: l.n.Ranks()}, x, l.counter, at.Source)
		})
	}
	experts, _, _ := l.base.Size()
	low := l.n.Shared(branch, "times "+l.a.Name, func() *nn.Value { // [S,In] -> [S,R], of all parts of a parameter
		return l.n.Apply(kernel.ExpertMatMul{Experts: experts, TransB: true}, branch, l.a, at.Starts)
	})
	return l.n.Add(y, l.n.Apply(kernel.ExpertMatMul{Experts: experts, TransB: true, Alpha: l.scale}, low, l.b, at.Starts))
}

// member is a tensor of PEFT's in a stack.
type member struct {
	Param
	// Of a parameter's B [Out,R*E], which lies in the stack as [E,Out,R], or of an embedding's A [R,V], which lies as
	// [V,R], the number E or V; 0 = it lies as PEFT has it.
	experts int
	// Of a parameter's B in stacks part by part, the first of PEFT's rows in this one and how many it has; rows 0 = all.
	from, rows int
}

// begins tells whether the stack has PEFT's tensor from its start on: one that does not continues the tensor before.
func (m member) begins() bool { return m.from == 0 }

// elems is how many numbers PEFT's tensor has, and own how many of them this stack has.
func (m member) elems() int { return kernel.T(kernel.F32, m.Shape...).Elems() }

func (m member) own() int {
	if m.rows > 0 {
		return m.rows * m.Shape[1]
	}
	return m.elems()
}

// place is where PEFT's tensor has the stack's i-th number of it.
func (m member) place(i int) int {
	if m.experts == 0 {
		return i
	}
	out, width := m.rows, m.Shape[1]
	rank := width / m.experts
	e, o, r := i/(out*rank), i/rank%out, i%rank
	return (m.from+o)*width + r*m.experts + e
}

// stack declares a trained tensor that holds PEFT's tensors of some experts one after the other; those without a name are
// not PEFT's, and stay zero.
func (t *Trained) stack(n *nn.Net, name string, members []member, shape ...int) *nn.Value {
	v := t.param(n, name, shape...)
	if t.members == nil {
		t.members = map[string][]member{}
	}
	t.members[v.Name] = members
	return v
}

// List are the trained tensors as PEFT names them, zero.
func (t *Trained) List() []Param {
	var list []Param
	t.each(func(_ *nn.Value, _, _ int, p member) {
		if p.begins() {
			p.Data = make([]float32, p.elems())
			list = append(list, p.Param)
		}
	})
	return list
}

// Sizes are the numbers of the tensors that lie in a trained one, in their order: PEFT's, or the part of one that it has, and, in a stack,
// those that are not PEFT's.
func (t *Trained) Sizes(v *nn.Value) []int {
	members, ok := t.members[v.Name]
	if !ok {
		return []int{v.Type.Elems()}
	}
	var sizes []int
	for _, m := range members {
		sizes = append(sizes, m.own())
	}
	return sizes
}

// Numbers counts what is trained.
func (t *Trained) Numbers() (all int64) {
	t.each(func(_ *nn.Value, _, n int, _ member) { all += int64(n) })
	return all
}

// AlwaysUsed are the trained tensors, as the plan names them, that every batch uses: all but stacks in which only some
// experts are adapted, which no token may choose, and those of layers without influence, given by their paths.
func (t *Trained) AlwaysUsed(without []string) []string {
	var names []string
	for _, v := range t.Params {
		some := slices.ContainsFunc(t.members[v.Name], func(m member) bool { return m.Name == "" })
		if !some && !slices.ContainsFunc(without, func(path string) bool { return strings.HasPrefix(v.Name, path+".") }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// each calls see for every tensor of PEFT's, or part of one: where its n numbers lie, from which element on, and its name and shape.
func (t *Trained) each(see func(v *nn.Value, from, n int, p member)) {
	for _, v := range t.Params {
		members, ok := t.members[v.Name]
		if !ok {
			members = []member{{Param: Param{Name: v.Name, Shape: v.Type.Shape}}}
		}
		from := 0
		for _, p := range members {
			n := p.own()
			if p.Name != "" {
				see(v, from, n, p)
			}
			from += n
		}
	}
}

// ExpertWrapper is the nn.Options.WrapExperts of a method, as Wrapper is for other layers.
func (m Method) ExpertWrapper(t *Trained, c Config) func(n *nn.Net, paths []string, base nn.Experts) nn.Experts {
	return func(n *nn.Net, paths []string, base nn.Experts) nn.Experts {
		adapted := make([]bool, len(paths))
		for e, path := range paths {
			t.linear(path)
			if adapted[e] = c.Adapts(path); adapted[e] {
				t.Layers = append(t.Layers, path)
			}
		}
		if !slices.Contains(adapted, true) {
			return base
		}
		if m.WrapExperts == nil {
			n.Fail(fmt.Errorf("%s: %s is an expert's layer, which this adapter does not train; name other layers",
				c.Key("target_modules"), paths[slices.Index(adapted, true)]))
			return base
		}
		first := len(t.Params)
		x := m.WrapExperts(t, c, n, paths, adapted, base)
		t.rate(m, c, first)
		return x
	}
}
