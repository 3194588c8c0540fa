package cuda

import "fmt"

// AttentionCached is the geometry of attention_cached_* over M query rows of H heads of size D, with or without a soft cap, or an
// error naming what is supported.
func AttentionCached(M, H, D int, capped bool) (Geometry, error) {
	if D >= 8 && D%8 == 0 {
		for _, d := range []int{8, 16, 32, 64, 128, 256} {
			if D <= d {
				g := Geometry{"attention_cached", fmt.Sprintf("attention_cached_%d", d), [3]int{M, H, 1}, [3]int{128, 1, 1}, 0}
				if capped {
					g = g.capped()
				}
				return g, nil
			}
		}
	}
	return Geometry{}, fmt.Errorf("attention: head size %d is not supported on the GPU; multiples of 8 up to 256 are", D)
}

// KVAppend is the geometry of kvappend_rows over T rows of W.
func KVAppend(T, W int) Geometry {
	return Geometry{"kvappend", "kvappend_rows", [3]int{T, 1, 1}, [3]int{min(256, max(32, ceil(ceil(W, 8), 32)*32)), 1, 1}, 0}
}
