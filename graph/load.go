package graph

import (
	"context"
	"errors"

	"github.com/tierlora/tierlora/kernel"
)

// ErrNotFinite is what Loader.Load says of a weight that is packed and has a number that is not finite.
var ErrNotFinite = errors.New("a frozen weight must be finite")

// WeightLoad is a frozen weight on its way into a Store.
type WeightLoad struct {
	Into  []string // names in the store: one for numbers, the inputs of Packed after its first for a packed weight
	Elems int      // numbers
	// The weight is one of Members of equal size that lie one after the other in each of Into; Members 0 = it is alone.
	Member, Members int
	DType           kernel.DType // of what Read gives
	// Read reads the numbers from element from on, row-major, until dst is full. Several goroutines call it.
	Read        func(dst []byte, from int) error
	Packed      kernel.Kernel // the GEMM that reads the packed weight; nil = the weight is stored as numbers
	Dequantised bool          // of a packed weight, the numbers it stands for are stored
}

// Loader is a Store that converts and packs weights itself, from the numbers as a file holds them. It works in
// the memory it has: before the first plan is bound to it.
type Loader interface {
	// Load fills weights, workers reading at the same time. each[i] says what is wrong with weights[i]:
	// errors.ErrUnsupported means that it is not filled and the host has to, ErrNotFinite that it cannot be
	// packed. err is what ended the load before its end.
	Load(ctx context.Context, weights []WeightLoad, workers int) (each []error, err error)
}
