package quant

import (
	"os"
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:noescape
func decode512(dst, codes unsafe.Pointer, vectors int, absmax float32, table unsafe.Pointer)

//go:noescape
func decode256(dst, codes unsafe.Pointer, vectors int, absmax float32, table unsafe.Pointer)

//go:noescape
func encode512(codes, x unsafe.Pointer, vectors int, inv float32, thresholds unsafe.Pointer)

// vectorWidth is the number of values that the processor takes a turn; 1 is
// the plain Go. TRAINER_CPU asks for less than it can do.
var vectorWidth = func() int {
	want := os.Getenv("TRAINER_CPU")
	switch {
	case !cpu.X86.HasAVX2 || want == "generic":
		return 1
	case !cpu.X86.HasAVX512F || want == "avx2":
		return 8
	}
	return 16
}()

func nf4Decode(dst []float32, codes []byte, absmax float32) {
	width := vectorWidth
	whole := len(dst) / width
	if width == 1 || whole == 0 {
		nf4DecodeGo(dst, codes, absmax)
		return
	}
	n := whole * width
	_ = codes[n/2-1]
	if width == 16 {
		decode512(unsafe.Pointer(&dst[0]), unsafe.Pointer(&codes[0]), whole, absmax, unsafe.Pointer(&nf4Table))
	} else {
		decode256(unsafe.Pointer(&dst[0]), unsafe.Pointer(&codes[0]), whole, absmax, unsafe.Pointer(&nf4Table))
	}
	if n < len(dst) {
		nf4DecodeGo(dst[n:], codes[n/2:], absmax)
	}
}

func nf4Encode(codes []byte, x []float32, inv float32) {
	whole := 0
	if vectorWidth == 16 {
		whole = len(x) / 16
	}
	if whole > 0 {
		_ = codes[8*whole-1]
		encode512(unsafe.Pointer(&codes[0]), unsafe.Pointer(&x[0]), whole, inv, unsafe.Pointer(&nf4Thresholds))
	}
	if 16*whole < len(x) {
		nf4EncodeGo(codes[8*whole:], x[16*whole:], inv)
	}
}
