package optimizer

import (
	"slices"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// Tensor is one trained tensor within an Update.
type Tensor struct {
	Name  string
	Shape []int
	From  int // its first element in the update's vectors

	// Param and Grad are the tensor's parameters and gradients.
	Param, Grad *graph.Value
}

// hidden reports whether a tensor is a matrix, or a stack of them, that is no embedding and no head.
func (t Tensor) hidden() bool {
	outer := func(name string) bool { return strings.Contains(t.Name, name) }
	return len(t.Shape) > 1 && !slices.ContainsFunc([]string{"embed", "lm_head", "score."}, outer)
}

// matrices returns the matrices of a stack, or the matrix or vector that the tensor is.
func (t Tensor) matrices() (all []kernel.Matrix) {
	rank := len(t.Shape)
	if rank < 2 {
		return []kernel.Matrix{{From: t.From, Rows: kernel.T(kernel.F32, t.Shape...).Elems()}}
	}
	one := kernel.Matrix{From: t.From, Rows: t.Shape[rank-2], Cols: t.Shape[rank-1]}
	for range kernel.T(kernel.F32, t.Shape[:rank-2]...).Elems() {
		all = append(all, one)
		one.From += one.Elems()
	}
	return all
}

// of returns the update of one of its tensors alone.
func (u Update) of(t Tensor) Update {
	if u.Tensor != "" {
		return u
	}
	u.Params, u.Grads, u.Tensor = u.Net.Part(t.Param), u.Net.Part(t.Grad), t.Name
	t.From = 0
	u.Tensors = []Tensor{t}
	return u
}

// matrixTable declares the table of matrices that a kernel reads on a device.
func (u Update) matrixTable(all []kernel.Matrix, places func(kernel.Matrix) (int, int)) *graph.Value {
	fill := func(dst []int32) { kernel.MatrixTable(dst, all, places) }
	return u.Net.Table(u.named("table of matrices"), fill, len(all), kernel.MatrixColumns)
}
