package kernel

import "fmt"

// KVAppend writes rows into a cache in place: row t goes to row at[t] of the cache. Rows whose place is outside of the
// cache are dropped: those of a batch that hold no token have the place -1. Of rows with one place any may be left.
//
//	cache f[P,W], rows f[T,W], at i32[T*C] -> cache'
//
// With C places a row, C = 1 or more, row t goes to the rows at[t*C] to at[t*C+C-1].
type KVAppend struct{}

func (KVAppend) Name() string { return "kvappend" }

func (KVAppend) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[P,W]", "f[T,W]", "i32[A]")
	if err != nil {
		return nil, err
	}
	if rows, places := d.At('T'), d.At('A'); places < rows || rows > 0 && places%rows != 0 {
		return nil, fmt.Errorf("input 2 is %v, want one or more places for each of %d rows", in[2], rows)
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

func (KVAppend) Overwrites() []Alias { return []Alias{{0, 0}} }

func (KVAppend) CPU(_ *CPU, in, out []Tensor) func() {
	cache, rows, at := out[0].Bytes(), in[1].Bytes(), in[2].I32()
	places, size := in[0].Shape[0], in[0].Shape[1]*in[0].DType.Size() // of a row
	each := max(1, len(at)/max(1, in[1].Shape[0]))
	return func() {
		for i, to := range at {
			if to >= 0 && int(to) < places {
				copy(cache[int(to)*size:][:size], rows[i/each*size:])
			}
		}
	}
}

// Cost counts the rows alone, once: the rest of the cache stays.
func (KVAppend) Cost(in, _ []Type, _ Content) Cost {
	return Cost{Bytes: 2*in[1].Bytes() + in[2].Bytes()}
}

// Stored keeps the cache in the type that attention reads.
func (KVAppend) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{ComputeType}
}
