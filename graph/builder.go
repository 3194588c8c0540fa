// Package graph compiles a recorded computation into a plan. It is the only package that imports Gorgonia.
//
// A Builder records kernel applications in a Gorgonia expression graph, Gorgonia differentiates it
// symbolically, and Compile turns it into a Plan: an ordered list of kernel calls, with every buffer's place decided
// before anything is allocated. A Plan bound to Memory runs without allocating.
package graph

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tierlora/tierlora/kernel"
)

// Kind says where a value's memory comes from.
type Kind uint8

const (
	Computed Kind = iota // written by a call; lives in the arena for as long as it is read
	Batch                // written by the host before a run
	Frozen               // written once, at loading
	State                // kept between runs and updated by them: parameters, moments, caches
)

// Value is a typed tensor of the computation. A plan gives it memory.
type Value struct {
	Type kernel.Type
	Name string

	kind     Kind
	group    string // State only: values of one group lie side by side
	moves    bool   // State only: Movable was called
	hosted   bool   // State only: Movable put it in host memory
	narrow   bool   // State only: NarrowBF16 was called
	span     bool   // the memory of a group, seen apart from its members: the whole of it, or
	part     string // that of one member
	requires bool   // a gradient reaches it
	host     bool   // Computed, but kept in host memory
	depends  bool   // real numbers that depend on a parameter, whether a gradient reaches them or not
	node     *gorgonia.Node
	call     *call // Computed only
	out      int   // which output of call
}

// Kind tells where the value's memory comes from.
func (v *Value) Kind() Kind { return v.kind }

// Trained reports whether a gradient reaches the value: it is a parameter, or is computed from one. False for nil.
func (v *Value) Trained() bool { return v != nil && v.requires }

// Movable marks a State that only updates read, such as moments, and returns it. In host memory (hosted) it takes none
// of the machine's, if the two differ: kernels read and write it there, over the link, and every result is the same.
func (v *Value) Movable(hosted bool) *Value {
	v.moves, v.hosted = true, hosted
	return v
}

// NarrowBF16 makes a GPU store a trained tensor in bf16 alone. GEMMs read it there, kernel.WidenBF16 makes float32
// numbers of it, and kernel.RoundStochastic writes it. A CPU stores such a tensor as float32.
func (v *Value) NarrowBF16() { v.narrow = true }

// Narrow reports whether NarrowBF16 was called.
func (v *Value) Narrow() bool { return v.narrow }

// Newest returns what the calls that are recorded in b so far leave in the memory of v.
func (v *Value) Newest(b *Builder) *Value {
	for _, c := range b.calls {
		for _, a := range overwrites(c) {
			if c.in[a.In] == v {
				v = c.out[a.Out]
			}
		}
	}
	return v
}

// Constant makes an output of a kernel that passes it no gradient a constant, and returns it: a loss may depend on
// parameters through it, and Grad leaves that dependence out. It is called before the value is used. A value that
// passes a gradient stays as it is.
func (v *Value) Constant() *Value {
	if v != nil && !v.requires {
		v.depends = false
	}
	return v
}

// call is one kernel application.
type call struct {
	kernel  kernel.Kernel
	in, out []*Value
	scope   string
	segment int
	// backward: made by differentiation, or after it.
	backward bool
}

func (c *call) String() string {
	if c.scope == "" {
		return c.kernel.Name()
	}
	return c.scope + ": " + c.kernel.Name()
}

// Builder records a computation. It keeps the first error with its scope and ignores every later call; Err and Compile
// report the error. Code that builds layers therefore needs no error checks and reads like the formula.
type Builder struct {
	g             *gorgonia.ExprGraph
	float         kernel.DType
	scopes        []string
	err           error
	inputs        []*Value // Batch, Frozen, State in order of creation
	byName        map[string]*Value
	byNode        map[*gorgonia.Node]*Value
	calls         []*call
	segments      []string
	one           *Value
	graded        bool // Grad was called
	compiled      bool
	recompute     recomputePolicy
	reuseDistance int
	rowsApart     bool
	ranks         int      // that hold the frozen values in slices
	transient     []string // groups of State that Transient names
	left          []string // passes
}

// NewBuilder starts an empty computation whose real numbers are kept as f32 or f64.
func NewBuilder(float kernel.DType) *Builder {
	b := &Builder{
		g: gorgonia.NewGraph(), float: float,
		byName: map[string]*Value{}, byNode: map[*gorgonia.Node]*Value{}, segments: []string{"main"},
	}
	if float != kernel.F32 && float != kernel.F64 {
		b.Fail(fmt.Errorf("a computation runs in f32 or f64, not %v", float))
	}
	return b
}

// Float returns the element type of the computation's real numbers: F32 or F64.
func (b *Builder) Float() kernel.DType { return b.float }

// Fail records an error at the current scope.
func (b *Builder) Fail(err error) {
	if b.err != nil || err == nil {
		return
	}
	if s := b.Scope(); s != "" {
		err = fmt.Errorf("%s: %w", s, err)
	}
	b.err = err
}

// Err returns the first error, or nil.
func (b *Builder) Err() error { return b.err }

// In runs f with name appended to the scope.
func (b *Builder) In(name string, f func()) {
	b.scopes = append(b.scopes, name)
	f()
	b.scopes = b.scopes[:len(b.scopes)-1]
}

// Scope returns the names of the enclosing calls of In, joined by dots.
func (b *Builder) Scope() string { return strings.Join(b.scopes, ".") }

// RowsApart asks for the forms of kernels whose result for a row does not depend on the rest of the batch
// (kernel.RowsApart).
func (b *Builder) RowsApart() { b.rowsApart = true }

// Without makes Compile skip the named passes, so that the effect of each can be measured.
func (b *Builder) Without(passes ...string) { b.left = append(b.left, passes...) }

// Segment starts a part of the computation that runs on its own, after the segments before it. Computed values do not
// cross from one segment to another; State does.
func (b *Builder) Segment(name string) {
	if len(b.calls) == 0 && len(b.segments) == 1 {
		b.segments[0] = name
		return
	}
	if slices.Contains(b.segments, name) {
		b.Fail(fmt.Errorf("segment %q is begun twice", name))
	}
	b.segments = append(b.segments, name)
}

// Batch declares data that the host writes before each run.
func (b *Builder) Batch(name string, t kernel.Type) *Value {
	return b.input(&Value{Type: t, Name: name, kind: Batch})
}

// Frozen declares data that is written once, while a model loads.
func (b *Builder) Frozen(name string, t kernel.Type) *Value {
	return b.input(&Value{Type: t, Name: name, kind: Frozen})
}

// Param declares a trained tensor in a group. Grad can differentiate with respect to it.
func (b *Builder) Param(group, name string, t kernel.Type) *Value {
	return b.input(&Value{Type: t, Name: name, kind: State, group: group, requires: true, depends: true})
}

// State declares a tensor that keeps its contents from run to run. Members of one group lie side by side, each aligned;
// a tensor with an empty group has a buffer of its own.
func (b *Builder) State(group, name string, t kernel.Type) *Value {
	return b.input(&Value{Type: t, Name: name, kind: State, group: group})
}

// Transient marks a group of a Builder's State whose contents need not outlive the runs of other plans, such as a cache
// of keys and values. Where every plan that uses the group marks it, the group lies in the arena behind the values of
// those plans, in bytes that other plans use for their own values. Store.Clear zeroes it.
func Transient(b *Builder, group string) { b.transient = append(b.transient, group) }

// Span returns all memory of a group of one element type as one vector, including the zero padding between members. A
// segment uses either the span, or parts, or the members.
func (b *Builder) Span(group string) *Value {
	var bytes int64
	d := b.float
	for _, v := range b.inputs {
		if v.kind == State && v.group == group && !v.span {
			bytes += kernel.AlignUp(v.Type.Bytes())
			d = v.Type.DType
		}
	}
	return b.input(&Value{Type: kernel.T(d, int(bytes)/d.Size()), Name: "span of " + group, kind: State, group: group,
		span: true})
}

// Part returns the memory of one member of a group as a vector. It is for segments that change the members one by one
// and do nothing else with the group.
func (b *Builder) Part(member *Value) *Value {
	t := kernel.T(member.Type.DType, member.Type.Elems())
	return b.input(&Value{Type: t, Name: "part " + member.Name, kind: State, group: member.group, span: true,
		part: member.Name, narrow: member.narrow})
}

func (b *Builder) input(v *Value) *Value {
	if b.err != nil {
		return v
	}
	if old, ok := b.byName[v.Name]; ok {
		if old.kind == v.kind && old.group == v.group && old.Type.Equal(v.Type) {
			return old
		}
		b.Fail(fmt.Errorf("%q is declared twice, as %v and as %v", v.Name, old.Type, v.Type))
		return v
	}
	v.node = gorgonia.NewTensor(b.g, gorgoniaFloat(b.float), len(v.Type.Shape), gorgonia.WithShape(v.Type.Shape...),
		gorgonia.WithName(v.Name))
	b.byName[v.Name] = v
	b.byNode[v.node] = v
	b.inputs = append(b.inputs, v)
	return v
}

// Apply applies a kernel and returns its first output.
func (b *Builder) Apply(k kernel.Kernel, in ...*Value) *Value { return b.ApplyAll(k, in...)[0] }

// ApplyAll applies a kernel and returns all its outputs.
func (b *Builder) ApplyAll(k kernel.Kernel, in ...*Value) []*Value {
	c, err := b.apply(k, in)
	if err != nil {
		b.Fail(fmt.Errorf("%s: %w", k.Name(), err))
	}
	if b.err != nil {
		return make([]*Value, 8) // never read: every method is a no-op after the first error
	}
	return c.out
}

func (b *Builder) apply(k kernel.Kernel, in []*Value) (*call, error) {
	if b.err != nil {
		return nil, b.err
	}
	types := make([]kernel.Type, len(in))
	nodes := make(gorgonia.Nodes, len(in))
	for i, v := range in {
		if v == nil {
			return nil, fmt.Errorf("input %d is missing", i)
		}
		types[i], nodes[i] = v.Type, v.node
	}
	outTypes, err := k.Shape(types)
	if err != nil {
		return nil, err
	}
	c := &call{kernel: k, in: append([]*Value(nil), in...), scope: b.Scope(), segment: len(b.segments) - 1,
		backward: b.graded}
	op := &op{b: b, call: c, id: len(b.calls), out: outTypes[0]}
	node, err := gorgonia.ApplyOp(op, nodes...)
	if err != nil {
		return nil, err
	}
	if _, ok := b.byNode[node]; ok {
		return nil, fmt.Errorf("it is merged with an earlier application")
	}
	b.calls = append(b.calls, c)
	_, constant := k.(kernel.HeldConstant)
	for i, t := range outTypes {
		v := &Value{Type: t, Name: fmt.Sprintf("%v#%d.%d", c, op.id, i), call: c, out: i, node: node}
		if i > 0 {
			if v.node, err = gorgonia.ApplyOp(&sideOutput{op: op, out: t, index: i}, node); err != nil {
				return nil, err
			}
		}
		b.byNode[v.node] = v
		for _, x := range in { // whole numbers, such as a choice, have no derivative to lose
			v.depends = v.depends || x.depends && t.DType.IsFloat() && !constant
		}
		c.out = append(c.out, v)
	}
	for _, d := range op.DiffWRT(len(in)) {
		c.out[0].requires = c.out[0].requires || d
	}
	return c, nil
}

// Grad differentiates a scalar with respect to parameters and returns the gradients in the parameters' order. It can be
// called once: Gorgonia keeps derivatives with its nodes and would add those of a second call to the first's.
func (b *Builder) Grad(loss *Value, params ...*Value) []*Value {
	if b.err == nil {
		b.Fail(b.checkGrad(loss, params))
		b.graded = true
	}
	if b.err != nil {
		return make([]*Value, len(params))
	}
	nodes := make(gorgonia.Nodes, len(params))
	for i, p := range params {
		nodes[i] = p.node
	}
	grads, err := gorgonia.Grad(loss.node, nodes...)
	if err != nil {
		b.Fail(fmt.Errorf("differentiate: %w", err))
		return make([]*Value, len(params))
	}
	out := make([]*Value, len(grads))
	for i, n := range grads {
		if out[i], err = b.value(n); err != nil {
			b.Fail(fmt.Errorf("gradient of %s: %w", params[i].Name, err))
		}
	}
	return out
}

// value finds the value of a Gorgonia node. Gorgonia itself makes two kinds of node while differentiating:
// the constant one it starts from, and sums where a value is used more than once.
func (b *Builder) value(n *gorgonia.Node) (*Value, error) {
	if v, ok := b.byNode[n]; ok {
		return v, nil
	}
	if n.Op() == nil {
		return nil, fmt.Errorf("node %v is no value of this computation", n)
	}
	if n.Op().Arity() == 0 {
		if b.one == nil {
			b.one = &Value{Type: kernel.T(b.float), Name: "one", kind: Frozen, node: n}
		}
		b.byNode[n] = b.one
		return b.one, nil
	}
	if !isAdd(n.Op()) {
		return nil, fmt.Errorf("differentiation made a node of %v, which the plan does not know", n.Op())
	}
	children := b.g.From(n.ID())
	var terms []*Value
	for children.Next() {
		v, err := b.value(children.Node().(*gorgonia.Node))
		if err != nil {
			return nil, err
		}
		terms = append(terms, v)
	}
	if len(terms) == 1 {
		terms = append(terms, terms[0])
	}
	out, err := kernel.Add{}.Shape([]kernel.Type{terms[0].Type, terms[1].Type})
	if err != nil {
		return nil, err
	}
	c := &call{kernel: kernel.Add{}, in: terms, scope: b.Scope(), segment: len(b.segments) - 1, backward: b.graded}
	v := &Value{Type: out[0], Name: fmt.Sprintf("sum#%d", len(b.calls)), call: c, node: n}
	c.out = []*Value{v}
	b.calls = append(b.calls, c)
	b.byNode[n] = v
	return v, nil
}

func gorgoniaFloat(d kernel.DType) tensor.Dtype {
	if d == kernel.F64 {
		return tensor.Float64
	}
	return tensor.Float32
}

// Width returns the size of the last dimension; 0 after an error.
func (v *Value) Width() int {
	if v == nil || len(v.Type.Shape) == 0 {
		return 0
	}
	return v.Type.Shape[len(v.Type.Shape)-1]
}
