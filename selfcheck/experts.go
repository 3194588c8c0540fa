package selfcheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// expertChecks returns the kernels of mixtures of experts: tokens M, experts E, K of them for each token.
func expertChecks() []check {
	n := newNumbers()
	var all []check
	for i, s := range [][3]int{{1, 1, 1}, {7, 6, 2}, {65, 8, 8}, {129, 128, 8}, {700, 5, 2}, {33, 1000, 40}} {
		all = append(all, routeChecks(n, s[0], s[1], s[2], noPadding)...)
		all = append(all, routeChecks(n, s[0], s[1], s[2], paddings[i%len(paddings)])...)
	}
	for i, s := range [][5]int{{1, 1, 1, 64, 64}, {7, 4, 2, 40, 33}, {65, 8, 2, 172, 64}, {129, 128, 8, 24, 16},
		{300, 3, 2, 64, 192}, {129, 6, 3, 16, 256}, {450, 3, 2, 136, 200}} {
		all = append(all, expertGemmChecks(n, s[0], s[1], s[2], s[3], s[4], noPadding)...)
		all = append(all, expertGemmChecks(n, s[0], s[1], s[2], s[3], s[4], paddings[i%len(paddings)])...)
	}
	all = append(all, expertUpdateChecks(n)...)
	for _, width := range []int{64, 33} {
		for i, M := range checkRows {
			x, h := n.normal(4, 2*M, 2*width), n.normal(1, 2*M, width)
			name := fmt.Sprintf("[%d,%d]", 2*M, width)
			for _, pad := range []padding{noPadding, paddings[i%len(paddings)]} {
				_, _, _, starts := routing(M, 5, 2, pad)
				all = append(all, check{kernel: "expert_bias", name: fmt.Sprintf("%s of 5 experts%s", name, pad),
					build: one(kernel.ExpertBias{Experts: 5}), bounds: []bound{rounded}, inPlace: []int{0},
					in: []checkInput{h, n.normal(1, 5*width), integers(starts...)}})
			}
			all = append(all,
				check{kernel: "swiglu_clamped", name: name, build: one(kernel.ClampedSwiGLU{}),
					bounds: []bound{rounded}, in: []checkInput{x}},
				check{kernel: "swiglu_clamped_grad", name: name, build: one(kernel.ClampedSwiGLUGrad{}),
					bounds: []bound{rounded}, inPlace: []int{0}, in: []checkInput{x, h}})
		}
	}
	for _, D := range checkHeads {
		a := attentionCheck{queries: []int{1, 63, 64, 65, 17}, keys: []int{1, 63, 64, 65, 17}, heads: 4, kv: 2, D: D,
			window: 40}
		all = append(all, a.withSinks(n, true))
		a = attentionCheck{queries: []int{37}, keys: []int{101}, heads: 4, kv: 2, D: D}
		all = append(all, a.withSinks(n, false))
	}
	return all
}

// withSinks returns the check of attention with a sink for each head.
func (a attentionCheck) withSinks(n checkNumbers, backward bool) check {
	a.sinks = true
	c := a.check(n, backward)
	c.kernel, c.name, c.in = "attention_sinks", c.name+", with sinks", append(c.in, n.normal(1, a.heads))
	k := kernel.AttentionSinks{Attention: kernel.Attention{Heads: a.heads, KVHeads: a.kv,
		Scale: 1 / math.Sqrt(float64(a.D)), Window: a.window}}
	c.build = one(k)
	if backward {
		c.build = func(b *graph.Builder, in []*graph.Value) []*graph.Value {
			q, key, v, cu, do := in[0], in[1], in[2], in[3], in[4]
			o := b.ApplyAll(k, q, key, v, cu, cu, in[5])
			return append(slices.Clip(o), b.ApplyAll(kernel.AttentionGrad(k.Attention), q, key, v, o[0], o[1], do, cu,
				cu)...)
		}
	}
	return c
}

// shaped gives whole numbers a shape.
func shaped(x checkInput, shape ...int) checkInput {
	x.shape = shape
	return x
}

// padding is where tokens are none.
type padding string

const noPadding padding = ""

var paddings = []padding{", padding at the end", ", padding in the middle", ", padding alone"}

// real tells of each of M tokens whether it is one, by 1 or 0.
func (p padding) real(M int) []int {
	real := make([]int, M)
	for t := range real {
		if p == noPadding || p == paddings[0] && t < (M+1)/2 || p == paddings[1] && (t < M/4 || t >= M-M/3) {
			real[t] = 1
		}
	}
	return real
}

// routing returns a choice of K of E experts for M tokens, the last expert's left out where there are several, and its
// order; padding has none.
func routing(M, E, K int, pad padding) (experts checkInput, rows, source, starts []int) {
	at, chosen, real := make([][]int, E), make([]int, M*K), pad.real(M)
	for i := range chosen {
		if chosen[i] = (i*i/7 + i%K + i/K) % max(E-1, 1); real[i/K] != 0 {
			at[chosen[i]] = append(at[chosen[i]], i)
		}
	}
	rows, starts = slices.Repeat([]int{-1}, M*K), []int{0}
	for _, slots := range at {
		for _, s := range slots {
			rows[s] = len(source)
			source = append(source, s)
		}
		starts = append(starts, len(source))
	}
	return shaped(integers(chosen...), M, K), rows, append(source, slices.Repeat([]int{-1}, M*K-len(source))...), starts
}

func routeChecks(n checkNumbers, M, E, K int, pad padding) []check {
	experts, rows, source, _ := routing(M, E, K, pad)
	place, from := shaped(integers(rows...), M, K), integers(source...)
	logits, weights := n.normal(2, M, E), n.normal32(1, M, K)
	size := fmt.Sprintf("%d of %d experts, %d tokens%s", K, E, M, pad)
	sort := check{kernel: "moe_sort", name: size, build: one(kernel.SortByExpert{Experts: E, Real: pad != noPadding}),
		bounds: []bound{exact, exact, exact}, in: []checkInput{experts}}
	if pad != noPadding {
		sort.in = append(sort.in, integers(pad.real(M)...))
	}
	all := append([]check{sort}, slotChecks(n, M, K, size, weights, place, from)...)
	if pad != noPadding {
		return all
	}
	each := n.normal32(1, E)
	twice := func(b *graph.Builder, in []*graph.Value) []*graph.Value { // the second time in place
		return b.ApplyAll(kernel.WeighExperts{}, b.Apply(kernel.WeighExperts{}, in...), in[1], in[2])
	}
	all = append(all,
		check{kernel: "moe_weigh", name: size, build: one(kernel.WeighExperts{}), bounds: []bound{summed},
			in: []checkInput{weights, experts, each}},
		check{kernel: "moe_weigh", name: size + ", twice", build: twice, bounds: []bound{summed},
			in: []checkInput{weights, experts, each}})
	for _, normalise := range []bool{false, true} {
		route := kernel.RouteExperts{TopK: K, Normalise: normalise}
		grad := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
			return b.ApplyAll(kernel.RouteExpertsGrad{Normalise: normalise}, in[0], b.ApplyAll(route, in[0])[1], in[1])
		}
		all = append(all,
			check{kernel: "moe_route", name: fmt.Sprintf("%s, normalised %v", size, normalise), build: one(route),
				bounds: []bound{summed, exact}, in: []checkInput{logits}},
			check{kernel: "moe_route_grad", name: fmt.Sprintf("%s, normalised %v", size, normalise), build: grad,
				bounds: []bound{rounded}, in: []checkInput{logits, weights}})
	}
	all = append(all, scoreChecks(n, M, K, E, logits, weights, size)...)
	labels := make([]int, M)
	for i := range labels {
		labels[i] = []int{3, kernel.Untrained, 0}[i%3]
	}
	real := make([]int, M)
	for i := range real {
		real[i] = min(i%5*(M-i), 1)
	}
	in := []checkInput{given(nil, 2.5), integers(labels...), given([]int{1}, 0.125), integers(real...)}
	for _, scaled := range []bool{false, true} {
		k := kernel.BalanceLoss{Layers: 2, TopK: min(K, max(E-1, 1)), // a choice of all experts has no gradient
			Coef: 0.25, Scaled: scaled}
		own := in[:4:4]
		if scaled {
			own = append(own, given([]int{3}, 1024, 0, 0))
		}
		in := append(own, logits, n.normal(1, M, E))
		all = append(all, check{kernel: "moe_balance", name: fmt.Sprintf("%s, scaled %v", size, scaled), build: one(k),
			bounds: []bound{summed, rounded, rounded}, in: in})
		if k.Scores = k.TopK > 1; k.Scores { // the weight of one expert is 1
			all = append(all, check{kernel: "moe_balance", name: fmt.Sprintf("%s, of scores, scaled %v", size, scaled),
				build: one(k), bounds: []bound{summed, rounded, rounded}, in: in})
		}
	}
	return all
}

// scoreChecks returns the checks of routers by scores, with as many groups of experts as K of E allow.
func scoreChecks(n checkNumbers, M, K, E int, logits, weights checkInput, size string) (all []check) {
	correction := n.normal32(1, E)
	for _, o := range []kernel.RouteScores{
		{Corrected: true, Weigh: kernel.ScoreWeights{Normalise: true, Epsilon: 1e-20, Scale: 2.5}},
		{Corrected: true, Weigh: kernel.ScoreWeights{Softmax: true, Normalise: true, Least: 1e-12}},
		{Corrected: true, Groups: 4, TopGroups: 2, Best: 2, Weigh: kernel.ScoreWeights{Normalise: true}},
		{Groups: 2, TopGroups: 1, Best: 1, Weigh: kernel.ScoreWeights{Softmax: true, Scale: 16}},
		{Weigh: kernel.ScoreWeights{Normalise: true, Epsilon: 1e-6, Least: 100}},
	} {
		o.TopK = K
		if o.Groups > 1 && (E%o.Groups != 0 || E/o.Groups < o.Best || K > o.TopGroups*(E/o.Groups)) {
			continue
		}
		in := []checkInput{logits}
		if o.Corrected {
			in = append(in, correction)
		}
		grad := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
			last := len(in) - 1
			return b.ApplyAll(kernel.RouteScoresGrad{Weigh: o.Weigh}, in[0], b.ApplyAll(o, in[:last]...)[1], in[last])
		}
		name := fmt.Sprintf("%s, %+v", size, o)
		all = append(all,
			check{kernel: "moe_scores", name: name, build: one(o), bounds: []bound{summed, exact}, in: in},
			check{kernel: "moe_scores_grad", name: name, build: grad, bounds: []bound{rounded},
				in: append(slices.Clone(in), weights)})
	}
	return all
}

// slotChecks returns what moves between M tokens and their slots, of which each has a place among the sorted rows, and
// each row is from one.
func slotChecks(n checkNumbers, M, K int, size string, weights, place, from checkInput) (all []check) {
	many := func(width int) checkInput { return n.normal(1, M*K, width) }
	for _, width := range []int{72, 33} {
		name := fmt.Sprintf("%s, width %d", size, width)
		x, gate := n.normal(1, M, width), n.normal(1, M, 1)
		all = append(all,
			check{kernel: "sigmoid_gate", name: name, build: one(kernel.SigmoidGate{}), bounds: []bound{rounded},
				inPlace: []int{0}, in: []checkInput{x, gate}},
			check{kernel: "sigmoid_gate_grad", name: name, build: one(kernel.SigmoidGateGrad{}),
				bounds: []bound{rounded, rounded}, in: []checkInput{x, gate, x}},
			check{kernel: "moe_gather", name: name, build: one(kernel.GatherTokens{}), bounds: []bound{exact},
				in: []checkInput{n.normal(1, M, width), place, from}},
			check{kernel: "dropout_slots", name: name, build: one(kernel.DropSlots{P: 0.3, Stream: 5 << 33}),
				bounds: []bound{masked}, inPlace: []int{0}, in: []checkInput{many(width), integers(-3, 1<<30+1), from}},
			check{kernel: "moe_sum", name: name, build: one(kernel.SumTokens{}), bounds: []bound{rounded},
				in: []checkInput{many(width), place, from}},
			check{kernel: "moe_scale", name: name, build: one(kernel.ScaleSlots{}), bounds: []bound{rounded},
				inPlace: []int{0}, in: []checkInput{many(width), weights, place, from}},
			check{kernel: "moe_scale_grad", name: name, build: one(kernel.ScaleSlotsGrad{}), bounds: []bound{summed},
				in: []checkInput{many(width), many(width), place, from}})
	}
	return all
}

func expertGemmChecks(n checkNumbers, M, E, K, N, width int, pad padding) []check {
	_, _, source, starts := routing(M, E, K, pad)
	S, first := M*K, integers(starts...)
	size := fmt.Sprintf("%d experts of [%d,%d], %d rows%s", E, N, width, S, pad)
	var all []check
	for _, transB := range []bool{false, true} {
		k := kernel.ExpertMatMul{Experts: E, TransB: transB, Alpha: 0.5}
		x, y, name := []int{S, N}, []int{S, width}, size+", x w"
		if transB {
			x, y, name = y, x, size+", x wᵀ"
		}
		onto := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(kernel.Onto[kernel.ExpertMatMul]{Of: k}, in[0], in[1], in[2],
				g.Apply(kernel.Add{}, in[3], in[4]))
		}
		in := []checkInput{n.normal(1, x...), n.normal(1, E*N, width), first}
		all = append(all,
			check{kernel: "expert_matmul", name: name, build: one(k), bounds: []bound{rounded}, in: in, gemm: true},
			check{kernel: "expert_matmul", name: name + " onto activations", build: onto, bounds: []bound{rounded},
				gemm: true,
				in:   append(in[:3:3], n.normal(8, y...), zeros(y...))})
	}
	grad := kernel.ExpertWeightGrad{Experts: E, Alpha: 0.5}
	a, b := n.normal(1, S, N), n.normal(1, S, width)
	all = append(all,
		check{kernel: "expert_weight_grad", name: size, build: one(grad), bounds: []bound{summed},
			in: []checkInput{a, b, first}, gemm: true},
		check{kernel: "expert_weight_grad", name: size + " onto fp32",
			build: one(kernel.Onto[kernel.ExpertWeightGrad]{Of: grad}), bounds: []bound{summed}, gemm: true,
			in: []checkInput{a, b, first, n.normal32(8, E*N, width).overwritten()}})
	gathered := kernel.ExpertWeightGradGathered{Experts: E, PerToken: K, Alpha: 0.5}
	from := integers(source...)
	all = append(all,
		check{kernel: "expert_weight_gathered", name: size, build: one(gathered), bounds: []bound{summed},
			in: []checkInput{a, n.normal(1, M, width), from, first}, gemm: true},
		check{kernel: "expert_weight_gathered", name: size + " onto fp32",
			build: one(kernel.Onto[kernel.ExpertWeightGradGathered]{Of: gathered}), bounds: []bound{summed}, gemm: true,
			in: []checkInput{a, n.normal(1, M, width), from, first, n.normal32(8, E*N, width).overwritten()}})
	for i := range 4 {
		cfg := quant.Config{Bits: 4, Type: []string{"nf4", "fp4"}[i/2], BlockSize: 64, DoubleQuant: i%2 == 1}
		parts, dequantised := packedExperts(n, E, N, width, cfg)
		all = append(all, packedExpertChecks(n, fmt.Sprintf("%s, %s nested %v", size, cfg.Type, cfg.DoubleQuant), S,
			starts, parts, dequantised, func(transposed bool) (kernel.Kernel, kernel.Kernel) {
				k := kernel.ExpertMatMulNF4{Experts: E, N: N, K: width, Nested: cfg.DoubleQuant, Transposed: transposed,
					FP4: cfg.Type == "fp4"}
				return k, kernel.Onto[kernel.ExpertMatMulNF4]{Of: k}
			}, N, width)...)
	}
	eight := quant.DefaultOf("int8")
	parts, dequantised := packedExperts(n, E, N, width, eight)
	all = append(all, packedExpertChecks(n, size, S, starts, parts, dequantised,
		func(transposed bool) (kernel.Kernel, kernel.Kernel) {
			k := kernel.ExpertMatMulInt8{Experts: E, N: N, K: width, Transposed: transposed}
			return k, kernel.Onto[kernel.ExpertMatMulInt8]{Of: k}
		}, N, width)...)
	if width%quant.MXFP4Block == 0 {
		parts, dequantised := mxfp4Experts(n, E, N, width)
		all = append(all, packedExpertChecks(n, size, S, starts, parts, dequantised,
			func(transposed bool) (kernel.Kernel, kernel.Kernel) {
				k := kernel.ExpertMatMulMXFP4{Experts: E, N: N, K: width, Transposed: transposed}
				return k, kernel.Onto[kernel.ExpertMatMulMXFP4]{Of: k}
			}, N, width)...)
	}
	return all
}

// packedExpertChecks are products of S rows, of which expert e has those from starts[e] on, with matrices [N,width]
// that stay packed: their parts, each the matrices' one after the other, and the numbers that they stand for. Rows
// behind the last expert's are with none.
func packedExpertChecks(n checkNumbers, size string, S int, starts []int, parts []checkInput, dequantised [][]float32,
	kernels func(transposed bool) (k, onto kernel.Kernel), N, width int) []check {
	var all []check
	for _, transposed := range []bool{false, true} {
		k, accumulate := kernels(transposed)
		x, y := []int{S, width}, []int{S, N}
		if transposed {
			x, y = y, x
		}
		in := append([]checkInput{n.normal(1, x...), integers(starts...)}, parts...)
		last := len(in)
		plain := func(f format, v [][]float64) [][]float64 {
			var all []float64
			for e, numbers := range dequantised {
				if starts[e+1] == starts[e] {
					continue
				}
				w := make([]float64, len(numbers))
				for i, x := range numbers {
					w[i] = f.round(float64(x)) // as the device dequantises it
				}
				all = append(all, plainGEMM(f, v[0][starts[e]*x[1]:], w, starts[e+1]-starts[e], y[1], x[1], width,
					transposed)...)
			}
			all = append(all, make([]float64, y[0]*y[1]-len(all))...) // rows of no expert
			if len(v) > last {
				axpy(all, 1, v[last])
				f.all(all)
			}
			return [][]float64{all}
		}
		onto := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(accumulate, append(in[:last:last], g.Apply(kernel.Add{}, in[last], in[last+1]))...)
		}
		name := fmt.Sprintf("%s, transposed %v", size, transposed)
		all = append(all,
			check{kernel: k.Name(), name: name, build: one(k), bounds: []bound{rounded}, in: in, gemm: true,
				plain: plain},
			check{kernel: k.Name(), name: name + " onto activations", build: onto, bounds: []bound{rounded}, gemm: true,
				plain: plain,
				in:    append(in[:last:last], n.normal(2, y...), zeros(y...))})
	}
	return all
}

// mxfp4Experts returns E matrices in MXFP4, as packedExperts are in NF4.
func mxfp4Experts(n checkNumbers, E, N, K int) (parts []checkInput, dequantised [][]float32) {
	size := E * N * K
	bytes := func(count int, value func(x float64) int) (checkInput, []byte) {
		raw := make([]byte, count)
		for i, x := range n.normal32(1, count).values {
			raw[i] = byte(value(x))
		}
		return packedInputs(quant.Packed{Codes: raw})[0], raw
	}
	codes, rawCodes := bytes(size/2, func(x float64) int { return int(x * 100) })
	scales, rawScales := bytes(size/quant.MXFP4Block, func(x float64) int { return 124 + int(x) })
	for e := range E {
		numbers := make([]float32, N*K)
		quant.MXFP4{Rows: E * N, Cols: K, Codes: rawCodes, Scales: rawScales}.DequantiseRange(numbers, e*N*K, (e+1)*N*K)
		dequantised = append(dequantised, numbers)
	}
	return []checkInput{codes, scales}, dequantised
}

// packedExperts returns E matrices in 4 bits: the parts, each the matrices' one after the other, and the numbers they
// stand for.
func packedExperts(n checkNumbers, E, N, K int, cfg quant.Config) (parts []checkInput, dequantised [][]float32) {
	for range E {
		row, numbers := make([]float32, N*K), make([]float32, N*K)
		for i, x := range n.normal32(0.5, N, K).values {
			row[i] = float32(x)
		}
		packed, err := quant.Quantise(row, N, K, cfg)
		if err != nil {
			panic(err) // a broken list of checks
		}
		packed.Dequantise(numbers)
		dequantised = append(dequantised, numbers)
		for i, x := range packedInputs(packed) {
			if i == len(parts) {
				parts = append(parts, checkInput{typ: x.typ})
			}
			parts[i].values = append(parts[i].values, x.values...)
			parts[i].shape = []int{len(parts[i].values)}
		}
	}
	return parts, dequantised
}
