package kernel

import "fmt"

// DropSlots is Dropout of rows in the order of SortByExpert: a row's mask is that of its slot, so it is the same wherever the
// row is sorted to.
//
//	x f[S,C], counter i32[2], source i32[S] -> f[S,C];  element (r,c) counts as source[r]*C + c, 0 where row r has no slot
//
// With Ranks, slots count from the first of the first rank.
type DropSlots Dropout

// Cheap: its output costs less to recompute than to keep.
func (DropSlots) Cheap() {}

func (DropSlots) Name() string { return "dropout_slots" }

func (k DropSlots) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[S,C]", "i32[2]", "i32[S]")
	if err != nil {
		return nil, err
	}
	if d.At('S') < 1 {
		return nil, fmt.Errorf("%v has no row", in[0])
	}
	return Dropout(k).Shape(in[:2])
}

func (k DropSlots) Grads() Backward {
	return Backward{
		Calls: []Call{{Kernel: k, In: []Ref{Upstream(), In(1), In(2)}}},
		Grads: []Ref{FromCall(0, 0), {}, {}},
	}
}

func (DropSlots) InPlace() []Alias { return []Alias{{0, 0}} }

func (k DropSlots) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], dropSlots[float32], dropSlots[float64])(k, c, in, out)
}

func dropSlots[F Float](k DropSlots, c *CPU, in, out []Tensor) func() {
	x, source, y, m := Floats[F](in[0]), in[2].I32(), Floats[F](out[0]), newMask[F](Dropout(k), in[1].I32())
	width := in[0].Shape[1]
	first := uint64(c.share(k.Ranks)) * uint64(len(y))
	return c.Range(len(source), rowGrain(width), func(lo, hi int) {
		m := m.now()
		for r := lo; r < hi; r++ {
			if source[r] < 0 {
				clear(y[r*width:][:width])
				continue
			}
			m.apply(y[r*width:][:width], x[r*width:][:width], first+uint64(int64(source[r])*int64(width)))
		}
	})
}

func (k DropSlots) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }
