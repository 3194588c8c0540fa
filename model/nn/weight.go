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

// Weight is a tensor of the checkpoint and its form in memory.
type Weight struct {
	Name    string   // the checkpoint's name; empty if the values are computed
	Shape   []int    // the checkpoint's shape
	Into    []string // names in graph.Store
	storage storage
}

// Quantised reports whether the network computes with a quantised form of the weight.
func (w Weight) Quantised() bool {
	p, ok := w.packed()
	return ok && p.gemm != nil
}

// packed returns the storage of a quantised weight, alone or in a stack; ok is false for other weights.
func (w Weight) packed() (p packed, ok bool) {
	s := w.storage
	if of, stacked := s.(stack); stacked {
		s = of.of
	}
	p, ok = s.(packed)
	return p, ok
}

// Weight returns the weight with the given name in the checkpoint.
func (n *Net) Weight(name string) (Weight, bool) {
	i := slices.IndexFunc(n.weights, func(w Weight) bool { return w.Name == name && name != "" })
	if i < 0 {
		return Weight{}, false
	}
	return n.weights[i], true
}

// Computed reads the whole weight as the network uses it: a weight that is stored quantised is quantised and
// dequantised.
func (w Weight) Computed(r Reader, dst []float32) error {
	p, ok := w.packed()
	if !ok {
		return r.Float32s(w.Name, 0, dst)
	}
	return quantise(r, w.Name, p.rows, p.cols, p.scheme, func(q *quant.Packed) error {
		q.DequantiseRange(dst, 0, len(dst))
		return nil
	})
}

// Reader provides a checkpoint's values as float32.
type Reader interface {
	// Float32s reads elements [from, from+len(dst)) of a tensor, row-major.
	Float32s(name string, from int, dst []float32) error
}

// StoredReader is a Reader that also provides values in the checkpoint's type, for memory that converts them itself.
type StoredReader interface {
	Reader
	// Stored returns the type of a tensor's elements, and a function that reads elements from element from on until dst
	// is full. ok is false for types that memory cannot hold.
	Stored(name string) (d kernel.DType, read func(dst []byte, from int) error, ok bool)
}

// PackedReader is a Reader for a checkpoint that may have packed weights.
type PackedReader interface {
	Reader
	// Packed returns a weight as the checkpoint stores it; ok is false if it stores numbers. The result may alias the
	// file's memory.
	Packed(name string) (w quant.Packed, ok bool)
}

func packedIn(r Reader, name string) (quant.Packed, bool) {
	if p, ok := r.(PackedReader); ok {
		return p.Packed(name)
	}
	return quant.Packed{}, false
}

// Load fills the network's weights with the given number of workers. A store that is a graph.Loader loads the weights
// that it can take in the checkpoint's form; the host fills the others.
func (n *Net) Load(ctx context.Context, r Reader, m graph.Store, workers int) error {
	if n.Rewrite != nil {
		r = rewriting{r, n.Rewrite}
	}
	errs := make([]error, len(n.weights))
	var host, of []int // indices in weights: those that the host fills, and the weight of each load
	var loads []graph.WeightLoad
	loader, ok := m.(graph.Loader)
	for i, w := range n.weights {
		var own []graph.WeightLoad
		if ok {
			own = w.storage.loads(w, r)
		}
		if own == nil {
			host = append(host, i)
		}
		for _, l := range own {
			loads, of = append(loads, l), append(of, i)
		}
	}
	if loads != nil {
		each, err := loader.Load(ctx, loads, workers)
		if err != nil {
			return err
		}
		for k, i := range of {
			switch w := n.weights[i]; {
			case errors.Is(each[k], errors.ErrUnsupported), errors.Is(each[k], graph.ErrNotFinite):
				if !slices.Contains(host, i) {
					host = append(host, i) // its error for a number that is not finite names the position
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
			return changed // one error for all the weights that could not be read
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

// Fill reads a weight into memory on the host. Different weights may be filled concurrently.
func (w Weight) Fill(r Reader, m graph.Store) error {
	dst := make([]kernel.Tensor, len(w.Into))
	for i, name := range w.Into {
		t, err := m.Tensor(name)
		if err != nil {
			return nil // no plan reads it
		}
		dst[i] = t
	}
	err := w.storage.fill(w, r, dst)
	if s, ok := w.storage.(stack); err == nil && (!ok || s.last()) {
		err = m.Put(w.Into...)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", w.Name, err)
	}
	return nil
}

// fillStored copies a tensor that memory holds in the checkpoint's type.
func fillStored(r Reader, name string, dst kernel.Tensor) error {
	if s, ok := r.(StoredReader); ok {
		if d, read, ok := s.Stored(name); ok && d == dst.DType {
			return read(dst.Bytes(), 0)
		}
	}
	return fmt.Errorf("it is kept in memory as %v, and the checkpoint has it in another type", dst.DType)
}

// fillChunk is the largest float32 copy, in elements, that loading a tensor makes.
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

// RowsOf fills a tensor [K,C] of the network, such as a trained one, with rows of the matrix [V,C] that the checkpoint
// calls name, while the weights load.
func RowsOf(n *Net, name string, rows []int, into *Value) {
	n.declare(Weight{Into: []string{into.Name}, storage: someRows{name, rows, into.Type.Shape[1]}})
}

// someRows is the storage of a copy of some rows of a matrix.
type someRows struct {
	of    string
	rows  []int
	width int
}

func (s someRows) fill(_ Weight, r Reader, dst []kernel.Tensor) error {
	for i, row := range s.rows {
		own := kernel.T(dst[0].DType, s.width)
		to := kernel.NewTensor(own, dst[0].Bytes()[int64(i)*own.Bytes():][:own.Bytes()])
		if err := fillFloats(rowsFrom{r, row * s.width}, s.of, to); err != nil {
			return fmt.Errorf("row %d of %s: %w", row, s.of, err)
		}
	}
	return nil
}

// loads returns nil: the host reads the rows.
func (someRows) loads(Weight, Reader) []graph.WeightLoad { return nil }

// rowsFrom reads a tensor from an element on.
type rowsFrom struct {
	Reader
	from int
}

func (r rowsFrom) Float32s(name string, from int, dst []float32) error {
	return r.Reader.Float32s(name, r.from+from, dst)
}
