//go:build gpu && linux

package cuda

import (
	"math"
	"slices"
	"testing"
)

// TestAxisAngles: angles are those of the table's rows, bit for bit, and NaN beyond it.
func TestAxisAngles(t *testing.T) {
	r := newHarness(t, 64<<20)
	for _, c := range [][5]int{{1, 2, 1, 0, 0}, {7, 16, 5, 2, 2}, {300, 128, 90, 20, 20}} {
		M, R, P, rows, columns := c[0], c[1], c[2], c[3], c[4]
		table, positions := make([]float32, P*R), make([]int32, 3*M)
		for i := range table {
			table[i] = float32(i)
		}
		for i := range positions {
			positions[i] = int32(i * 7 % (P + 1))
		}
		out := r.repeat(func() [][]byte {
			T, K, Y := in(r, "table", table), in(r, "positions", positions), r.out("y", int64(4*M*R))
			r.run(Flat("axis_angles", "axis_angles_take", int64(M)*int64(R/2)), Y, T, K, i32(P), i32(M), i32(R),
				i32(rows), i32(columns))
			return [][]byte{get[byte](r, Y, 4*M*R)}
		})
		var want []byte
		for m := range M {
			for at := range R {
				i, axis := at%(R/2), 0
				if i%3 == 1 && i < 3*rows {
					axis = 1
				} else if i%3 == 2 && i < 3*columns {
					axis = 2
				}
				bits := uint32(0x7fc00000)
				if p := int(positions[3*m+axis]); p < P {
					bits = math.Float32bits(table[p*R+at])
				}
				want = append(want, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
			}
		}
		if !slices.Equal(out[0], want) {
			t.Errorf("%v: other angles", c)
		}
	}
}
