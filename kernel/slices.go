package kernel

import "fmt"

// Slices cuts a vector into a slice for each of World ranks. Slices begin at multiples of Unit numbers, which is a
// multiple of four. They have equal lengths except the last ones, which may be shorter or empty.
type Slices struct{ World, Unit int }

// Length returns the length of the first slice of n numbers.
func (s Slices) Length(n int) int {
	each := (n + s.World - 1) / s.World
	return (each + s.Unit - 1) / s.Unit * s.Unit
}

// Of returns a rank's slice of n numbers: from (inclusive) to to (exclusive).
func (s Slices) Of(n, rank int) (from, to int) {
	each := s.Length(n)
	return min(rank*each, n), min((rank+1)*each, n)
}

func (s Slices) check() error {
	if s.World < 1 || s.Unit < 4 || s.Unit%4 != 0 {
		return fmt.Errorf("slices of %d ranks in units of %d numbers: want at least one rank, and a multiple of 4",
			s.World, s.Unit)
	}
	return nil
}

// TakeSlice copies this rank's slice of a vector that every rank has whole.
//
//	x f[P] -> slice f[S]: x[Of(P, this rank)], and zeros behind a shorter slice
type TakeSlice struct{ Slices }

// Name returns "slices".
func (TakeSlice) Name() string { return "slices" }

// Shape returns the type of the slice.
func (k TakeSlice) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[P]"); err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, k.Length(in[0].Elems()))}, nil
}

// CPU copies bytes.
func (k TakeSlice) CPU(c *CPU, in, out []Tensor) func() {
	rank, _ := c.place()
	from, to := k.Of(in[0].Elems(), rank)
	size := in[0].DType.Size()
	x, slice := in[0].Bytes()[from*size:to*size], out[0].Bytes()
	return func() { clear(slice[copy(slice, x):]) }
}

// Cost counts the slice, read and written.
func (TakeSlice) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: min(in[0].Bytes(), out[0].Bytes()) + out[0].Bytes()}
}

// Stored asks for float32.
func (TakeSlice) Stored([]DType) (want, out []DType) { return []DType{F32}, []DType{F32} }

// SpreadSlices writes the slices of all ranks over a vector that every rank has whole.
//
//	x f[P], slice f[S] -> x' f[P]: x'[Of(P, r)] = rank r's slice
//
// The output is in the memory of x. On a GPU the copy of x in 16 bits follows.
type SpreadSlices struct{ Slices }

// Name returns "slices".
func (SpreadSlices) Name() string { return "slices" }

// Shape returns the type of x.
func (k SpreadSlices) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, "f[P]", "f[S]"); err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	if want := k.Length(in[0].Elems()); in[1].Elems() != want {
		return nil, fmt.Errorf("a slice of %v over %d ranks has %d numbers, got %v", in[0], k.World, want, in[1])
	}
	return in[:1], nil
}

// Overwrites puts x' in the memory of x.
func (SpreadSlices) Overwrites() []Alias { return []Alias{{0, 0}} }

// CPU gathers the slices over the group.
func (k SpreadSlices) CPU(c *CPU, in, out []Tensor) func() {
	x, n, size := out[0].Bytes(), out[0].Elems(), out[0].DType.Size()
	alone := [][]byte{in[1].Bytes()}
	return func() {
		all, ok := c.gather("slices of the updated weights", alone, k.World)
		if !ok {
			return
		}
		for r, theirs := range all {
			from, to := k.Of(n, r)
			copy(x[from*size:to*size], theirs)
		}
	}
}

// Cost counts the slice that is read and everything that is written, most of it over the links.
func (SpreadSlices) Cost(in, out []Type, _ Content) Cost {
	return Cost{Bytes: in[1].Bytes() + out[0].Bytes()}
}

// Stored asks for float32.
func (SpreadSlices) Stored([]DType) (want, out []DType) { return []DType{F32, F32}, []DType{F32} }
