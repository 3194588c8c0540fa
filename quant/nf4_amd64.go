package quant

import (
	"os"
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:noescape
func decode512(dst, codes unsafe.Pointer, blocks, vectors int, scales, table unsafe.Pointer)

//go:noescape
func decode256(dst, codes unsafe.Pointer, blocks, vectors int, scales, table unsafe.Pointer)

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

func decode4(t *table4, dst []float32, codes []byte, absmax float32) {
	whole := len(dst) - len(dst)%vectorWidth
	decodeBlocks4(t, dst[:whole], codes, whole, []float32{absmax})
	if whole < len(dst) {
		decode4Go(t, dst[whole:], codes[whole/2:], absmax)
	}
}

// decodeBlocks4 decodes whole blocks of size values, each with its scale.
func decodeBlocks4(t *table4, dst []float32, codes []byte, size int, scales []float32) {
	if len(dst) == 0 {
		return
	}
	if vectorWidth == 1 || size%vectorWidth != 0 {
		decodeBlocks4Go(t, dst, codes, size, scales)
		return
	}
	blocks := len(dst) / size
	_, _ = codes[len(dst)/2-1], scales[blocks-1]
	to, from, scale := unsafe.Pointer(&dst[0]), unsafe.Pointer(&codes[0]), unsafe.Pointer(&scales[0])
	if vectorWidth == 16 {
		decode512(to, from, blocks, size/16, scale, unsafe.Pointer(&t.values))
	} else {
		decode256(to, from, blocks, size/8, scale, unsafe.Pointer(&t.values))
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
