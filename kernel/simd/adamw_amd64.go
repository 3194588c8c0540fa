package simd

import "unsafe"

// adamWAVX2 updates vectors of eight elements.
//
//go:noescape
func adamWAVX2(p, grad, m, v unsafe.Pointer, vectors int, s *AdamScalars[float32])

// AdamW returns what updates as many elements as vectors can and tells how many, with the bits of the
// plain form; or nil.
func AdamW() func(p, g, m, v []float32, s AdamScalars[float32]) int {
	if !hasAVX2 {
		return nil
	}
	return func(p, g, m, v []float32, s AdamScalars[float32]) int {
		vectors := len(p) / 8
		if vectors == 0 {
			return 0
		}
		last := vectors*8 - 1
		_, _, _ = g[last], m[last], v[last]
		adamWAVX2(unsafe.Pointer(&p[0]), unsafe.Pointer(&g[0]), unsafe.Pointer(&m[0]), unsafe.Pointer(&v[0]), vectors,
			&s)
		return vectors * 8
	}
}
