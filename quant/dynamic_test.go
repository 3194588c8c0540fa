package quant

import (
	"math"
	"testing"
)

// TestDynamicCodes: the nearest code, the even one in the middle between two, for values at, beside and between all codes.
func TestDynamicCodes(t *testing.T) {
	for name, m := range map[string]*DynamicMap{"signed": DynamicSigned, "unsigned": DynamicUnsigned} {
		for i := range 255 {
			lo, hi := m.Values[i], m.Values[i+1]
			middle := (lo + hi) * 0.5
			even := i + i%2
			for _, c := range []struct {
				x    float32
				want int
			}{{lo, i}, {hi, i + 1}, {middle, even}, {math.Nextafter32(middle, -2), i}, {math.Nextafter32(middle, 2), i + 1}} {
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
