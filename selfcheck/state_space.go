package selfcheck

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel"
)

// stateSpaceChecks returns the convolution and the scan of Mamba-2 layers over packed sequences, their gradients, and
// both over sequences that go on from a slot.
func stateSpaceChecks() []check {
	n := newNumbers()
	var all []check
	for _, K := range []int{1, 2, 4} {
		for _, lengths := range [][]int{{1}, {5, 0, 64, 1, 100}} {
			all = append(all, columnsConvChecks(n, K, lengths)...)
		}
		if K > 1 { // else nothing is kept
			all = append(all, columnsConvCachedCheck(n, K))
		}
	}
	// heads, groups, sizes of a head and of a state; every form of the device code, in part and whole
	for _, h := range [][4]int{{1, 1, 4, 8}, {4, 2, 12, 16}, {3, 1, 64, 128}, {2, 2, 40, 200}, {2, 1, 100, 64},
		{6, 1, 64, 256}} {
		for _, lengths := range [][]int{{1}, {16}, {17}, {5, 0, 40, 1, 33}} {
			all = append(all, scanChecks(n, h, lengths, 0, 0)...)
		}
		all = append(all, scanCachedCheck(n, h))
	}
	all = append(all, scanChecks(n, [4]int{2, 1, 16, 32}, []int{600}, 0, 0)...)
	// limits that all steps exceed: at a limit the gradient of float64 is another
	all = append(all, scanChecks(n, [4]int{4, 2, 12, 16}, []int{50, 7}, 0, 1e-3)...)
	return all
}

// packed returns bounds of sequences with two rows before the first and three behind the last, and all rows.
func packed(lengths []int) (cu []int, rows int) {
	cu = bounds(lengths)
	for i := range cu {
		cu[i] += 2
	}
	return cu, cu[len(cu)-1] + 3
}

func columnsConvChecks(n checkNumbers, K int, lengths []int) []check {
	const from, C, W = 5, 43, 60
	cu, M := packed(lengths)
	name := fmt.Sprintf("%d taps, columns %d to %d of %d, sequences of %v", K, from, from+C, W, lengths)
	in := []checkInput{n.normal(1, M, W), n.normal(1, C, K), n.normal32(1, C), integers(cu...)}
	return []check{
		{kernel: "columns_conv", name: name, build: one(kernel.ColumnsConv{From: from}), bounds: []bound{rounded},
			in: in},
		{kernel: "columns_conv_grad", name: name, build: one(kernel.ColumnsConvGrad{From: from}),
			bounds: []bound{rounded}, in: append(in[:4:4], n.normal(1, M, W))},
	}
}

// slotsOf returns the bounds of sequences that go on from slots, of their rows now and of all their tokens. Between two
// of them is one without a row, so that each begins with its slot.
func slotsOf(tokens int) (cu, cuK []int) {
	var rows []int
	cuK = []int{0}
	for slot, now := range [][2]int{{1, 5}, {0, 0}, {40, 0}, {17, 9}} { // rows, tokens before them
		rows, cuK = append(rows, now[0], 0), append(cuK, slot*tokens+now[0]+now[1], (slot+1)*tokens)
	}
	return bounds(rows), cuK
}

func columnsConvCachedCheck(n checkNumbers, K int) check {
	const from, C, W, tokens, slots = 5, 43, 60, 64, 4
	cu, cuK := slotsOf(tokens)
	return check{kernel: "columns_conv_cached", name: fmt.Sprintf("%d taps", K),
		build:  one(kernel.ColumnsConvCached{From: from, Tokens: tokens}),
		bounds: []bound{rounded, exact},
		in: []checkInput{n.normal(1, cu[len(cu)-1]+2, W), n.normal(1, C, K), n.normal32(1, C), integers(cu...),
			integers(cuK...), n.normal(1, slots, (K-1)*C).overwritten()}}
}

// scanInputs returns a scan and its inputs but for the bounds, of M rows. B and C are so large that a step's share of a
// state is of the same size whatever the sizes are.
func scanInputs(n checkNumbers, h [4]int, M int) (kernel.StateSpace, []checkInput) {
	H, G, P, N := h[0], h[1], h[2], h[3]
	return kernel.StateSpace{Heads: H, Groups: G, State: N},
		[]checkInput{n.normal(1/math.Sqrt(math.Sqrt(float64(N))), M, 2*H*P+2*G*N+H), n.normal32(1, H),
			n.normal32(1, H), n.normal32(1, H)}
}

func scanChecks(n checkNumbers, h [4]int, lengths []int, least, most float64) []check {
	cu, M := packed(lengths)
	scan, in := scanInputs(n, h, M)
	scan.MinStep, scan.MaxStep = least, most
	in = append(in, integers(cu...))
	name := fmt.Sprintf("%d heads in %d groups, of %d and %d, sequences of %v, limits %g and %g", h[0], h[1], h[2],
		h[3], lengths, least, most)
	grad := check{kernel: "state_space_grad", name: name, build: one(kernel.StateSpaceGrad(scan)),
		bounds: []bound{rounded}, in: append(in[:5:5], n.normal(1, M, h[0]*h[2]))}
	grad.plain = grad.inFloat32()
	return []check{{kernel: "state_space", name: name, build: one(scan), bounds: []bound{rounded}, in: in}, grad}
}

func scanCachedCheck(n checkNumbers, h [4]int) check {
	const tokens, slots = 64, 4
	cu, cuK := slotsOf(tokens)
	scan, in := scanInputs(n, h, cu[len(cu)-1]+2)
	in = append(in, integers(cu...), integers(cuK...), n.normal32(1, slots, h[0]*h[2]*h[3]).overwritten())
	return check{kernel: "state_space_cached", name: fmt.Sprintf("%d heads in %d groups, of %d and %d", h[0], h[1],
		h[2], h[3]), build: one(kernel.StateSpaceCached{Scan: scan, Tokens: tokens}),
		bounds: []bound{rounded, single}, in: in}
}
