//go:build gpu && linux

package cuda

import (
	"encoding/binary"
	"testing"
)

func TestPositions(t *testing.T) {
	r := newHarness(t, 16<<20)
	for _, c := range []struct {
		M     int
		cu    []int32
		first int // of the tokens
	}{{10, []int32{0, 3, 7, 9}, 0}, {10, []int32{0}, 0}, {10, []int32{0, 0, 4, 4, 8, 8}, 0}, {10, []int32{5, 9}, 0},
		{5000, []int32{0, 2, 4000, 4004, 5000}, 0},
		{10, []int32{0, 12, 15, 22, 30}, 10}, {10, []int32{0, 12, 15, 22, 24}, 20}} {
		positions, long := make([]int32, c.M), make([]bool, c.M)
		for i := range positions {
			positions[i] = int32(i * 7 % 50)
		}
		for s := 1; s < len(c.cu); s++ {
			for i := max(int(c.cu[s-1])-c.first, 0); i < min(int(c.cu[s])-c.first, c.M); i++ {
				long[i] = c.cu[s]-c.cu[s-1] > 3
			}
		}
		out := r.repeat(func() [][]byte {
			Y := r.out("moved", int64(4*c.M))
			r.run(Flat("positions", "positions_by_length", int64(c.M)), Y, in(r, "positions", positions),
				in(r, "cu", c.cu), i32(c.M), i32(len(c.cu)-1), i32(3), i32(100), i32(c.first))
			return [][]byte{get[byte](r, Y, 4*c.M)}
		})
		for i, p := range positions {
			if long[i] {
				p += 100
			}
			if got := int32(binary.LittleEndian.Uint32(out[0][4*i:])); got != p {
				t.Fatalf("%v: position of token %d is %d, want %d", c.cu, i, got, p)
			}
		}
	}
}
