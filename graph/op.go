package graph

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"strings"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tierlora/tierlora/kernel"
)

// op shows a kernel application to Gorgonia. Gorgonia merges nodes by the hash of their op, so the hash
// holds a number of its own for every application: two applications are never one node.
type op struct {
	b    *Builder
	call *call
	id   int
	out  kernel.Type
}

// sideOutput shows a kernel's second and later outputs as a function of the first.
type sideOutput struct {
	op    *op
	out   kernel.Type
	index int
}

var errPlanned = errors.New("this graph is run by its plan, not by Gorgonia")

// gorgoniaType returns how Gorgonia sees a value: a float is a float there, whatever its storage.
func (b *Builder) gorgoniaType(t kernel.Type) hm.Type {
	if len(t.Shape) == 0 {
		return gorgoniaFloat(b.float)
	}
	return gorgonia.TensorType{Dims: len(t.Shape), Of: gorgoniaFloat(b.float)}
}

func (o *op) Arity() int { return len(o.call.in) }
func (o *op) Type() hm.Type {
	types := make([]hm.Type, 0, len(o.call.in)+1)
	for _, v := range o.call.in {
		types = append(types, o.b.gorgoniaType(v.Type))
	}
	return hm.NewFnType(append(types, o.b.gorgoniaType(o.out))...)
}
func (o *op) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) { return o.out.Shape, nil }
func (o *op) Do(...gorgonia.Value) (gorgonia.Value, error)          { return nil, errPlanned }
func (o *op) ReturnsPtr() bool                                      { return true }
func (o *op) CallsExtern() bool                                     { return false }
func (o *op) OverwritesInput() int                                  { return -1 }
func (o *op) WriteHash(h hash.Hash)                                 { fmt.Fprintf(h, "%d %#v", o.id, o.call.kernel) }
func (o *op) Hashcode() uint32                                      { return hashcode(o) }
func (o *op) String() string                                        { return o.call.kernel.Name() }

// DiffWRT tells which inputs a gradient is wanted for: those the kernel can differentiate by and that
// depend on a parameter.
func (o *op) DiffWRT(inputs int) []bool {
	want := make([]bool, inputs)
	d, ok := o.call.kernel.(kernel.Differentiable)
	if !ok {
		return want
	}
	for i, ref := range d.Grads().Grads {
		want[i] = ref.Kind() != kernel.RefNone && o.call.in[i].requires
	}
	return want
}

// SymDiff applies the kernel's Backward to this application.
func (o *op) SymDiff(_ gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	b, k := o.b, o.call.kernel
	upstream, err := b.value(grad)
	if err != nil {
		return nil, err
	}
	if _, ok := k.(kernel.Terminal); ok && upstream != b.one {
		return nil, fmt.Errorf("%v: its gradient holds at the end of a graph only", o.call)
	}
	back := k.(kernel.Differentiable).Grads()
	want := o.DiffWRT(len(o.call.in))
	calls := make([]*call, len(back.Calls))
	resolve := func(r kernel.Ref) (*Value, error) {
		switch r.Kind() {
		case kernel.RefIn:
			return o.call.in[r.Index], nil
		case kernel.RefOut:
			return o.call.out[r.Index], nil
		case kernel.RefUpstream:
			return upstream, nil
		case kernel.RefCall:
			if calls[r.Call] == nil {
				return nil, fmt.Errorf("%v: its gradient reads call %d before it is made", o.call, r.Call)
			}
			return calls[r.Call].out[r.Index], nil
		}
		return nil, fmt.Errorf("%v: its gradient reads nothing where a value is needed", o.call)
	}
	needed := neededCalls(back, want)
	for i, c := range back.Calls {
		if !needed[i] {
			continue
		}
		in := make([]*Value, len(c.In))
		for j, r := range c.In {
			if in[j], err = resolve(r); err != nil {
				return nil, err
			}
		}
		scopes := b.scopes
		b.scopes = []string{gradScope + o.call.scope}
		calls[i], err = b.apply(c.Kernel, in)
		b.scopes = scopes
		if err != nil {
			return nil, fmt.Errorf("gradient of %v: %s: %w", o.call, c.Kernel.Name(), err)
		}
	}
	grads := make(gorgonia.Nodes, len(o.call.in))
	for i, w := range want {
		if !w {
			continue
		}
		v, err := resolve(back.Grads[i])
		if err != nil {
			return nil, err
		}
		if !v.Type.Equal(o.call.in[i].Type) {
			return nil, fmt.Errorf("%v: the gradient of input %d is %v, the input is %v", o.call, i, v.Type,
				o.call.in[i].Type)
		}
		grads[i] = v.node
	}
	return grads, nil
}

// neededCalls marks the calls that a wanted gradient depends on.
func neededCalls(back kernel.Backward, want []bool) []bool {
	needed := make([]bool, len(back.Calls))
	for i, r := range back.Grads {
		if want[i] && r.Kind() == kernel.RefCall {
			needed[r.Call] = true
		}
	}
	for i := len(back.Calls) - 1; i >= 0; i-- {
		if !needed[i] {
			continue
		}
		for _, r := range back.Calls[i].In {
			if r.Kind() == kernel.RefCall {
				needed[r.Call] = true
			}
		}
	}
	return needed
}

func (s *sideOutput) Arity() int { return 1 }
func (s *sideOutput) Type() hm.Type {
	return hm.NewFnType(s.op.b.gorgoniaType(s.op.out), s.op.b.gorgoniaType(s.out))
}
func (s *sideOutput) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) { return s.out.Shape, nil }
func (s *sideOutput) Do(...gorgonia.Value) (gorgonia.Value, error)          { return nil, errPlanned }
func (s *sideOutput) ReturnsPtr() bool                                      { return true }
func (s *sideOutput) CallsExtern() bool                                     { return false }
func (s *sideOutput) OverwritesInput() int                                  { return -1 }
func (s *sideOutput) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "%d output %d", s.op.id,
		s.index)
}
func (s *sideOutput) Hashcode() uint32 { return hashcode(s) }
func (s *sideOutput) String() string {
	return fmt.Sprintf("%v output %d", s.op,
		s.index)
}
func (s *sideOutput) DiffWRT(int) []bool { return []bool{false} }
func (s *sideOutput) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("%v is not differentiable", s)
}

func hashcode(o gorgonia.Op) uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// isAdd recognises Gorgonia's own sum of two tensors, the one op it inserts by itself.
func isAdd(o gorgonia.Op) bool { return o.Arity() == 2 && strings.HasPrefix(o.String(), "+ ") }
