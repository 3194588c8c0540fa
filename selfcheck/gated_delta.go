package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// deltaChecks returns the gated delta rule and its gradients over packed sequences, and the rule over sequences that go
// on from a slot.
func deltaChecks() []check {
	n := newNumbers()
	var all []check
	// key and value heads, their sizes
	for _, h := range [][4]int{{1, 1, 8, 12}, {2, 4, 32, 40}, {1, 3, 64, 100}, {2, 2, 100, 64}, {2, 4, 128, 128}} {
		for _, lengths := range [][]int{{1}, {32}, {33}, {5, 0, 64, 1, 100}, {150}} {
			all = append(all, deltaCheck(n, h, lengths)...)
		}
		all = append(all, deltaCachedCheck(n, h))
	}
	all = append(all, deltaCheck(n, [4]int{1, 2, 128, 128}, []int{600})...)
	// more rows than the backward pass has states of at a time
	all = append(all, deltaCheck(n, [4]int{1, 2, 8, 8}, []int{100, 8150, 70})...)
	return all
}

// deltaInputs returns all of the rule's but the bounds: qkv, b, a, log A and dt, of M rows.
func deltaInputs(n checkNumbers, h [4]int, M int) []checkInput {
	K, V, D, E := h[0], h[1], h[2], h[3]
	return []checkInput{n.normal(1, M, 2*K*D+V*E), n.normal(1, M, V), n.normal(1, M, V), n.normal32(1, V),
		n.normal32(1, V)}
}

func deltaCheck(n checkNumbers, h [4]int, lengths []int) []check {
	rule := kernel.GatedDelta{KeyHeads: h[0], ValueHeads: h[1], KeySize: h[2]}
	cu := bounds(lengths)
	for i := range cu { // two rows before the first sequence, and three behind the last
		cu[i] += 2
	}
	M := cu[len(cu)-1] + 3
	in := append(deltaInputs(n, h, M), integers(cu...))
	name := fmt.Sprintf("%d heads over %d, of %d and %d, sequences of %v", h[1], h[0], h[3], h[2], lengths)
	grad := check{kernel: "gated_delta_grad", name: name, build: one(kernel.GatedDeltaGrad(rule)),
		bounds: []bound{rounded, rounded, rounded}, in: append(in[:6:6], n.normal(1, M, h[1]*h[3]))}
	grad.plain = grad.inFloat32()
	return []check{{kernel: "gated_delta", name: name, build: one(rule), bounds: []bound{rounded}, in: in}, grad}
}

// inFloat32 is a check's plain form where sums cancel, as those of a decay's gradient do: the CPU's float32, rounded.
func (c check) inFloat32() func(format, [][]float64) [][]float64 {
	return func(f format, _ [][]float64) [][]float64 {
		cpu := graph.NewCPU(1)
		defer cpu.Close() //nolint:errcheck // nothing is held
		out, err := c.run(cpu, kernel.F32, 1)
		if err != nil {
			return make([][]float64, len(c.bounds)) // the reference fails as well, and says so
		}
		for _, x := range out {
			f.all(x)
		}
		return out
	}
}

func deltaCachedCheck(n checkNumbers, h [4]int) check {
	const tokens, slots = 64, 4
	rule := kernel.GatedDelta{KeyHeads: h[0], ValueHeads: h[1], KeySize: h[2]}
	var rows []int // of each sequence now; between two of them is one without, so that each begins with its slot
	cuK := []int{0}
	for slot, now := range [][2]int{{1, 5}, {0, 0}, {40, 0}, {17, 9}} { // rows, tokens before them
		rows, cuK = append(rows, now[0], 0), append(cuK, slot*tokens+now[0]+now[1], (slot+1)*tokens)
	}
	cu := bounds(rows)
	M := cu[len(cu)-1] + 2
	in := append(deltaInputs(n, h, M), integers(cu...), integers(cuK...),
		n.normal32(1, slots, h[1]*h[2]*h[3]).overwritten())
	return check{kernel: "gated_delta_cached", name: fmt.Sprintf("%d heads over %d, of %d and %d", h[1], h[0], h[3],
		h[2]), build: one(kernel.GatedDeltaCached{Rule: rule, Tokens: tokens}),
		bounds: []bound{rounded, single}, in: in}
}
