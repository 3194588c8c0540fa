package nn

import "github.com/tierlora/tierlora/kernel"

// UnitRMSNorm is HeadsRMSNorm with a weight of ones.
func (n *Net) UnitRMSNorm(x *Value, heads int, eps float64) *Value {
	size := x.Width() / heads
	name := "ones" + n.Scope() // one table per layer, since sizes differ
	ones := n.Frozen(name, kernel.T(n.Float(), size))
	n.declare(Weight{Into: []string{name}, storage: computed(fillOnes)})
	return n.Apply(kernel.RMSNorm{Eps: eps, Heads: heads}, x, ones)
}

func fillOnes(t kernel.Tensor) {
	if t.DType == kernel.F64 {
		for i := range t.F64() {
			t.F64()[i] = 1
		}
		return
	}
	for i := range t.F32() {
		t.F32()[i] = 1
	}
}

// ScaleBy multiplies by the checkpoint's scalar called name in the current scope. The scalar stays frozen even if the
// run trains base weights: in transformers it is a buffer.
func (n *Net) ScaleBy(name string, x *Value) *Value {
	name = n.Scope() + "." + name
	s := n.Frozen(name, kernel.T(n.Float(), 1))
	n.declare(Weight{Name: name, Shape: []int{1}, Into: []string{name}, storage: dense{}})
	return n.Apply(kernel.ScaleBy{}, x, s)
}

// Slice returns the i-th of parts equal slices of each row's columns.
func (n *Net) Slice(x *Value, i, parts int) *Value {
	width := x.Width() / parts
	return n.Apply(kernel.HeadColumns{Heads: 1, Of: x.Width(), From: i * width, Width: width}, x)
}

// GatedInput computes projection(activation(gate x) * input), [M,C] -> [M,C], with Gemma 4's names for the two linear
// layers.
func (n *Net) GatedInput(x, input *Value, activation string) *Value {
	k := n.gateKernel(activation)
	gate := n.Linear("per_layer_input_gate", x.Width(), input.Width(), false).Apply(x)
	return n.Linear("per_layer_projection", input.Width(), x.Width(), false).Apply(n.Apply(k, gate, input))
}
