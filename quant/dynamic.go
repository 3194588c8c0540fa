package quant

import (
	"math"
	"slices"
	"sync"
)

// DynamicMap is an 8-bit dynamic map of bitsandbytes (create_dynamic_map) as its 8-bit optimizers use it: codes of
// values whose largest magnitude is one.
type DynamicMap struct {
	// Values are the values of the codes, ascending.
	Values [256]float32
	// Above is the largest float32 that each code stands for: of a value between two, the nearer one. Exactly in the
	// middle it is the even one, on which bitsandbytes' search ends.
	Above [256]float32

	coder func() *DynamicCoder
}

// DynamicSigned and DynamicUnsigned are the maps of first and of second moments.
var (
	DynamicSigned   = newDynamicMap(nestedTableCUDA)
	DynamicUnsigned = newDynamicMap(unsignedTable())
)

func newDynamicMap(values [256]float32) *DynamicMap {
	m := &DynamicMap{Values: values}
	for i, v := range values[:255] {
		m.Above[i] = (v + values[i+1]) * 0.5
		if i%2 == 1 {
			m.Above[i] = math.Nextafter32(m.Above[i], -1)
		}
	}
	m.Above[255] = float32(math.Inf(1))
	m.coder = sync.OnceValue(func() *DynamicCoder { return newDynamicCoder(m) })
	return m
}

// Code returns the code whose value is nearest to x; for NaN it returns 0.
func (m *DynamicMap) Code(x float64) uint8 {
	c := 0
	for step := 128; step > 0; step /= 2 {
		if x > float64(m.Above[c+step-1]) {
			c += step
		}
	}
	return uint8(c)
}

// DynamicCoder finds the codes of float32 numbers by a table of their upper 16 bits: numbers that share them lie in at
// most two codes.
type DynamicCoder struct {
	above [256]float32
	first [1 << 16]uint8 // the lower code of numbers that begin so
}

// Coder is made once, for all that ask.
func (m *DynamicMap) Coder() *DynamicCoder { return m.coder() }

// Code returns the code that DynamicMap.Code returns; for NaN it may be any code.
func (c *DynamicCoder) Code(x float32) uint8 {
	code := c.first[math.Float32bits(x)>>16]
	if x > c.above[code] {
		code++
	}
	return code
}

func newDynamicCoder(m *DynamicMap) *DynamicCoder {
	c := &DynamicCoder{above: m.Above}
	for i := range c.first {
		bits := uint32(i) << 16
		if i >= 1<<15 { // a negative number's lower end has the largest bits
			bits |= 1<<16 - 1
		}
		c.first[i] = m.Code(float64(math.Float32frombits(bits)))
	}
	return c
}

// unsignedTable returns the map of values that are not negative: twice as many steps in each of the seven decades as
// NestedTable has.
func unsignedTable() [256]float32 {
	const decades = 7
	values := []float32{0, 1}
	for d := range decades {
		steps := 2 << d
		scale := float32(math.Pow(10, float64(d-decades+1)))
		for i := range steps {
			values = append(values, scale*((evenly(0.1, 1, i, steps+1)+evenly(0.1, 1, i+1, steps+1))/2))
		}
	}
	slices.Sort(values)
	return [256]float32(values)
}
