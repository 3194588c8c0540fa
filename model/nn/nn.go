// Package nn holds layers as functions on a Net. Linear is the seam where storage and adapter meet: a model
// asks for a linear layer by name and cannot tell how its weights are stored nor what is trained beside them.
package nn

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Value is a tensor of the network.
type Value = graph.Value

// Net is a network under construction: a graph, how weights are stored, what wraps a linear layer, and how
// every frozen tensor is filled. Parameters are named by the scope they are asked for in, which is the
// checkpoint's name.
type Net struct {
	*graph.Builder
	dequantised        bool // quantised weights are kept as the numbers they stand for,
	dequantisedLinears int  // of so many linear layers; 0 = all
	dequantisedExperts bool
	quantised          []int64                           // numbers in each linear layer's weight
	scheme             *quant.Config                     // nil = weights as they are
	stored             func(name string) *quant.Config   // nil = scheme is all layers'
	wrap               func(*Net, string, Linear) Linear // nil = no adapter
	wrapExperts        func(*Net, []string, Experts) Experts
	wrapParameter      func(*Net, Parameter, []Experts) []Experts
	wrapRouter         func(*Net, string, Linear) Linear
	expertParameters   bool
	trainable          func(*Net, string, kernel.Type) *Value
	trained            map[string]*Value // by trainable
	halves             func(name string) kernel.DType
	weights            []Weight
	seen               map[string]bool
	shared             map[shared]*Value
	// RouterLogits are the logits [M,Experts] of every mixture of experts, in the order of the layers.
	RouterLogits []*Value
	// Uninfluential are the paths of linear layers whose result changes nothing by a little: a training has no gradient there.
	Uninfluential []string
	balance       *Balance
	ranks         int // that have a share of the tokens each; 1 = this one has all
}

// Options of a Net.
type Options struct {
	Float  kernel.DType  // f32, or f64 for reference runs
	Scheme *quant.Config // how linear layers' weights are stored; nil = as floats
	// Stored is how a checkpoint that is quantised already stores a linear layer's weight, by its name; nil = as floats.
	// Where it is given, Scheme says nothing.
	Stored func(name string) *quant.Config
	// Dequantised keeps quantised weights as the numbers they stand for, for speed: those of the first
	// DequantisedLinears linear layers, 0 = of all.
	Dequantised        bool
	DequantisedLinears int
	// DequantisedExperts keeps experts that Stored has in MXFP4 as numbers.
	DequantisedExperts bool
	Wrap               func(n *Net, name string, base Linear) Linear
	// WrapExperts is Wrap for linear layers of experts, which are made together; names are theirs.
	WrapExperts func(n *Net, names []string, base Experts) Experts
	// WrapParameter is Wrap for experts whose matrices are one parameter: in parts, as many as the result has.
	WrapParameter func(n *Net, p Parameter, parts []Experts) []Experts
	// WrapRouter is Wrap for a router whose weight is a parameter and not a linear layer: with ExpertParameters, and where transformers
	// never has the router as a linear layer.
	WrapRouter func(n *Net, name string, base Linear) Linear
	// ExpertParameters says that what wraps takes a mixture as transformers 5 has it: the matrices of experts that are layers of
	// their own in the checkpoint as parameters, and the router as no linear layer.
	ExpertParameters bool
	// Trainable declares a weight of the base model as a trained parameter of that name and type, or returns nil
	// for one that stays frozen. A linear layer's weight that is stored quantised is not asked for. nil = none.
	Trainable func(n *Net, name string, t kernel.Type) *Value
	// Halves is the 16-bit type in which a checkpoint has a matrix by its name, to be kept so in memory; 0 = it is kept as Float. nil
	// = all are. Results have the same bits. Only for networks without a gradient for a base weight.
	Halves func(name string) kernel.DType
	// Ranks have a share of a batch's tokens each, in their order, all as many; 0 = this one has all.
	Ranks int
}

// New starts a network.
func New(o Options) *Net {
	if o.Float == 0 {
		o.Float = kernel.F32
	}
	return &Net{Builder: graph.NewBuilder(o.Float), scheme: o.Scheme, stored: o.Stored, dequantised: o.Dequantised, dequantisedLinears: o.DequantisedLinears, dequantisedExperts: o.DequantisedExperts, wrap: o.Wrap, wrapExperts: o.WrapExperts, wrapParameter: o.WrapParameter, wrapRouter: o.WrapRouter, expertParameters: o.ExpertParameters, trainable: o.Trainable, halves: o.Halves, ranks: max(o.Ranks, 1), seen: map[string]bool{}, trained: map[string]*Value{}, shared: map[shared]*Value{}}
}

type shared struct {
	x    *Value
	what string
}

// Ranks are how many have a share of a batch's tokens each; 1 = this one has all.
func (n *Net) Ranks() int { return n.ranks }

// Shared returns make(), made once for each x and kind of thing: a dropout mask that all adapters of one
// input share, for instance.
func (n *Net) Shared(x *Value, what string, make func() *Value) *Value {
	k := shared{x, what}
	if n.shared[k] == nil {
		n.shared[k] = make()
	}
	return n.shared[k]
}

// Quantised are the numbers in each linear layer's quantised weight, in the order of the layers.
func (n *Net) Quantised() []int64 { return n.quantised }

// Weights are the checkpoint's tensors that the network reads, in the order of their use.
func (n *Net) Weights() []Weight { return n.weights }

// WeightNames are the names of those that the checkpoint has.
func (n *Net) WeightNames() []string {
	var names []string
	for _, w := range n.weights {
		if w.Name != "" {
			names = append(names, w.Name)
		}
	}
	return names
}

// matrix is the type in which a matrix is kept that the checkpoint's tensors of these names make up.
func (n *Net) matrix(rows, cols int, names ...string) kernel.Type {
	if n.halves == nil {
		return kernel.T(n.Float(), rows, cols)
	}
	d := n.halves(names[0])
	for _, name := range names[1:] {
		if n.halves(name) != d {
			d = 0
		}
	}
	if d == 0 {
		d = n.Float()
	}
	return kernel.T(d, rows, cols)
}

// add declares a tensor that is filled from the checkpoint's tensor of that name: frozen, unless the run trains it.
func (n *Net) add(name string, shape []int, t kernel.Type) *Value {
	if !n.seen[name] {
		n.seen[name] = true
		if n.trainable != nil {
			n.trained[name] = n.trainable(n, name, t)
		}
		n.weights = append(n.weights, Weight{Name: name, Shape: shape, Into: []string{name}, device: n.trained[name] == nil, fill: func(r Reader, dst []kernel.Tensor) error {
			return fillFloats(r, name, dst[0])
		}})
	}
	if v := n.trained[name]; v != nil {
		return v
	}
	return n.Frozen(name, t)
}
