package quant

import (
	"fmt"
	"testing"

	"golang.org/x/sys/cpu"
)

// Every width of the assembly against the plain Go, on every length.
func TestDecodeWidths(t *testing.T) {
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
	old := decodeWidth
	defer func() { decodeWidth = old }()
	for _, decodeWidth = range widths {
		for n := range 257 {
			got, want := make([]float32, n+1), make([]float32, n+1)
			got[n], want[n] = 7, 7
			nf4Decode(got[:n], codes[:(n+1)/2], -0.3)
			nf4DecodeGo(want[:n], codes, -0.3)
			sameBits(t, fmt.Sprintf("width %d, %d values", decodeWidth, n), got, want)
		}
	}
}
