package quant

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"
)

// Every width of the assembly against the plain Go, on every length.
func TestDequantiseWidths(t *testing.T) {
	widths := []int{1}
	if cpu.X86.HasAVX2 {
		widths = append(widths, 8)
	}
	if cpu.X86.HasAVX512F {
		widths = append(widths, 16)
	}
	codes := make([]byte, 128)
	for i := range codes {
		codes[i] = byte(i*37 + 11)
	}
	old := vectorWidth
	defer func() { vectorWidth = old }()
	for _, vectorWidth = range widths {
		for n := range 257 {
			got, want := make([]float32, n+1), make([]float32, n+1)
			got[n], want[n] = 7, 7
			decode4(nf4Values, got[:n], codes[:(n+1)/2], -0.3)
			decode4Go(nf4Values, want[:n], codes, -0.3)
			sameBits(t, fmt.Sprintf("width %d, %d values", vectorWidth, n), got, want)
			if n <= len(codes) {
				int8Decode(got[:n], codes[:n], -0.3)
				int8DecodeGo(want[:n], codes, -0.3)
				sameBits(t, fmt.Sprintf("width %d, %d values of 8 bits", vectorWidth, n), got, want)
			}
		}
	}
}

// The assembly's codes against the plain search, with values on and next to
// every threshold, and the scale of a block of zeros. Without AVX-512 both are
// the plain search.
func TestEncodeIsExact(t *testing.T) {
	for _, inv := range []float32{1, 0.7, float32(math.Inf(1))} {
		x := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1.0000001, -1.0000001, 1e-45, -1e-45}
		for _, th := range nf4Thresholds[:15] {
			b := math.Float32bits(th)
			x = append(x, th, math.Float32frombits(b+1), math.Float32frombits(b-1))
		}
		x = append(x, random(1000, 8)...)
		for n := range len(x) {
			got, want := make([]byte, (n+1)/2), make([]byte, (n+1)/2)
			nf4Encode(got, x[:n], inv)
			nf4EncodeGo(want, x[:n], inv)
			if !slices.Equal(got, want) {
				t.Fatalf("scale %v, %d values: codes %x, want %x", inv, n, got, want)
			}
		}
	}
}
