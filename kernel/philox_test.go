package kernel

import (
	"testing"

	"github.com/tierlora/tierlora/kernel/simd"
)

// The known answers that Random123 (Salmon et al. 2011) publishes for philox4x32 with ten rounds.
func TestPhiloxKnownAnswers(t *testing.T) {
	const all = 0xffffffff
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		keys := philoxKeys(uint64(c.key[1])<<32 | uint64(c.key[0]))
		var got [4]uint32
		got[0], got[1], got[2], got[3] = philox(c.counter[0], c.counter[1], c.counter[2], c.counter[3], &keys)
		if got != c.want {
			t.Errorf("counter %x under key %x gives %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

// The vector form draws the words that philox draws, also where the number of a group needs more than 32 bits.
func TestVectorDropoutDrawsPhilox(t *testing.T) {
	const threshold, step, key = 1 << 30, 0xfffffff0, 0x123456789abcdef0
	masks := simd.Dropout(threshold, 1)
	if masks == nil {
		return // this processor has no vector form
	}
	keys := philoxKeys(key)
	for _, group := range []uint64{0, 1, 1<<32 - 3, 1<<40 + 5} {
		x, y := make([]float32, 4*32+7), make([]float32, 4*32+7)
		for i := range x {
			x[i], y[i] = 1, 7
		}
		if n := masks(y, x, group, step, keys); n != 4*32 {
			t.Fatalf("%d elements are masked, want 128", n)
		}
		for i, got := range y {
			g := group + uint64(i/4)
			var w [4]uint32
			w[0], w[1], w[2], w[3] = philox(uint32(g), uint32(g>>32), step, 0, &keys)
			want := float32(0)
			switch {
			case i >= 4*32:
				want = 7
			case w[i%4] >= threshold:
				want = 1
			}
			if got != want {
				t.Fatalf("group %d, element %d is %v, want %v", group, i, got, want)
			}
		}
	}
}
