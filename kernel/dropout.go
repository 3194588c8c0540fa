package kernel

import (
	"fmt"
	"math/bits"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Dropout sets elements to zero with probability P and scales the others, so that the mean stays (Srivastava
// et al. 2014). The mask is a function of its place: it is never stored, and the gradient draws it again.
//
//	y = x * keep / (1-P)   // x f[M,C], counter i32[2] = (seed, step) -> f[M,C]
//
// keep of element e is: word e%4 of Philox4x32-10(counter = (e/4 low, e/4 high, step, 0), key = (seed, unsigned) +
// Stream, low word first) is at least P*2^32, rounded to the nearest (Salmon et al. 2011). A dropped element is x * 0.
// With Ranks, e counts from the first row of the first rank: the mask is that of one rank with all rows.
type Dropout struct {
	P      float64
	Stream uint64
	Ranks  int // that have a share of the rows each, all as many; 0 = this one has all
}

// Cheap: its output costs less to recompute than to keep.
func (Dropout) Cheap() {}

func (Dropout) Name() string { return "dropout" }

func (k Dropout) Shape(in []Type) ([]Type, error) {
	if !(k.P > 0 && k.P < 1) {
		return nil, fmt.Errorf("the probability is %v, want more than 0 and less than 1", k.P)
	}
	if _, err := Want(in, "f[M,C]", "i32[2]"); err != nil {
		return nil, err
	}
	if k.Ranks > 1 && in[0].Elems()%8 != 0 {
		return nil, fmt.Errorf("each of %d ranks has %v, want a multiple of 8 elements", k.Ranks, in[0])
	}
	return []Type{in[0]}, nil
}

func (k Dropout) Grads() Backward {
	return Backward{
		Calls: []Call{{Kernel: k, In: []Ref{Upstream(), In(1)}}},
		Grads: []Ref{FromCall(0, 0), {}},
	}
}

func (Dropout) InPlace() []Alias { return []Alias{{0, 0}} }

func (k Dropout) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], dropout[float32], dropout[float64])(k, c, in, out)
}

// Threshold returns the smallest random word that keeps an element.
func (k Dropout) Threshold() uint32 { return uint32(min(k.P*(1<<32)+0.5, 1<<32-1)) }

func dropout[F Float](k Dropout, c *CPU, in, out []Tensor) func() {
	x, y, m := Floats[F](in[0]), Floats[F](out[0]), newMask[F](k, in[1].I32())
	const grain = 1 << 12 // a multiple of 4
	first := uint64(c.share(k.Ranks)) * uint64(len(y)/4*4)
	return c.Range(len(y), grain, func(lo, hi int) {
		m := m.now()
		m.apply(y[lo:hi], x[lo:hi], first+uint64(lo))
	})
}

// mask is what decides which elements stay, and what they are multiplied with.
type mask[F Float] struct {
	threshold uint64
	// of what stays and what is dropped: a product with a looked-up factor, as a branch would be guessed wrong at a
	// rate of P
	factor  [2]F
	fast    func(y, x []F, group uint64, step uint32, keys [10][2]uint32) int
	stream  uint64
	counter []int32

	keys [10][2]uint32
	step uint32
}

func newMask[F Float](k Dropout, counter []int32) mask[F] {
	m := mask[F]{threshold: uint64(k.Threshold()), factor: [2]F{F(1 / (1 - k.P)), 0}, stream: k.Stream,
		counter: counter}
	m.fast, _ = any(simd.Dropout(k.Threshold(), float32(m.factor[0]))).(func(y, x []F, group uint64, step uint32,
		keys [10][2]uint32) int)
	return m
}

// now returns the mask of the step that the counter says.
func (m mask[F]) now() mask[F] {
	m.keys, m.step = philoxKeys(uint64(uint32(m.counter[0]))+m.stream), uint32(m.counter[1])
	return m
}

// apply writes the elements from number at on.
func (m *mask[F]) apply(y, x []F, at uint64) {
	masked := func(x F, word uint32) F { return x * m.factor[(uint64(word)-m.threshold)>>63] }
	some := func(y, x []F, from uint64) { // of a group of four
		w0, w1, w2, w3 := philox(uint32(at/4), uint32(at/4>>32), m.step, 0, &m.keys)
		words := [4]uint32{w0, w1, w2, w3}
		for j := range y {
			y[j] = masked(x[j], words[from+uint64(j)])
		}
	}
	if over := at % 4; over > 0 {
		n := min(4-int(over), len(y))
		some(y[:n], x[:n], over)
		y, x, at = y[n:], x[n:], at+uint64(n)
	}
	if m.fast != nil && len(y) > 0 {
		n := m.fast(y, x, at/4, m.step, m.keys)
		y, x, at = y[n:], x[n:], at+uint64(n)
	}
	for ; len(y) >= 4; y, x, at = y[4:], x[4:], at+4 {
		w0, w1, w2, w3 := philox(uint32(at/4), uint32(at/4>>32), m.step, 0, &m.keys)
		x, y := x[:4], y[:4]
		y[0], y[1], y[2], y[3] = masked(x[0], w0), masked(x[1], w1), masked(x[2], w2), masked(x[3], w3)
	}
	if len(y) > 0 {
		some(y, x, 0)
	}
}

// philoxKeys returns the keys of the ten rounds.
func philoxKeys(key uint64) (keys [10][2]uint32) {
	const weyl0, weyl1 = 0x9e3779b9, 0xbb67ae85
	k0, k1 := uint32(key), uint32(key>>32)
	for i := range keys {
		keys[i] = [2]uint32{k0, k1}
		k0, k1 = k0+weyl0, k1+weyl1
	}
	return keys
}

// philox returns Philox4x32-10: four random words for a counter (a, b, c, d).
func philox(a, b, c, d uint32, keys *[10][2]uint32) (w0, w1, w2, w3 uint32) {
	const mul0, mul1 = 0xd2511f53, 0xcd9e8d57
	for i := range keys {
		hi0, lo0 := bits.Mul32(mul0, a)
		hi1, lo1 := bits.Mul32(mul1, c)
		a, b, c, d = hi1^b^keys[i][0], lo1, hi0^d^keys[i][1], lo0
	}
	return a, b, c, d
}

func (Dropout) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 1) }

func (Dropout) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32}, []DType{ComputeType}
}

func (DropSlots) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, I32, I32}, []DType{ComputeType}
}

// DropSlots is Dropout of rows in the order of SortByExpert: a row's mask is that of its slot, so it is the same
// wherever the row is sorted to.
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
