package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// Input is the type of an input and its values. Inputs without an element type of their own are f32 or f64
// as the run is.
type Input struct {
	dtype  kernel.DType // 0: as the run
	shape  []int
	values func(r *rand.Rand, i int) float64
	count  int // values given, -1 for any number
}

func (x Input) typ(float kernel.DType) kernel.Type {
	d := x.dtype
	if d == 0 {
		d = float
	}
	return kernel.T(d, x.shape...)
}

// Normal has standard normal values.
func Normal(shape ...int) Input {
	return Input{shape: shape, count: -1, values: func(r *rand.Rand, _ int) float64 { return r.NormFloat64() }}
}

// Uniform has values from lo to hi.
func Uniform(lo, hi float64, shape ...int) Input {
	return Input{shape: shape, count: -1, values: func(r *rand.Rand, _ int) float64 { return lo + (hi-lo)*r.Float64() }}
}

// Values returns the given numbers, row-major.
func Values(v []float64, shape ...int) Input {
	return Input{shape: shape, count: len(v), values: func(_ *rand.Rand, i int) float64 { return v[i] }}
}

// Ints returns the given i32 numbers.
func Ints(v []int32, shape ...int) Input {
	return Input{dtype: kernel.I32, shape: shape, count: len(v),
		values: func(_ *rand.Rand, i int) float64 { return float64(v[i]) }}
}

// Bytes returns the given u8 numbers.
func Bytes(v []byte, shape ...int) Input {
	return Input{dtype: kernel.U8, shape: shape, count: len(v),
		values: func(_ *rand.Rand, i int) float64 { return float64(v[i]) }}
}

// As returns x stored in d whatever the run computes in: a frozen weight in bf16, a scale in f32.
func (x Input) As(d kernel.DType) Input {
	x.dtype = d
	return x
}

// fill writes the values; float32 is the finest that all of them are, so that runs in f32 and f64 start
// from equal numbers.
func (x Input) fill(b *buffer, seed uint64) {
	n := b.Elems()
	if x.count >= 0 && x.count != n {
		panic(fmt.Sprintf("%d values are given for %v", x.count, b.Type))
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		b.set(i, float64(float32(x.values(r, i))))
	}
}

// guardBytes stand before and after every buffer.
const guardBytes = 256

const guardByte = 0xa5

// buffer is a tensor between guards.
type buffer struct {
	kernel.Tensor
	raw []byte
}

func newBuffer(t kernel.Type) *buffer {
	n := t.Bytes()
	raw := kernel.Alloc(n + 2*guardBytes)
	b := &buffer{raw: raw, Tensor: kernel.NewTensor(t, raw[guardBytes:guardBytes+n:guardBytes+n])}
	for i := range guardBytes {
		raw[i], raw[guardBytes+int(n)+i] = guardByte, guardByte
	}
	return b
}

func (b *buffer) clone() *buffer {
	c := newBuffer(b.Type)
	copy(c.Bytes(), b.Bytes())
	return c
}

// guarded tells whether the guards are as they were.
func (b *buffer) guarded() bool {
	n := len(b.Bytes())
	for i := range guardBytes {
		if b.raw[i] != guardByte || b.raw[guardBytes+n+i] != guardByte {
			return false
		}
	}
	return true
}

func (b *buffer) poison(v byte) {
	for i := range b.Bytes() {
		b.Bytes()[i] = v
	}
}

func (b *buffer) get(i int) float64 {
	switch b.DType {
	case kernel.F32:
		return float64(b.F32()[i])
	case kernel.F64:
		return b.F64()[i]
	case kernel.BF16:
		return float64(math.Float32frombits(uint32(b.U16()[i]) << 16))
	case kernel.F16:
		return fromHalf(b.U16()[i])
	case kernel.I32:
		return float64(b.I32()[i])
	}
	return float64(b.Bytes()[i])
}

func (b *buffer) set(i int, v float64) {
	switch b.DType {
	case kernel.F32:
		b.F32()[i] = float32(v)
	case kernel.F64:
		b.F64()[i] = v
	case kernel.BF16:
		b.U16()[i] = uint16(math.Float32bits(float32(v)) >> 16) // cut off: any bf16 number serves
	case kernel.F16:
		b.U16()[i] = toHalf(v)
	case kernel.I32:
		b.I32()[i] = int32(v)
	default:
		b.Bytes()[i] = byte(v)
	}
}

func (b *buffer) all() []float64 {
	v := make([]float64, b.Elems())
	for i := range v {
		v[i] = b.get(i)
	}
	return v
}

func (b *buffer) equal(c *buffer) bool { return slices.Equal(b.Bytes(), c.Bytes()) }

// differ names the first element whose bits differ.
func (b *buffer) differ(c *buffer) string {
	size := b.DType.Size()
	for i := range b.Elems() {
		if !slices.Equal(b.Bytes()[i*size:(i+1)*size], c.Bytes()[i*size:(i+1)*size]) {
			return fmt.Sprintf("element %d of %v is %v and %v", i, b.Type, b.get(i), c.get(i))
		}
	}
	return "nothing differs"
}

func fromHalf(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(frac, -24)
	if exp > 0 {
		v = math.Ldexp(1024+frac, exp-25)
	}
	return math.Copysign(v, 1-2*float64(h>>15))
}

// toHalf cuts v off to a normal f16 number, or zero.
func toHalf(v float64) uint16 {
	var sign uint16
	if math.Signbit(v) {
		sign = 1 << 15
	}
	frac, exp := math.Frexp(math.Abs(v))
	if exp < -13 || frac == 0 {
		return sign
	}
	if exp > 16 {
		exp, frac = 16, 0.999
	}
	return sign | uint16(exp+14)<<10 | uint16(frac*2048)&1023
}
