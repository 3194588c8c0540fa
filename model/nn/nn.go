// Package nn holds layers as functions on a Net. Linear is the seam where storage and adapter meet: a model
// asks for a linear layer by name and cannot tell how its weights are stored nor what is trained beside them.
package nn

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Value is a tensor of the network.
type Value = graph.Value

// Net is a network under construction: a graph, the options that it is built with, and the checkpoint's weights that it
// reads. Weights are named by the scope in which a layer is asked for, which is the checkpoint's name. A layer is
// declared once, when it is asked for first, and may be applied often: asking for it again returns the same weights.
type Net struct {
	*graph.Builder
	Options
	quantised []int64           // numbers in each linear layer's weight that is quantised, in the order of the layers
	weights   []Weight          // in the order of their first use
	declared  map[string]any    // layers by their paths, and true for each weight by its name
	trained   map[string]*Value // base weights that Options.Train declared, by their names
	shared    map[shared]*Value
	// RouterLogits are the logits [M,Experts] of every mixture of experts, in the order in which they are applied.
	RouterLogits []*Value
	// Uninfluential lists the paths of linear layers whose gradient is always zero.
	Uninfluential []string
	// PrefixesGPU is why GPUs cannot compute a layer's attention over sequences that continue others; nil = they
	// can, or
	// no sequence does.
	PrefixesGPU error
	balance     *Balance
	prefix      string // begins the names of this network's tensors in memory; "" = they are the checkpoint's
	beside      *Net   // another model in the same computation; nil = there is none
	view        view   // which form of adapted layers the network is built with: AsReference
}

// EmbeddingLayer returns the embeddings y [M,C] of the tokens ids [M], which are scaled (0 = they are not), as an
// adapter changes them.
type EmbeddingLayer func(ids, y *Value, scale float64) *Value

// Options of a Net. The zero value is a network of float32 weights as the checkpoint has them, without an adapter.
type Options struct {
	// the type of activations and of weights that are kept as numbers: F32, or F64 for reference runs; 0 = F32
	Float  kernel.DType
	Scheme *quant.Config // how linear layers' weights are stored; nil = as numbers
	// Stored returns how a quantised checkpoint stores a linear layer's weight, by its name; nil = as numbers. Where it
	// is given, Scheme is not used.
	Stored func(name string) *quant.Config
	// Dequantised keeps quantised weights as the numbers that they stand for, for speed: those of the first
	// DequantisedLinears linear layers, 0 = of all.
	Dequantised        bool
	DequantisedLinears int
	// DequantisedExperts keeps experts as numbers that Stored has in MXFP4.
	DequantisedExperts bool
	// Images returns the embeddings of tokens with those of images in some places; nil = no batch has images.
	Images func(x *Value) *Value
	// ImagesAfter returns the result of a layer with what images add to it; nil = they add nothing.
	ImagesAfter func(layer int, x *Value) *Value
	// Angles returns a table of rotary angles with a row for each token of the batch, from a table for positions. The
	// batch's positions then are the tokens' own numbers. nil = they are rows of the table for positions.
	Angles func(table *Value) *Value
	// Noise returns the embeddings of tokens with noise; nil = they have none.
	Noise func(x *Value) *Value
	// Wrap returns a linear layer with what an adapter trains beside it; nil = there is no adapter.
	Wrap func(n *Net, name string, base Linear) Linear
	// WrapReference returns a linear layer with the frozen adapter of the reference (AsReference); nil = the reference
	// is the base model. Experts and routers that are parameters have none.
	WrapReference func(n *Net, name string, base Linear) Linear
	// WrapExperts is Wrap for the linear layers of experts, which are declared together; names are theirs.
	WrapExperts func(n *Net, names []string, base Experts) Experts
	// WrapParameter is Wrap for experts whose matrices are one parameter, in parts: it returns as many.
	WrapParameter func(n *Net, p Parameter, parts []Experts) []Experts
	// WrapRouter is Wrap for a router whose weight is a parameter and not a linear layer: with ExpertParameters, and
	// where transformers never has the router as a linear layer.
	WrapRouter func(n *Net, name string, base Linear) Linear
	// WrapEmbedding returns what changes the embeddings of tokens, for the table [vocab,width] of a path such as
	// model.embed_tokens; it returns nil where an adapter leaves the table as it is. nil = there is no adapter.
	WrapEmbedding func(n *Net, path string, vocab, width int) EmbeddingLayer
	// WrapHead returns the vocabulary head's weight as an adapter changes it, for the head of a path: lm_head, or the
	// embeddings that are tied to it. It returns w itself where the adapter leaves it as it is. nil = there is no
	// adapter.
	WrapHead func(n *Net, path string, w *Value) *Value
	// ExpertParameters passes a mixture of experts to the wrappers as transformers 5 has it: the matrices of experts
	// that are layers of their own in the checkpoint as parameters, and the router as no linear layer.
	ExpertParameters bool
	// Trainable reports whether a weight of the base model is trained, by the checkpoint's name; nil = all are frozen.
	// A weight that is stored quantised or in a stack of experts cannot be: the network then fails and says so. Where
	// no kernel has a gradient for a trained weight, graph.Builder.Grad fails and names the kernel.
	Trainable func(name string) bool
	// Train declares a trained weight of the base model as a parameter of that name and type.
	Train func(n *Net, name string, t kernel.Type) *Value
	// Rewrite returns what loads a weight in place of the checkpoint's reader, by the weight's name; nil = the weight
	// is loaded as the checkpoint has it. Nil for networks that leave the base model as it is.
	Rewrite func(name string) Rewriter
	// Halves returns the 16-bit type in which a checkpoint has a matrix, by its name, to keep it so in memory; 0 = it
	// is kept as Float. Nil keeps all as Float. Results have the same bits. Only for networks without a gradient for a
	// base weight.
	Halves func(name string) kernel.DType
	// Ranks is the number of ranks that share a batch's tokens equally, in their order; 0 = this one has all.
	Ranks int
}

// New starts a network.
func New(o Options) *Net {
	if o.Float == 0 {
		o.Float = kernel.F32
	}
	o.Ranks = max(o.Ranks, 1)
	return &Net{Builder: graph.NewBuilder(o.Float), Options: o, declared: map[string]any{},
		trained: map[string]*Value{},
		shared:  map[shared]*Value{}}
}

type shared struct {
	x    *Value
	what string
}

// Float is the type of activations and of weights that are kept as numbers.
func (n *Net) Float() kernel.DType { return n.Options.Float }

// Ranks is the number of ranks that share a batch's tokens; 1 = this one has all.
func (n *Net) Ranks() int { return n.Options.Ranks }

// once returns the layer that is called name in the current scope, which make declares the first time.
func once[T any](n *Net, name string, make func() T) T {
	path := n.Scope() + "." + name
	if have, ok := n.declared[path]; ok {
		return have.(T)
	}
	layer := make()
	n.declared[path] = layer
	return layer
}

// declare adds a weight to those that the network loads, once for each name; new is false where it was added before.
func (n *Net) declare(w Weight) (new bool) {
	name := "weight " + w.Name + " in " + w.Into[0]
	if n.declared[name] != nil {
		return false
	}
	n.declared[name] = true
	w.Into = inMemory(n, w.Into)
	n.weights = append(n.weights, w)
	return true
}

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
	listed := map[string]bool{"": true}
	for _, w := range n.weights {
		if !listed[w.Name] {
			listed[w.Name], names = true, append(names, w.Name)
		}
	}
	return names
}

// matrix is the type in which memory has a matrix that is made of the checkpoint's tensors of these names.
func matrix(n *Net, rows, cols int, names ...string) kernel.Type {
	if n.Halves == nil {
		return kernel.T(n.Float(), rows, cols)
	}
	d := n.Halves(names[0])
	for _, name := range names[1:] {
		if n.Halves(name) != d {
			d = 0
		}
	}
	if d == 0 {
		d = n.Float()
	}
	return kernel.T(d, rows, cols)
}

// add declares a tensor that is loaded from the checkpoint's tensor of that name: frozen, unless the run trains it.
func (n *Net) add(name string, shape []int, t kernel.Type) *Value {
	return addFrom(n, name, name, shape, t)
}

// addFrom declares a tensor that is loaded from the checkpoint's tensor called from. A trained one has the type Float.
func addFrom(n *Net, name, from string, shape []int, t kernel.Type) *Value {
	if v := n.trained[name]; v != nil {
		return v
	}
	trained := n.Trainable != nil && n.Trainable(name)
	if n.declare(Weight{Name: from, Shape: shape, Into: []string{name}, storage: dense{host: trained}}) && trained {
		n.trained[name] = n.Train(n, name, kernel.T(n.Float(), t.Shape...))
		return n.trained[name]
	}
	return n.Frozen(name, t)
}

// frozen fails the network where a weight is to be trained that how it is stored does not allow.
func (n *Net) frozen(name, stored string) {
	if n.Trainable != nil && n.Trainable(name) {
		n.Fail(fmt.Errorf(
			"%s cannot be trained, because it is stored %s: only a weight of its own, kept as numbers, can", name,
			stored))
	}
}
