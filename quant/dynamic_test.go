package quant

import (
	"math"
	"testing"
)

// TestDynamicCodes: the nearest code, the even one in the middle between two, for values at, beside and between all
// codes.
func TestDynamicCodes(t *testing.T) {
	for name, m := range map[string]*DynamicMap{"signed": DynamicSigned, "unsigned": DynamicUnsigned} {
		for i := range 255 {
			lo, hi := m.Values[i], m.Values[i+1]
			middle := (lo + hi) * 0.5
			even := i + i%2
			for _, c := range []struct {
				x    float32
				want int
			}{{lo, i}, {hi, i + 1}, {middle, even}, {math.Nextafter32(middle, -2), i},
				{math.Nextafter32(middle, 2), i + 1}} {
				if got := int(m.Code(float64(c.x))); got != c.want {
					t.Errorf("%s: %v is code %d, want %d", name, c.x, got, c.want)
				}
			}
		}
		if m.Code(math.Inf(1)) != 255 || m.Code(-2) != 0 {
			t.Errorf("%s: what lies beyond the map is not its ends", name)
		}
	}
}

// TestDynamicCoder: the table gives the code of the search at both ends of every range of its own, beside the ends of
// codes, and in between.
func TestDynamicCoder(t *testing.T) {
	for name, m := range map[string]*DynamicMap{"signed": DynamicSigned, "unsigned": DynamicUnsigned} {
		c := m.Coder()
		same := func(x float32) {
			if got, want := c.Code(x), m.Code(float64(x)); got != want && x == x {
				t.Fatalf("%s: %v is code %d, want %d", name, x, got, want)
			}
		}
		for i := range uint32(1 << 16) {
			for _, low := range []uint32{0, 1, 0x1234, 0x7fff, 0x8000, 0xabcd, 0xffff} {
				same(math.Float32frombits(i<<16 | low))
			}
		}
		for _, x := range m.Above {
			same(x)
			same(math.Nextafter32(x, 2))
			same(math.Nextafter32(x, -2))
		}
	}
}
