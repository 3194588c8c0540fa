package nn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Weight is a tensor of the checkpoint and where its values go.
type Weight struct {
	Name        string // the checkpoint's; empty where the values are computed
	Shape       []int
	Into        []string      // names in graph.Store
	stack       *stack        // each of Into holds the weights of the stack, one after the other; nil = this one alone
	member      int           // of the stack
	device      bool          // a graph.Loader may take it
	packed      kernel.Kernel // the GEMM that reads it packed; nil = stored as numbers
	parts       []quant.Part  // of a weight that is kept packed, in the order of Into
	dequantised bool          // of a packed weight, the numbers it stands for are stored
	mxfp4       bool          // Into are codes and scales, which the checkpoint has
	fill        func(r Reader, dst []kernel.Tensor) error
}

// Quantised tells whether the network computes with what the weight is once it is quantised.
func (w Weight) Quantised() bool { return w.packed != nil }

// Reader gives a checkpoint's values as float32.
type Reader interface {
	// Float32s reads elements [from, from+len(dst)) of a tensor, row-major.
	Float32s(name string, from int, dst []float32) error
}

// StoredReader is a Reader that also gives values as they are stored, for memory that converts them itself.
type StoredReader interface {
	Reader
	// Stored tells the type of a tensor's elements and how to read them, from element from on until dst is full.
	// ok is false where the type is none that memory takes.
	Stored(name string) (d kernel.DType, read func(dst []byte, from int) error, ok bool)
}

// PackedReader is a Reader of a checkpoint that may have weights packed already.
type PackedReader interface {
	Reader
	// Packed is a weight as the checkpoint stores it; ok is false where it stores numbers. It may lie in the file's memory.
	Packed(name string) (w quant.Packed, ok bool)
}

func packedIn(r Reader, name string) (quant.Packed, bool) {
	if p, ok := r.(PackedReader); ok {
		return p.Packed(name)
	}
	return quant.Packed{}, false
}

// Load fills the network's frozen weights, workers at a time: those that the memory takes as they are stored by
// the memory itself, the others on the host.
func (n *Net) Load(ctx context.Context, r Reader, m graph.Store, workers int) error {
	errs := make([]error, len(n.weights))
	var host, device []int // indices in weights
	loader, ok := m.(graph.Loader)
	for i, w := range n.weights {
		_, stored := packedIn(r, w.Name)
		if ok && w.device && !(stored && w.stack != nil) { // a member's bytes have their place inside the stack's
			device = append(device, i)
		} else {
			host = append(host, i)
		}
	}
	if device != nil {
		var loads []graph.WeightLoad
		var of []int // the weight of each load
		for _, i := range device {
			for _, l := range n.weights[i].loads(r) {
				loads, of = append(loads, l), append(of, i)
			}
		}
		each, err := loader.Load(ctx, loads, workers)
		if err != nil {
			return err
		}
		for k, i := range of {
			switch w := n.weights[i]; {
			case errors.Is(each[k], errors.ErrUnsupported), errors.Is(each[k], graph.ErrNotFinite):
				if !slices.Contains(host, i) {
					host = append(host, i) // which for a number that is not finite says where it is
				}
			case each[k] != nil && errs[i] == nil:
				errs[i] = fmt.Errorf("load %s: %w", w.Name, each[k])
			}
		}
	}
	if err := n.fillAll(ctx, host, r, m, workers, errs); err != nil {
		return err
	}
	for _, err := range errs {
		var changed *rescue.ChangedError
		if errors.As(err, &changed) {
			return changed // once, for all the weights that could not be read
		}
	}
	return errors.Join(errs...)
}

// fillAll fills weights on the host.
func (n *Net) fillAll(ctx context.Context, which []int, r Reader, m graph.Store, workers int, errs []error) error {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(max(workers, 1), len(which)) {
		wg.Add(1)
		rescue.Go(func() {
			defer wg.Done()
			for i := range next {
				errs[i] = rescue.Do(func() error { return n.weights[i].Fill(r, m) })
			}
		})
	}
	for _, i := range which {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return ctx.Err()
}

// loads is the weight as a Loader takes it: in one piece, or, where the checkpoint has it packed, part by part, the bytes
// as they are.
func (w Weight) loads(r Reader) []graph.WeightLoad {
	if w.mxfp4 {
		return w.loadsMXFP4(r)
	}
	stored, ok := packedIn(r, w.Name)
	if !ok || w.packed == nil {
		return []graph.WeightLoad{w.load(r)}
	}
	if w.dequantised {
		numbers := w.load(r)
		numbers.Packed, numbers.Dequantised = nil, false
		return []graph.WeightLoad{numbers}
	}
	var all []graph.WeightLoad
	for i, p := range w.parts {
		l := graph.WeightLoad{Into: w.Into[i : i+1], Elems: p.Len, DType: kernel.U8}
		if p.Floats == nil {
			l.Read = func(dst []byte, from int) error { copy(dst, p.Bytes(&stored)[from:]); return nil }
		} else {
			l.DType = kernel.F32
			l.Read = func(dst []byte, from int) error {
				to := kernel.NewTensor(kernel.T(kernel.F32, len(dst)/kernel.F32.Size()), dst).F32()
				copy(to, p.Floats(&stored)[from:])
				return nil
			}
		}
		all = append(all, l)
	}
	return all
}

// loadsMXFP4 are codes and scales as the file has them.
func (w Weight) loadsMXFP4(r Reader) []graph.WeightLoad {
	stored, missing := mxfp4In(r, w.Name)
	load := func(i int, from []byte, check func(piece []byte, at int) error) graph.WeightLoad {
		return graph.WeightLoad{Into: w.Into[i : i+1], Elems: len(from), DType: kernel.U8, Read: func(dst []byte, at int) error {
			if missing != nil {
				return missing
			}
			copy(dst, from[at:])
			return check(dst, at)
		}}
	}
	return []graph.WeightLoad{load(0, stored.Codes, func([]byte, int) error { return nil }), load(1, stored.Scales, quant.CheckMXFP4)}
}

// load is the weight as a Loader takes it.
func (w Weight) load(r Reader) graph.WeightLoad {
	f := graph.WeightLoad{Into: w.Into, Elems: 1, Packed: w.packed, Dequantised: w.dequantised, DType: kernel.F32, Read: func(dst []byte, from int) error {
		return r.Float32s(w.Name, from, kernel.NewTensor(kernel.T(kernel.F32, len(dst)/kernel.F32.Size()), dst).F32())
	}}
	for _, d := range w.Shape {
		f.Elems *= d
	}
	if w.stack != nil {
		f.Member, f.Members = w.member, w.stack.members
	}
	if s, ok := r.(StoredReader); ok {
		if d, read, ok := s.Stored(w.Name); ok {
			f.DType, f.Read = d, read
		}
	}
	return f
}

// Fill reads a weight into memory on the host. Weights may be filled at the same time.
func (w Weight) Fill(r Reader, m graph.Store) error {
	dst := make([]kernel.Tensor, len(w.Into))
	for i, name := range w.Into {
		t, err := m.Tensor(name)
		if err != nil {
			return nil // no plan reads it
		}
		if dst[i] = t; w.stack != nil {
			dst[i] = memberOf(t, w.member, w.stack.members)
		}
	}
	err := w.fill(r, dst)
	if err == nil && (w.stack == nil || w.stack.last()) {
		err = m.Put(w.Into...)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", w.Name, err)
	}
	return nil
}

// memberOf is the i-th of n equal parts of a tensor, as a vector.
func memberOf(t kernel.Tensor, i, n int) kernel.Tensor {
	part := kernel.T(t.DType, t.Elems()/n)
	return kernel.NewTensor(part, t.Bytes()[int64(i)*part.Bytes():])
}

// fillStored copies a tensor that memory has in the checkpoint's type.
func fillStored(r Reader, name string, dst kernel.Tensor) error {
	if s, ok := r.(StoredReader); ok {
		if d, read, ok := s.Stored(name); ok && d == dst.DType {
			return read(dst.Bytes(), 0)
		}
	}
	return fmt.Errorf("it is kept in memory as %v, and the checkpoint has it in another type", dst.DType)
}

// fillChunk bounds the float32 copy of a tensor that exists while it is loaded, in elements.
const fillChunk = 1 << 18

func fillFloats(r Reader, name string, dst kernel.Tensor) error {
	if dst.DType == kernel.F32 {
		return r.Float32s(name, 0, dst.F32())
	}
	if dst.DType != kernel.F64 {
		return fillStored(r, name, dst)
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
