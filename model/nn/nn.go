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

// Net is a network under construction: a graph, how weights are stored, what wraps a linear layer, and how
// every frozen tensor is filled. Parameters are named by the scope they are asked for in, which is the
// checkpoint's name.
type Net struct {
	*graph.Builder
	decoded        bool                              // quantised weights are kept as the numbers they stand for,
	decodedLinears int                               // of so many linear layers; 0 = all
	quantised      []int64                           // numbers in each linear layer's weight
	scheme         *quant.Config                     // nil = weights as they are
	wrap           func(*Net, string, Linear) Linear // nil = no adapter
	weights        []Weight
	seen           map[string]bool
	shared         map[shared]*Value
}

// Weight is a tensor of the checkpoint and where its values go.
type Weight struct {
	Name  string // the checkpoint's; empty where the values are computed
	Shape []int
	Into  []string // names in graph.Store
	fill  func(r Reader, dst []kernel.Tensor) error
}

// Reader gives a checkpoint's values as float32.
type Reader interface {
	// Float32s reads elements [from, from+len(dst)) of a tensor, row-major.
	Float32s(name string, from int, dst []float32) error
}

// Options of a Net.
type Options struct {
	Float  kernel.DType  // f32, or f64 for reference runs
	Scheme *quant.Config // how linear layers' weights are stored; nil = as floats
	// Decoded keeps quantised weights as the numbers they stand for, for speed: those of the first
	// DecodedLinears linear layers, 0 = of all.
	Decoded        bool
	DecodedLinears int
	Wrap           func(n *Net, name string, base Linear) Linear
}

// New starts a network.
func New(o Options) *Net {
	if o.Float == 0 {
		o.Float = kernel.F32
	}
	return &Net{Builder: graph.NewBuilder(o.Float), scheme: o.Scheme, decoded: o.Decoded, decodedLinears: o.DecodedLinears, wrap: o.Wrap, seen: map[string]bool{}, shared: map[shared]*Value{}}
}

type shared struct {
	x    *Value
	what string
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

// add declares a frozen tensor that is filled from the checkpoint's tensor of that name.
func (n *Net) add(name string, shape []int, t kernel.Type) *Value {
	if !n.seen[name] {
		n.seen[name] = true
		n.weights = append(n.weights, Weight{Name: name, Shape: shape, Into: []string{name}, fill: func(r Reader, dst []kernel.Tensor) error {
			return fillFloats(r, name, dst[0])
		}})
	}
	return n.Frozen(name, t)
}

// Fill reads a weight into memory. Weights may be filled at the same time.
func (w Weight) Fill(r Reader, m graph.Store) error {
	dst := make([]kernel.Tensor, len(w.Into))
	for i, name := range w.Into {
		t, err := m.Tensor(name)
		if err != nil {
			return nil // no plan reads it
		}
		dst[i] = t
	}
	err := w.fill(r, dst)
	if err == nil {
		err = m.Put(w.Into...)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", w.Name, err)
	}
	return nil
}

// fillChunk bounds the float32 copy of a tensor that exists while it is loaded, in elements.
const fillChunk = 1 << 18

func fillFloats(r Reader, name string, dst kernel.Tensor) error {
	if dst.DType == kernel.F32 {
		return r.Float32s(name, 0, dst.F32())
	}
	to := dst.F64()
	buf := make([]float32, min(fillChunk, len(to)))
	for from := 0; from < len(to); from += len(buf) {
		part := buf[:min(len(buf), len(to)-from)]
		if err := r.Float32s(name, from, part); err != nil {
			return err
		}
		for i, v := range part {
			to[from+i] = float64(v)
		}
	}
	return nil
}
