package simd

import (
	"math"
	"testing"
)

// TestHalves takes every 16-bit pattern to float32 and back, and rounds what lies between neighbours.
func TestHalves(t *testing.T) {
	for _, h := range []struct {
		name string
		from func(uint16) float32
		to   func(float32) uint16
		inf  uint16
	}{{"bf16", FromBF16, ToBF16, 0x7f80}, {"f16", FromF16, ToF16, 0x7c00}} {
		for i := range 1 << 16 {
			b := uint16(i)
			x := h.from(b)
			if x != x {
				if y := h.from(h.to(x)); y == y {
					t.Fatalf("%s %04x: NaN became %v", h.name, b, y)
				}
				continue
			}
			if got := h.to(x); got != b {
				t.Fatalf("%s %04x is %v, which rounds to %04x", h.name, b, x, got)
			}
			if b&0x7fff >= h.inf-1 {
				continue
			}
			next := h.from(b + 1)
			mid := float32((float64(x) + float64(next)) / 2) // fp32 holds it
			even := b + b&1
			for _, c := range []struct {
				x    float32
				want uint16
			}{{math.Nextafter32(mid, x), b}, {mid, even}, {math.Nextafter32(mid, next), b + 1}} {
				if float64(c.x) == float64(x) || float64(c.x) == float64(next) {
					continue // the smallest bf16 are neighbours' halves in fp32 too
				}
				if got := h.to(c.x); got != c.want {
					t.Fatalf("%s: %v between %v and %v rounds to %04x, want %04x", h.name, c.x, x, next, got, c.want)
				}
			}
		}
	}
	for x, want := range map[float32]uint16{65504: 0x7bff, 65519.996: 0x7bff, 65520: 0x7c00, -65520: 0xfc00,
		1e38: 0x7c00, float32(math.Inf(-1)): 0xfc00} {
		if got := ToF16(x); got != want {
			t.Errorf("f16 of %v is %04x, want %04x", x, got, want)
		}
	}
}
