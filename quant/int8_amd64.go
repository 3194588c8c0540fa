package quant

import "unsafe"

//go:noescape
func int8Decode512(dst, codes unsafe.Pointer, vectors int, absmax, step float32)

//go:noescape
func int8Decode256(dst, codes unsafe.Pointer, vectors int, absmax, step float32)

func int8Decode(dst []float32, codes []byte, absmax float32) {
	whole := 0
	if vectorWidth > 1 {
		whole = len(dst) / vectorWidth
	}
	done := whole * vectorWidth
	if whole > 0 {
		_ = codes[done-1]
		to, from := unsafe.Pointer(&dst[0]), unsafe.Pointer(&codes[0])
		if vectorWidth == 16 {
			int8Decode512(to, from, whole, absmax, int8Step)
		} else {
			int8Decode256(to, from, whole, absmax, int8Step)
		}
	}
	int8DecodeGo(dst[done:], codes[done:], absmax)
}
