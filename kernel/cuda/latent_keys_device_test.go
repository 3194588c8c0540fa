//go:build gpu && linux

package cuda

import (
	"fmt"
	"slices"
	"testing"
)

// TestLatentKeys: keys are copies, and the gradient of what heads share is their sum; nothing is written beside them.
func TestLatentKeys(t *testing.T) {
	elements(t, 256<<20, func(t *testing.T, r *harness) {
		for _, c := range [][5]int{{1, 1, 2, 1, 1}, {5, 3, 7, 4, 3}, {7, 2, 16, 8, 8}, {33, 5, 24, 24, 8},
			{130, 4, 20, 8, 8}, {300, 20, 448, 192, 64}} {
			M, H, of, own, R := c[0], c[1], c[2], c[3], c[4]
			N, D, size := M*H, own+R, r.size()
			var x, shared, dkeys []float64
			out := r.repeat(func() [][]byte {
				var xb, sb, db []byte
				xb, x = r.numbers(N*of, 1)
				sb, shared = r.numbers(M*R, 1)
				db, dkeys = r.numbers(N*D, 1)
				keys, dx := r.out("keys", int64(N*D*size)), r.out("dx", int64(N*of*size))
				sum, given := r.out("dshared", int64(M*R*size)), in(r, "dkeys", db)
				forward, unit := LatentKeys("latent_keys_forward", int64(N), of, own, R)
				r.run(forward, keys, in(r, "x", xb), in(r, "shared", sb), uint32(N), uint32(H), i32(of), i32(own),
					i32(R), i32(unit))
				back, unit := LatentKeys("latent_keys_own", int64(N), of, own, R)
				r.run(back, dx, given, uint32(N), i32(of), i32(own), i32(R), i32(unit))
				r.run(Flat("latent_keys", "latent_keys_shared", int64(M)*int64(R)), sum, given, uint32(M), i32(H),
					i32(own), i32(R))
				return [][]byte{get[byte](r, keys, N*D*size), get[byte](r, dx, N*of*size), get[byte](r, sum, M*R*size)}
			})
			keys, dx, sums := []float64{}, make([]float64, N*of), make([]float64, M*R)
			for i := range N {
				keys = append(append(keys, x[i*of:][:own]...), shared[i/H*R:][:R]...)
				copy(dx[i*of:][:own], dkeys[i*D:])
				for j := range R {
					sums[i/H*R+j] += dkeys[i*D+own+j]
				}
			}
			if !slices.Equal(out[0], r.encoded(keys)) || !slices.Equal(out[1], r.encoded(dx)) {
				t.Errorf("%v: other columns", c)
			}
			r.near(t, fmt.Sprintf("%v dshared", c), out[2], sums)
		}
	})
}
