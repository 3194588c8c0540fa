package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel"
)

// otherUpdateChecks returns the optimizers that keep fewer states than AdamW or update matrices.
func otherUpdateChecks() []check {
	n := newNumbers()
	clip, hyper := given([]int{2}, 3, 0.25), given([]int{4}, 1e-2, 0.4, 0.3, 0)
	var all []check
	for _, P := range []int{1, 33, 1000, 300007} {
		name := fmt.Sprintf("%d numbers", P)
		for _, nesterov := range []bool{false, true} {
			all = append(all, check{kernel: "sgd", name: fmt.Sprintf("%s, nesterov %v", name, nesterov),
				bounds: []bound{single, single},
				build:  one(kernel.SGD{Momentum: 0.9, WeightDecay: 0.1, Nesterov: nesterov}),
				in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, P), n.normal32(0.1,
					P).overwritten(), clip, hyper}})
		}
		all = append(all, check{kernel: "round_stochastic", name: name, bounds: []bound{single},
			build: one(kernel.RoundStochastic{Stream: 5}),
			in:    []checkInput{n.normal(1, P).overwritten(), n.normal32(1, P), integers(3, 5)}},
			check{kernel: "widen_bf16", name: name, bounds: []bound{single}, build: one(kernel.WidenBF16{}),
				in: []checkInput{n.normal(1, P)}})
		squares := n.normal32(1, P)
		for i, v := range squares.values {
			squares.values[i] = float64(float32(v*v + 0.01))
		}
		weight := given([]int{4}, 1e-2, 4e-4, 0.25, 4)
		all = append(all, check{kernel: "schedule_free", name: name, bounds: []bound{single, single, single, single},
			build: one(kernel.ScheduleFreeAdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, WeightDecay: 0.1}),
			in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, P), n.normal32(1, P).overwritten(),
				n.normal32(1, P).overwritten(), squares.overwritten(), weight, clip, hyper}})
		for _, average := range []bool{false, true} {
			all = append(all, check{kernel: "schedule_free_show", name: fmt.Sprintf("%s, average %v", name,
				average), bounds: []bound{single},
				build: one(kernel.ScheduleFreeShow{Beta1: 0.9, Average: average}),
				in:    []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, P), n.normal32(1, P), weight}})
		}
	}
	for i, of := range [][]float64{{0, 0, 0, 0}, {5e-3, 1e-4, 0.3, 7}, {2e-2, 1e-3, 0.3, 7}} {
		all = append(all, check{kernel: "schedule_free_weight", name: fmt.Sprintf("case %d", i),
			bounds: []bound{single},
			build:  one(kernel.ScheduleFreeWeight{}), in: []checkInput{given([]int{4}, of...).overwritten(), clip,
				hyper}})
	}
	return append(append(all, lion8BitChecks(n, clip, hyper)...), matrixChecks(n, clip, hyper)...)
}

// lion8BitChecks returns Lion with its moment in 8 bits, over a tensor in 8 bits and a small one. Moments begin at zero
// and gradients have twelve bits, so that codes equal those in float64.
func lion8BitChecks(n checkNumbers, clip, hyper checkInput) []check {
	where := integers(0, 256, 256, 44, 304, 200)
	where.shape = []int{3, 2}
	const P = 504
	g := n.normal32(1, P)
	for i, v := range g.values {
		g.values[i] = float64(int(v*512)) / 512
	}
	codes := checkInput{typ: kernel.U8, shape: []int{2 * kernel.MomentBlock}, values: make([]float64,
		2*kernel.MomentBlock)}
	k := kernel.Lion8Bit{Beta1: 0.5, Beta2: 0.5, WeightDecay: 0.1, Quantised: 2}
	for i := range codes.values {
		codes.values[i] = 127
	}
	return []check{{kernel: "lion_8bit", name: "500 numbers", build: one(k), bounds: []bound{single, exact, exact,
		exact},
		in: []checkInput{n.normal32(1, P).overwritten(), g, codes.overwritten(), zeros(2).overwritten(),
			zeros(kernel.MomentBlock).overwritten(), where, clip, hyper}}}
}

// matrixChecks returns the updates that tell matrices apart.
func matrixChecks(n checkNumbers, clip, hyper checkInput) (all []check) {
	matrices := []kernel.Matrix{{Rows: 16, Cols: 300}, {From: 4800, Rows: 300, Cols: 16}, {From: 9600, Rows: 1,
		Cols: 33},
		{From: 9633, Rows: 70, Cols: 130}}
	const P = 18750
	table := func(all []kernel.Matrix, places func(kernel.Matrix) (int, int)) checkInput {
		rows := make([]int32, kernel.MatrixColumns*len(all))
		kernel.MatrixTable(rows, all, places)
		where := integers(rows...)
		where.shape = []int{len(all), kernel.MatrixColumns}
		return where
	}
	for _, rms := range []bool{false, true} {
		k := kernel.Muon{Matrices: matrices, Momentum: 0.95, WeightDecay: 0.1, Nesterov: true, MatchRMS: rms}
		all = append(all, check{kernel: "muon", name: fmt.Sprintf("%d matrices, rms %v", len(matrices), rms),
			build:  one(k),
			bounds: []bound{iterated, single},
			in: []checkInput{n.normal32(1e-3, P).overwritten(), n.normal32(1, P), n.normal32(0.1, P).overwritten(),
				table(matrices, kernel.MuonPlaces), clip, given([]int{4}, 1, 0, 0, 0)}})
	}
	tensors := append(matrices, kernel.Matrix{From: 18733, Rows: 17})
	rows, cols := kernel.AdafactorStates(tensors)
	positive := func(elems int) checkInput {
		x := n.normal32(1, elems)
		for i, v := range x.values {
			x.values[i] = float64(float32(v*v + 0.01))
		}
		return x
	}
	for _, k := range []kernel.Adafactor{{ClipThreshold: 1}, {ClipThreshold: 0.5, ScaleParameter: true,
		WeightDecay: 0.1, Beta1: 0.9}} {
		k.Matrices = tensors
		moments := 1
		if k.Beta1 > 0 {
			moments = P
		}
		all = append(all, check{kernel: "adafactor", name: fmt.Sprintf("%d tensors, beta1 %v", len(tensors),
			k.Beta1), build: one(k),
			bounds: []bound{single, single, single, single},
			in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, P), positive(rows).overwritten(),
				positive(cols).overwritten(), n.normal32(0.1, moments).overwritten(), table(tensors,
					kernel.AdafactorPlaces), clip, hyper}})
	}
	return all
}
