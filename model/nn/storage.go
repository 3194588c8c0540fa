package nn

import (
	"sync/atomic"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// storage is the form of a weight in memory: dense, packed, part of a stack, the checkpoint's MXFP4, or computed.
type storage interface {
	// fill writes the weight on the host. dst holds the tensors that Weight.Into names.
	fill(w Weight, r Reader, dst []kernel.Tensor) error
	// loads returns the weight for a graph.Loader, in one piece or part by part; nil = the host fills it.
	loads(w Weight, r Reader) []graph.WeightLoad
}

// dense stores a weight as numbers.
type dense struct {
	host bool // no graph.Loader can load it
}

func (dense) fill(w Weight, r Reader, dst []kernel.Tensor) error {
	return fillFloats(r, w.Name, dst[0])
}

func (d dense) loads(w Weight, r Reader) []graph.WeightLoad {
	if d.host {
		return nil
	}
	return []graph.WeightLoad{w.numbers(r)}
}

// numbers returns the weight for a graph.Loader that converts or packs the checkpoint's numbers.
func (w Weight) numbers(r Reader) graph.WeightLoad {
	l := graph.WeightLoad{Into: w.Into, Elems: 1, DType: kernel.F32, Read: func(dst []byte, from int) error {
		return r.Float32s(w.Name, from, kernel.NewTensor(kernel.T(kernel.F32, len(dst)/kernel.F32.Size()), dst).F32())
	}}
	for _, d := range w.Shape {
		l.Elems *= d
	}
	if s, ok := r.(StoredReader); ok {
		if d, read, ok := s.Stored(w.Name); ok {
			l.DType, l.Read = d, read
		}
	}
	return l
}

// packed is a quantised matrix [rows,cols]: memory holds its parts, or the dequantised numbers.
type packed struct {
	rows, cols  int
	scheme      quant.Config
	gemm        kernel.Kernel // multiplies by the packed weight; nil = no such kernel
	parts       []quant.Part  // in the order of Weight.Into; nil if dequantised
	dequantised bool          // memory holds numbers
}

func (p packed) fill(w Weight, r Reader, dst []kernel.Tensor) error {
	return quantise(r, w.Name, p.rows, p.cols, p.scheme, func(q *quant.Packed) error {
		if p.dequantised {
			return fillFloats(dequantised{*q}, w.Name, dst[0])
		}
		return copyParts(dst, p.parts, q)
	})
}

func (p packed) loads(w Weight, r Reader) []graph.WeightLoad {
	if p.gemm == nil {
		return nil
	}
	stored, ok := packedIn(r, w.Name)
	numbers := w.numbers(r)
	switch {
	case !ok:
		numbers.Packed, numbers.Dequantised = p.gemm, p.dequantised
		return []graph.WeightLoad{numbers}
	case p.dequantised:
		return []graph.WeightLoad{numbers}
	}
	var all []graph.WeightLoad
	for i, part := range p.parts { // the bytes as they are
		l := graph.WeightLoad{Into: w.Into[i : i+1], Elems: part.Len, DType: kernel.U8}
		if part.Floats == nil {
			l.Read = func(dst []byte, from int) error { copy(dst, part.Bytes(&stored)[from:]); return nil }
		} else {
			l.DType = kernel.F32
			l.Read = func(dst []byte, from int) error {
				to := kernel.NewTensor(kernel.T(kernel.F32, len(dst)/kernel.F32.Size()), dst).F32()
				copy(to, part.Floats(&stored)[from:])
				return nil
			}
		}
		all = append(all, l)
	}
	return all
}

// copyParts writes the parts of a packed weight.
func copyParts(dst []kernel.Tensor, parts []quant.Part, p *quant.Packed) error {
	for i, part := range parts {
		if part.Floats != nil {
			copy(dst[i].F32(), part.Floats(p))
		} else {
			copy(dst[i].Bytes(), part.Bytes(p))
		}
	}
	return nil
}

// dequantised reads a packed weight as float32.
type dequantised struct{ p quant.Packed }

func (d dequantised) Float32s(_ string, from int, dst []float32) error {
	d.p.DequantiseRange(dst, from, from+len(dst))
	return nil
}

// stack is one of several weights of equal size that lie one after the other in each tensor of Weight.Into.
type stack struct {
	of              storage
	member, members int
	filled          *atomic.Int64 // number of filled members, shared by all members
}

// newStack returns a function that gives each of the stack's members its storage.
func newStack(of storage, members int) func(member int) stack {
	filled := new(atomic.Int64)
	return func(member int) stack { return stack{of, member, members, filled} }
}

// last counts a member as filled and reports whether all are.
func (s stack) last() bool { return s.filled.Add(1)%int64(s.members) == 0 }

func (s stack) fill(w Weight, r Reader, dst []kernel.Tensor) error {
	for i, t := range dst {
		own := kernel.T(t.DType, t.Elems()/s.members)
		dst[i] = kernel.NewTensor(own, t.Bytes()[int64(s.member)*own.Bytes():])
	}
	return s.of.fill(w, r, dst)
}

func (s stack) loads(w Weight, r Reader) []graph.WeightLoad {
	if _, stored := packedIn(r, w.Name); stored { // a member's bytes lie inside the stack's
		return nil
	}
	loads := s.of.loads(w, r)
	for i := range loads {
		loads[i].Member, loads[i].Members = s.member, s.members
	}
	return loads
}

// computed stores a tensor that no checkpoint has.
type computed func(dst kernel.Tensor)

func (c computed) fill(_ Weight, _ Reader, dst []kernel.Tensor) error { c(dst[0]); return nil }

func (computed) loads(Weight, Reader) []graph.WeightLoad { return nil }
