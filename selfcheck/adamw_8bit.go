package selfcheck

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel"
)

// updateChecks8Bit returns AdamW with moments in 8 bits: codes, scales and moments equal those in float64, where the
// first step's are exact. Betas are 0.5, and gradients of twelve bits, so that no product of theirs is rounded; between
// two codes rounding decides where a quotient lies within 2e-7 of the middle, and none of these does.
func updateChecks8Bit() []check {
	n := newNumbers()
	var all []check
	for _, c := range []struct {
		large, small []int // numbers of tensors in 8 and in 32 bits
		step         int   // tensors begin at multiples of it
	}{{[]int{1}, nil, 16}, {[]int{300, 256}, []int{1, 257}, 1}, {[]int{4115}, []int{33}, 16}} {
		var table []int32
		P, rows := 0, 0
		cut := func(sizes []int) (blocks int) {
			for _, size := range sizes {
				P = (P + c.step - 1) / c.step * c.step
				for at := 0; at < size; at, blocks = at+kernel.MomentBlock, blocks+1 {
					table = append(table, int32(P+at), int32(min(kernel.MomentBlock, size-at)))
				}
				P += size
			}
			rows += blocks
			return blocks
		}
		coded, others := cut(c.large), cut(c.small)
		q, r := max(coded, 1), max(others, 1)
		where := integers(table...)
		where.shape = []int{rows, 2}
		g := n.normal32(1, P)
		for i := range g.values {
			g.values[i] = float64(math.Float32frombits(math.Float32bits(float32(math.Ldexp(g.values[i],
				-i%7))) &^ (1<<12 - 1)))
		}
		codes := checkInput{typ: kernel.U8, shape: []int{q * kernel.MomentBlock},
			values: make([]float64, q*kernel.MomentBlock)}
		for _, scaled := range []bool{false, true} {
			k := kernel.AdamW8Bit{Beta1: 0.5, Beta2: 0.5, Eps: 1e-6, WeightDecay: 0.1, Quantised: coded, Scaled: scaled}
			in := []checkInput{n.normal32(1, P).overwritten(), g, codes.overwritten(), codes.overwritten(),
				zeros(q).overwritten(), zeros(q).overwritten(),
				zeros(r * kernel.MomentBlock).overwritten(), zeros(r * kernel.MomentBlock).overwritten(), where,
				given([]int{2}, 3, 0.25)}
			name := fmt.Sprintf("%v and %v numbers", c.large, c.small)
			if scaled {
				name += " after 2 skipped steps"
				in = append(in, given([]int{4}, 1e-2, 0, 0, float64(math.Float32frombits(3))),
					given([]int{3}, 1<<14, 7, 2))
			} else {
				in = append(in, given([]int{4}, 1e-2, 0.5, 0.5, float64(math.Float32frombits(1))))
			}
			all = append(all, check{kernel: k.Name(), name: name, build: one(k),
				bounds: []bound{single, exact, exact, exact, exact, exact, exact}, in: in})
		}
	}
	return all
}
