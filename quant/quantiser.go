package quant

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Quantiser packs a matrix that arrives in pieces, so that it never exists as
// a whole in float32.
type Quantiser struct {
	packed Packed
	nested bool
	absmax []float32
	done   atomic.Int64
	next   int       // weights taken by Add, the carried ones included
	carry  []float32 // less than a block, waiting for the next piece
	// Spread calls f for pieces of at most grain of [0,n), maybe at the same time, and gives the error of the first of
	// them that has one; nil = Add packs alone. The bytes are the same.
	Spread func(n, grain int, f func(from, to int) error) error
}

// spreadBlocks is how many blocks Add packs in one piece.
const spreadBlocks = 256

// NewQuantiser prepares a matrix of rows x cols.
func NewQuantiser(rows, cols int, cfg Config) (*Quantiser, error) {
	q := new(Quantiser)
	if err := q.Reset(rows, cols, cfg); err != nil {
		return nil, err
	}
	return q, nil
}

// Reset prepares the next matrix in the memory of the one before, whose Packed is not valid any more.
func (q *Quantiser) Reset(rows, cols int, cfg Config) error {
	if errs := cfg.Validate(); len(errs) > 0 {
		return fmt.Errorf("quantise a matrix [%d,%d]: %w", rows, cols, errors.Join(errs...))
	}
	if rows <= 0 || cols <= 0 || rows > maxLen/cols {
		return fmt.Errorf("quantise a matrix [%d,%d]: both sizes must be positive and their product at most 2^40", rows,
			cols)
	}
	if cfg.Map != MapCPU {
		return fmt.Errorf(
			"quantise a matrix [%d,%d]: scales are only read, not written, with another table than NestedTable", rows,
			cols)
	}
	codes := q.packed.Codes
	q.packed = Packed{Scheme: Schemes[cfg.Type], Rows: rows, Cols: cols, BlockSize: cfg.Block(cols)}
	q.packed.Codes = zeroed(codes, (rows*cols*cfg.Bits+7)/8)
	q.absmax = zeroed(q.absmax, q.packed.Blocks())
	q.nested, q.next, q.carry = cfg.DoubleQuant, 0, q.carry[:0]
	q.done.Store(0)
	return nil
}

// zeroed returns n zeros, in s if it is long enough.
func zeroed[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// Add takes the next values in row-major order, any number of them.
func (q *Quantiser) Add(src []float32) error {
	size := q.packed.BlockSize
	if len(src) > q.packed.Len()-q.next {
		return fmt.Errorf("quantise a matrix [%d,%d]: %d values after %d are too many", q.packed.Rows, q.packed.Cols,
			len(src), q.next)
	}
	if len(q.carry) > 0 {
		n := min(size-len(q.carry), len(src))
		q.carry = append(q.carry, src[:n]...)
		q.next, src = q.next+n, src[n:]
		if len(q.carry) < size && q.next < q.packed.Len() {
			return nil
		}
		if err := q.Put(q.next-len(q.carry), q.carry); err != nil {
			return err
		}
		q.carry = q.carry[:0]
	}
	whole := len(src) - len(src)%size
	if q.next+len(src) == q.packed.Len() {
		whole = len(src)
	}
	if err := q.put(q.next, src[:whole]); err != nil {
		return err
	}
	q.carry = append(q.carry, src[whole:]...)
	q.next += len(src)
	return nil
}

// put returns Put, spread.
func (q *Quantiser) put(from int, src []float32) error {
	if q.Spread == nil || len(src) == 0 {
		return q.Put(from, src)
	}
	return q.Spread(len(src), spreadBlocks*q.packed.BlockSize, func(a, b int) error { return q.Put(from+a, src[a:b]) })
}

// Put takes the values that start at weight from of the flattened matrix. Both
// from and the end are block boundaries, or the end is the matrix's. Calls on
// ranges that do not overlap may run at the same time; Put and Add on one
// Quantiser do not mix.
func (q *Quantiser) Put(from int, src []float32) error {
	p := &q.packed
	if from < 0 || len(src) > p.Len()-from || from%p.BlockSize != 0 && len(src) > 0 ||
		len(src)%p.BlockSize != 0 && from+len(src) != p.Len() {
		return fmt.Errorf("quantise a matrix [%d,%d]: the range [%d,%d) does not lie on blocks of %d", p.Rows, p.Cols,
			from, from+len(src), p.BlockSize)
	}
	bits := p.Scheme.Bits()
	for i := 0; i < len(src); i += p.BlockSize {
		x := src[i:min(i+p.BlockSize, len(src))]
		absmax := p.Scheme.Encode(p.Codes[(from+i)*bits/8:], x)
		if !finite(absmax) {
			bad := slices.IndexFunc(x, func(v float32) bool { return !finite(v) })
			if bad < 0 {
				return q.tooLarge(from+i, x)
			}
			at := from + i + bad
			return fmt.Errorf("quantise a matrix [%d,%d]: row %d column %d is %v; a frozen weight must be finite",
				p.Rows, p.Cols, at/p.Cols, at%p.Cols, x[bad])
		}
		q.absmax[(from+i)/p.BlockSize] = absmax
	}
	q.done.Add(int64(len(src)))
	return nil
}

// tooLarge says which of the finite values x from weight at on have no finite absmax.
func (q *Quantiser) tooLarge(at int, x []float32) error {
	top := 0
	for i, v := range x {
		if abs(v) > abs(x[top]) {
			top = i
		}
	}
	p := &q.packed
	return fmt.Errorf("quantise a matrix [%d,%d]: row %d column %d is %v, which type %s can't hold: it goes through "+
		"float16, which ends at 65504",
		p.Rows, p.Cols, (at+top)/p.Cols, (at+top)%p.Cols, x[top], p.Scheme.Name())
}

func finite(v float32) bool { return v-v == 0 }

// Finish returns the packed matrix; every value must have been given. The
// second pass of double quantisation reads only the scales.
func (q *Quantiser) Finish() (Packed, error) {
	p := q.packed
	if done := q.done.Load(); done != int64(p.Len()) {
		return Packed{}, fmt.Errorf("quantise a matrix [%d,%d]: %d values were packed, not %d", p.Rows, p.Cols, done,
			p.Len())
	}
	if q.nested {
		p.AbsmaxU8, p.Absmax2, p.Offset = nest(q.absmax)
		p.Table2 = NestedTable[:]
	} else {
		p.Absmax = q.absmax
	}
	return p, nil
}

// Quantise packs src, row-major of rows x cols.
func Quantise(src []float32, rows, cols int, cfg Config) (Packed, error) {
	q, err := NewQuantiser(rows, cols, cfg)
	if err != nil {
		return Packed{}, err
	}
	if len(src) != rows*cols {
		return Packed{}, fmt.Errorf("quantise a matrix [%d,%d]: %d values given", rows, cols, len(src))
	}
	if err := q.Put(0, src); err != nil {
		return Packed{}, err
	}
	return q.Finish()
}
