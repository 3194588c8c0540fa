package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// route returns a choice of k experts for every token, all but the last expert in use where there are several.
func route(tokens, k, experts int) []int32 {
	e := make([]int32, tokens*k)
	for i := range e {
		e[i] = int32((i*i + i/3 + i%k) % max(experts-1, 1))
	}
	return e
}

// sorted returns SortByExpert's outputs.
func sorted(t testing.TB, tokens, k, experts int) (rows, source, starts []int32) {
	t.Helper()
	out := evaluate(t, kernel.SortByExpert{Experts: experts}, ints(route(tokens, k, experts), tokens, k))
	return out[0].I32(), out[1].I32(), out[2].I32()
}

func ints(v []int32, shape ...int) kernel.Tensor {
	x := kernel.NewTensor(kernel.T(kernel.I32, shape...), kernel.Alloc(int64(4*len(v))))
	copy(x.I32(), v)
	return x
}

func TestRouteExperts(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][3]int{{1, 1, 1}, {5, 3, 1}, {7, 8, 2}, {9, 8, 8}, {40, 128, 8}} {
		for _, normalise := range []bool{false, true} {
			name := fmt.Sprintf("%v normalise %v", s, normalise)
			logits := kerneltest.Normal(s[0], s[1])
			cases = append(cases,
				kerneltest.Case{Name: name, Kernel: kernel.RouteExperts{TopK: s[2], Normalise: normalise},
					In: []kerneltest.Input{logits}, Bound: 2e-7, Step: 1e-5},
				kerneltest.Case{Name: name + " gradient", Kernel: kernel.RouteExpertsGrad{Normalise: normalise},
					Bound: 4e-7,
					In: []kerneltest.Input{logits, kerneltest.Ints(route(s[0], s[2], 1), s[0], s[2]),
						kerneltest.Normal(s[0], s[2])}})
		}
	}
	kerneltest.Run(t, cases...)
}

// Ties go to the lower index, and numbers that are none go last.
func TestRouteExpertsChoice(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(-1)
	out := evaluate(t, kernel.RouteExperts{TopK: 3, Normalise: true},
		f64s([]float64{1, 2, 2, 1, nan, -1, nan, nan, nan, inf, 0, nan}, 3, 4))
	if got, want := fmt.Sprint(out[1].I32()), fmt.Sprint([]int32{1, 2, 0, 1, 0, 2, 2, 1, 0}); got != want {
		t.Errorf("experts %v, want %v", got, want)
	}
	w := out[0].F64()
	e := math.Exp(-1)
	near(t, "weights", w[:3], []float64{1 / (2 + e), 1 / (2 + e), e / (2 + e)}, 1e-15)
	for _, k := range []kernel.RouteExperts{{TopK: 0}, {TopK: 5}, {TopK: -1}} {
		if _, err := k.Shape([]kernel.Type{kernel.T(kernel.F32, 3, 4)}); err == nil {
			t.Errorf("%+v of 4 experts is accepted", k)
		}
	}
}

func TestSortByExpert(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "some", Kernel: kernel.SortByExpert{Experts: 5},
			In: []kerneltest.Input{kerneltest.Ints(route(11, 3, 5), 11, 3)}},
		kerneltest.Case{Name: "no token", Kernel: kernel.SortByExpert{Experts: 5},
			In: []kerneltest.Input{kerneltest.Ints(nil, 0, 3)}})
	out := evaluate(t, kernel.SortByExpert{Experts: 4}, ints([]int32{2, 0, 0, 2, 3, 0, 9, -1}, 4, 2))
	for what, v := range map[string][2][]int32{
		"rows": {out[0].I32(), {3, 0, 1, 4, 5, 2, 6, 7}}, "source": {out[1].I32(), {1, 2, 5, 0, 3, 4, 6, 7}},
		"starts": {out[2].I32(), {0, 3, 3, 5, 8}},
	} {
		if fmt.Sprint(v[0]) != fmt.Sprint(v[1]) {
			t.Errorf("%s are %v, want %v", what, v[0], v[1])
		}
	}
	for _, n := range []int{0, -1, kernel.MaxExperts + 1} {
		if _, err := (kernel.SortByExpert{Experts: n}).Shape([]kernel.Type{kernel.T(kernel.I32, 4, 2)}); err == nil {
			t.Errorf("%d experts are accepted", n)
		}
	}
}

func TestTokensAndSlots(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][4]int{{1, 1, 1, 1}, {5, 2, 3, 7}, {30, 8, 16, 130}} {
		rows, source, _ := sorted(t, s[0], s[1], s[2])
		n := s[0] * s[1]
		at := []kerneltest.Input{kerneltest.Ints(rows, s[0], s[1]), kerneltest.Ints(source, n)}
		name, many := fmt.Sprint(s), kerneltest.Normal(n, s[3])
		cases = append(cases,
			kerneltest.Case{Name: "gather " + name, Kernel: kernel.GatherTokens{},
				In: append([]kerneltest.Input{kerneltest.Normal(s[0], s[3])}, at...), Bound: 6e-8},
			kerneltest.Case{Name: "sum " + name, Kernel: kernel.SumTokens{},
				In: append([]kerneltest.Input{many}, at...), Bound: 4e-7},
			kerneltest.Case{Name: "scale " + name, Kernel: kernel.ScaleSlots{},
				In: append([]kerneltest.Input{many, kerneltest.Normal(s[0], s[1])}, at...), Bound: 2e-7},
			kerneltest.Case{Name: "scale gradient " + name, Kernel: kernel.ScaleSlotsGrad{},
				In: append([]kerneltest.Input{many, many}, at...), Bound: 2e-7})
	}
	kerneltest.Run(t, cases...)
	x, at := kernel.T(kernel.F32, 5, 3), []kernel.Type{kernel.T(kernel.I32, 2, 2), kernel.T(kernel.I32, 5)}
	for _, k := range []kernel.Kernel{kernel.GatherTokens{}, kernel.SumTokens{}} {
		if _, err := k.Shape(append([]kernel.Type{x}, at...)); err == nil {
			t.Errorf("%T: 5 sorted rows of 2 tokens of 2 slots are accepted", k)
		}
	}
}

// TestBalanceLossMeaning compares with the formula over all layers' rows at once.
func TestBalanceLossMeaning(t *testing.T) {
	const m, rows, experts, k, layers, coef, scale = 7, 5, 4, 2, 2, 0.3, 0.25
	real := []int32{1, 1, 0, 1, 1, 0, 1}
	labels := []int32{1, kernel.Untrained, kernel.Untrained, 2, 3, kernel.Untrained, kernel.Untrained}
	logits := [layers][]float64{normal64(1, m*experts), normal64(2, m*experts)}
	in := []kernel.Tensor{f64s([]float64{2}), ints(labels, m), f64s([]float64{scale}, 1), ints(real, m)}
	var chosen, mean [experts]float64
	for _, l := range logits {
		in = append(in, f64s(l, m, experts))
		for r := range m {
			if real[r] == 0 {
				continue
			}
			row, sum := l[r*experts:][:experts], 0.0
			for e, x := range row {
				sum += math.Exp(x)
				above := 0
				for _, y := range row {
					if y > x {
						above++
					}
				}
				if above < k {
					chosen[e] += 1.0 / (layers * rows)
				}
			}
			for e, x := range row {
				mean[e] += math.Exp(x) / sum / (layers * rows)
			}
		}
	}
	aux := 0.0
	for e := range experts {
		aux += experts * chosen[e] * mean[e]
	}
	o := kernel.BalanceLoss{Layers: layers, TopK: k, Coef: coef}
	for _, o.Scores = range []bool{false, true} {
		out := evaluate(t, o, in...)
		if !o.Scores {
			near(t, "loss", out[0].F64(), []float64{2 + coef*aux*3*scale}, 1e-14)
		}
		for _, g := range out[1:] {
			for i, x := range g.F64() {
				if x != 0 && real[i/experts] == 0 {
					t.Errorf("the gradient of padding row %d is %v", i/experts, x)
				}
			}
		}
	}
	one := []float64{2, 1, -3, 2} // of equal logits the first is chosen
	o.Layers, o.Scores = 1, true
	p, all := []float64{math.Exp(0.5), 1, 1, math.Exp(0.5)}, 2*math.Exp(0.5)+2
	out := evaluate(t, o, f64s([]float64{0}), ints([]int32{1}, 1), f64s([]float64{1}, 1), ints([]int32{1}, 1),
		f64s(one, 1, experts))
	near(t, "loss of scores", out[0].F64(), []float64{coef * experts * (p[0] + p[3]) / all}, 1e-14)
}

// TestBalanceEqualsTransformers: packed rows with padding between them, as transformers' formula has them with an
// attention mask.
func TestBalanceEqualsTransformers(t *testing.T) {
	type result struct {
		Loss      float64     `json:"loss"`
		Gradients [][]float64 `json:"gradients"`
	}
	var want struct {
		Mask     []int32     `json:"mask"`
		TopK     int         `json:"top_k"`
		Logits   [][]float64 `json:"logits"`
		OfLogits result      `json:"of_logits"`
		OfScores result      `json:"of_scores"`
	}
	golden.JSON(t, golden.Path(t, "experts/balance.json"), &want)
	m := len(want.Mask)
	for scores, of := range map[bool]result{false: want.OfLogits, true: want.OfScores} {
		in := []kernel.Tensor{f64s([]float64{0}), ints(make([]int32, m), m), f64s([]float64{1 / float64(m)}, 1),
			ints(want.Mask, m)}
		for _, l := range want.Logits {
			in = append(in, f64s(l, m, len(l)/m))
		}
		out := evaluate(t, kernel.BalanceLoss{Layers: len(want.Logits), TopK: want.TopK, Coef: 1, Scores: scores},
			in...)
		near(t, fmt.Sprintf("scores %v: loss", scores), out[0].F64(), []float64{of.Loss}, 1e-14)
		for i, g := range of.Gradients {
			near(t, fmt.Sprintf("scores %v: gradient of layer %d", scores, i), out[1+i].F64(), g, 1e-14)
		}
	}
}

func TestBalanceLoss(t *testing.T) {
	labels := kerneltest.Ints([]int32{1, kernel.Untrained, 2, 3, 0, kernel.Untrained}, 6)
	in := []kerneltest.Input{kerneltest.Uniform(1, 2), labels, kerneltest.Uniform(0.1, 0.5, 1),
		kerneltest.Ints([]int32{1, 0, 1, 1, 0, 1}, 6)}
	logits := []kerneltest.Input{kerneltest.Normal(6, 5), kerneltest.Normal(6, 5), kerneltest.Normal(6, 5)}
	o := kernel.BalanceLoss{Layers: 3, TopK: 2, Coef: 0.5}
	scaled := o
	scaled.Scaled = true
	scores := o
	scores.Scores = true
	kerneltest.Run(t,
		kerneltest.Case{Name: "scores", Kernel: scores, In: append(in[:4:4], logits...), Bound: 5e-7, Step: 1e-5},
		kerneltest.Case{Name: "three layers", Kernel: o, In: append(in[:4:4], logits...), Bound: 5e-7, Step: 1e-5},
		kerneltest.Case{Name: "scaled", Kernel: scaled, Bound: 5e-7, Step: 1e-5,
			In: append(append(in[:4:4], kerneltest.Values([]float64{1, 5, 2}, 3)), logits...)})
	types := []kernel.Type{kernel.T(kernel.F32), kernel.T(kernel.I32, 6), kernel.T(kernel.F32, 1),
		kernel.T(kernel.I32, 6), kernel.T(kernel.F32, 6, 5)}
	for what, k := range map[string]kernel.BalanceLoss{"no layer": {TopK: 1}, "more layers": {Layers: 2, TopK: 1},
		"no expert": {Layers: 1}, "more experts": {Layers: 1, TopK: 6}} {
		if _, err := k.Shape(types); err == nil {
			t.Errorf("%s: %+v is accepted", what, k)
		}
	}
}

// padded says of each token whether it is real: padding at the end, in the middle and at both ends, or nothing else.
var padded = map[string]func(tokens int) []int32{
	"at the end":    func(n int) []int32 { return realWhere(n, func(t int) bool { return t < n/2 }) },
	"in the middle": func(n int) []int32 { return realWhere(n, func(t int) bool { return t < n/4 || t >= n-n/3 }) },
	"everywhere":    func(n int) []int32 { return realWhere(n, func(t int) bool { return t%3 == 1 }) },
	"alone":         func(n int) []int32 { return make([]int32, n) },
}

func realWhere(n int, is func(t int) bool) []int32 {
	real := make([]int32, n)
	for t := range real {
		if is(t) {
			real[t] = 1
		}
	}
	return real
}

// TestSortByExpertLeavesPaddingOut: tokens that are not real are with no expert; the others lie as they do alone.
func TestSortByExpertLeavesPaddingOut(t *testing.T) {
	k := kernel.SortByExpert{Experts: 4, Real: true}
	for where, real := range padded {
		kerneltest.Run(t, kerneltest.Case{Name: where, Kernel: k,
			In: []kerneltest.Input{kerneltest.Ints(route(11, 3, 4), 11, 3), kerneltest.Ints(real(11), 11)}})
	}
	out := evaluate(t, k, ints([]int32{2, 0, 0, 2, 3, 0, 9, -1, 1, 1}, 5, 2), ints([]int32{1, 0, 7, 1, 0}, 5))
	for what, v := range map[string][2][]int32{
		"rows":   {out[0].I32(), {2, 0, -1, -1, 3, 1, 4, 5, -1, -1}},
		"source": {out[1].I32(), {1, 5, 0, 4, 6, 7, -1, -1, -1, -1}}, "starts": {out[2].I32(), {0, 2, 2, 3, 6}},
	} {
		if !slices.Equal(v[0], v[1]) {
			t.Errorf("%s are %v, want %v", what, v[0], v[1])
		}
	}
	if _, err := k.Shape([]kernel.Type{kernel.T(kernel.I32, 4, 2), kernel.T(kernel.I32, 8)}); err == nil {
		t.Error("whether 8 tokens are real is accepted of 4 tokens")
	}
	if _, err := k.Shape([]kernel.Type{kernel.T(kernel.I32, 4, 2)}); err == nil {
		t.Error("which tokens are real is not asked for")
	}
}

// TestRowsOfNoExpert runs every kernel of experts over rows of which the last ones are with none.
func TestRowsOfNoExpert(t *testing.T) {
	const M, K, E, N, C = 12, 2, 5, 24, 64
	for where, real := range padded {
		out := evaluate(t, kernel.SortByExpert{Experts: E, Real: true}, ints(route(M, K, E), M, K), ints(real(M), M))
		places, first := kerneltest.Ints(out[0].I32(), M, K), kerneltest.Ints(out[2].I32(), E+1)
		from, many := kerneltest.Ints(out[1].I32(), M*K), kerneltest.Normal(M*K, C)
		cases := []kerneltest.Case{
			{Kernel: kernel.GatherTokens{}, In: []kerneltest.Input{kerneltest.Normal(M, C), places, from}, Bound: 6e-8},
			{Kernel: kernel.SumTokens{}, In: []kerneltest.Input{many, places, from}, Bound: 4e-7},
			{Kernel: kernel.ScaleSlots{}, In: []kerneltest.Input{many, kerneltest.Normal(M, K), places, from},
				Bound: 2e-7},
			{Kernel: kernel.ScaleSlotsGrad{}, In: []kerneltest.Input{many, many, places, from}, Bound: 2e-7},
			{Kernel: kernel.DropSlots{P: 0.4, Stream: 3},
				In: []kerneltest.Input{many, kerneltest.Ints([]int32{5, 6}, 2), from}, Bound: 2e-7},
			{Kernel: kernel.ExpertBias{Experts: E}, In: []kerneltest.Input{many,
				kerneltest.Normal(E * C).As(kernel.BF16), first}, Bound: 2e-7},
			{Kernel: kernel.ExpertWeightGrad{Experts: E},
				In: []kerneltest.Input{kerneltest.Normal(M*K, N), many, first}, Bound: 1e-6},
			{Kernel: kernel.ExpertWeightGradGathered{Experts: E, PerToken: K},
				In: []kerneltest.Input{kerneltest.Normal(M*K, N), kerneltest.Normal(M, C), from, first}, Bound: 1e-6},
		}
		_, nf4 := expertWeights(t, E, N, C, "nf4", true)
		_, int8 := expertWeights(t, E, N, C, "int8", false)
		codes, scales, _ := mxfp4Experts(E, N, C)
		for _, back := range []bool{false, true} {
			x, y, v := kerneltest.Normal(M*K, C), kerneltest.Normal(M*K, N), kerneltest.Normal(E*N, 3)
			if back {
				x, y, v = y, x, kerneltest.Normal(E*3, C)
			}
			numbers := kernel.ExpertMatMul{Experts: E, TransB: !back}
			base := kernel.ExpertMatMulNF4{Experts: E, N: N, K: C, Nested: true, Transposed: back}
			update := kernel.ExpertUpdate{Base: base, Low: numbers}
			onto := update
			onto.Onto = true
			of := func(parts ...kerneltest.Input) []kerneltest.Input {
				return append([]kerneltest.Input{x, first}, parts...)
			}
			low := append(of(inputsOf(nf4)...), kerneltest.Normal(M*K, 3), v)
			added := append(of(inputsOf(nf4)...), y, kerneltest.Normal(M*K, 3), v)
			cases = append(cases,
				kerneltest.Case{Kernel: numbers, In: []kerneltest.Input{x, kerneltest.Normal(E*N, C), first}},
				kerneltest.Case{Kernel: numbers, In: []kerneltest.Input{x, kerneltest.Normal(E*N, C).As(kernel.BF16),
					first}},
				kerneltest.Case{Kernel: base, In: of(inputsOf(nf4)...)},
				kerneltest.Case{Kernel: kernel.ExpertMatMulInt8{Experts: E, N: N, K: C, Transposed: back},
					In: of(inputsOf(int8)...)},
				kerneltest.Case{Kernel: kernel.ExpertMatMulMXFP4{Experts: E, N: N, K: C, Transposed: back},
					In: of(kerneltest.Bytes(codes, len(codes)), kerneltest.Bytes(scales, len(scales)))},
				kerneltest.Case{Kernel: update, In: low}, kerneltest.Case{Kernel: onto, In: added})
		}
		for i, c := range cases {
			c.Name = fmt.Sprintf("%s, %d, padding %s", c.Kernel.Name(), i, where)
			if c.Bound == 0 {
				c.Bound = 1e-6
			}
			kerneltest.Run(t, c)
		}
	}
}

// TestPaddingChangesNoToken: what experts make of tokens, and all gradients, are to the bit what they are without the
// padding between and behind, whatever it holds; and zero where there is padding.
func TestPaddingChangesNoToken(t *testing.T) {
	const M, K, E, N, C, rank = 30, 2, 5, 24, 64, 4
	_, parts := expertWeights(t, E, N, C, "nf4", true)
	a, b := tensor32(normal32(4, E*rank*C), E*rank, C), tensor32(normal32(5, E*N*rank), E*N, rank)
	bias := tensor32(normal32(6, E*N), E*N)
	for where, is := range padded {
		real := is(M)
		// layer is what experts make of the tokens that are kept, and the gradients for x, for the weights, for A and
		// for B.
		layer := func(keep func(t int) bool, real []int32) [][]float32 {
			var x, weights, dy []float32
			var chosen []int32
			for t := range M {
				if !keep(t) {
					continue
				}
				own, w, d := normal32(uint64(100+t), C), normal32(uint64(200+t), K), normal32(uint64(300+t), N)
				if real != nil && real[t] == 0 {
					own[t%C], w[0] = float32(math.NaN()), float32(math.Inf(1))
				}
				x, weights, dy, chosen = append(x, own...), append(weights, w...), append(dy, d...),
					append(chosen, route(M, K, E)[t*K:][:K]...)
			}
			m := len(chosen) / K
			sort, in := kernel.SortByExpert{Experts: E, Real: real != nil}, []kernel.Tensor{ints(chosen, m, K)}
			if real != nil {
				in = append(in, i32s(real))
			}
			at := evaluate(t, sort, in...)
			rows, source, first := at[0], at[1], at[2]
			one := func(k kernel.Kernel, in ...kernel.Tensor) kernel.Tensor { return evaluate(t, k, in...)[0] }
			packed := func(x kernel.Tensor) []kernel.Tensor { return append([]kernel.Tensor{x, first}, parts...) }
			tokens, slots := tensor32(x, m, C), tensor32(weights, m, K)
			each := one(kernel.GatherTokens{}, tokens, rows, source)
			low := one(kernel.ExpertMatMul{Experts: E, TransB: true}, each, a, first)
			y := one(kernel.ExpertUpdate{Base: kernel.ExpertMatMulNF4{Experts: E, N: N, K: C, Nested: true},
				Low: kernel.ExpertMatMul{Experts: E, TransB: true, Alpha: 2}},
				append(packed(each), low, b)...)
			y = one(kernel.ExpertBias{Experts: E}, y, bias, first)
			sum := one(kernel.SumTokens{}, one(kernel.ScaleSlots{}, y, slots, rows, source), rows, source)
			up := one(kernel.GatherTokens{}, tensor32(dy, m, N), rows, source)
			dw := one(kernel.ScaleSlotsGrad{}, y, up, rows, source)
			dz := one(kernel.ScaleSlots{}, up, slots, rows, source)
			dlow := one(kernel.ExpertMatMul{Experts: E, Alpha: 2}, dz, b, first)
			dx := one(kernel.ExpertMatMulNF4{Experts: E, N: N, K: C, Nested: true, Transposed: true}, packed(dz)...)
			dx = one(kernel.SumTokens{}, one(kernel.Add{}, dx, one(kernel.ExpertMatMul{Experts: E}, dlow, a, first)),
				rows, source)
			da := one(kernel.ExpertWeightGradGathered{Experts: E, PerToken: K}, dlow, tokens, source, first)
			db := one(kernel.ExpertWeightGrad{Experts: E, Alpha: 2}, dz, low, first)
			return [][]float32{sum.F32(), dx.F32(), dw.F32(), da.F32(), db.F32()}
		}
		got := layer(func(int) bool { return true }, real)
		want := layer(func(t int) bool { return real[t] != 0 }, nil)
		for i, width := range []int{N, C, K} { // what each token has a row of
			var kept []float32
			for token := range M {
				row := got[i][token*width:][:width]
				if real[token] != 0 {
					kept = append(kept, row...)
				} else if !slices.Equal(row, make([]float32, width)) {
					t.Errorf("padding %s: result %d is not zero in row %d", where, i, token)
				}
			}
			got[i] = kept
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("padding %s: result %d is not that of the tokens alone", where, i)
			}
		}
	}
}

func TestWeighExperts(t *testing.T) {
	kerneltest.Run(t,
		kerneltest.Case{Name: "odd", Kernel: kernel.WeighExperts{},
			In:    []kerneltest.Input{kerneltest.Normal(7, 3), kerneltest.Ints(chosen(5, 21), 7, 3), kerneltest.Normal(5)},
			Bound: 2e-7},
		kerneltest.Case{Name: "pieces", Kernel: kernel.WeighExperts{},
			In: []kerneltest.Input{kerneltest.Normal(4099, 8), kerneltest.Ints(chosen(128, 8*4099), 4099, 8),
				kerneltest.Normal(128)}, Bound: 2e-7},
	)
}

func TestWeighExpertsMeaning(t *testing.T) {
	experts := kernel.NewTensor(kernel.T(kernel.I32, 2, 2), kernel.Alloc(16))
	copy(experts.I32(), []int32{2, 0, 3, -1}) // two are none
	out := evaluate(t, kernel.WeighExperts{}, f64s([]float64{1, -2, 5, 6}, 2, 2), experts,
		f64s([]float64{0.5, 9, -1.5}, 3))
	near(t, "y", out[0].F64(), []float64{-1.5, -1, 0, 0}, 0)
	if _, err := (kernel.WeighExperts{}).Shape([]kernel.Type{kernel.T(kernel.F32, 2, 3), kernel.T(kernel.I32, 2, 2),
		kernel.T(kernel.F32, 3)}); err == nil || !strings.Contains(err.Error(), "input 1") {
		t.Errorf("other numbers of experts: %v", err)
	}
}

// chosen returns n numbers of experts.
func chosen(experts, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(i * 7 % experts)
	}
	return x
}
