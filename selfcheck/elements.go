package selfcheck

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// The sizes of checks: one row, odd numbers of rows around the tiles', widths that are no power of two.
var (
	checkRows   = []int{1, 7, 65, 129}
	checkWidths = []int{64, 172, 576}
	checkHeads  = []int{8, 32, 40, 64, 128}
)

// elementChecks returns the kernels that work element by element or row by row.
func elementChecks() []check {
	n := newNumbers()
	var all []check
	for _, M := range checkRows {
		for _, C := range checkWidths {
			all = append(all, rowChecks(n, M, C)...)
		}
	}
	for _, p := range []float64{0.05, 0.5, 0.9} {
		k := kernel.Dropout{P: p, Stream: 7 << 32}
		all = append(all, check{kernel: "dropout", name: fmt.Sprintf("probability %v, [65,173]", p), build: one(k),
			bounds: []bound{masked}, inPlace: []int{0},
			in: []checkInput{n.normal(1, 65, 173), integers(-3, 1<<30+1)}})
	}
	for _, at := range [][]int{{0, 1, 2, 3, 4}, {8, 0, 4, 2, 6}, {6, 7, 8, 9, 10}, {-1, 3, -1, 5, 1 << 30}} {
		all = append(all, check{kernel: "kvappend", name: fmt.Sprintf("5 rows to %v of 9, width 40", at),
			build: one(kernel.KVAppend{}), bounds: []bound{exact},
			in: []checkInput{n.normal(1, 9, 40).overwritten(), n.normal(1, 5, 40), integers(at...)}})
	}
	for _, M := range checkRows {
		table, positions := angles(3*M, 64)
		all = append(all, check{kernel: "axis_angles", name: fmt.Sprintf("%d tokens, 32 frequencies", M),
			build: one(kernel.AxisAngles{Rows: 10, Columns: 9}), bounds: []bound{exact},
			in: []checkInput{table, positions}})
	}
	for _, D := range []int{8, 12, 96, 128, 256} {
		all = append(all, headNormChecks(n, 1, 33, D)...)
		all = append(all, headNormChecks(n, 65, 3, D)...)
	}
	for _, D := range checkHeads {
		for _, M := range checkRows {
			all = append(all, ropeCheck(n, M, kernel.RoPE{Heads: 3, HeadDim: D}, D),
				ropeCheck(n, M, kernel.RoPE{Heads: 2, HeadDim: D, Inverse: true}, D))
		}
	}
	n = newNumbers()
	for _, D := range checkHeads {
		for _, M := range checkRows {
			all = append(all, ropeCheck(n, M, kernel.RoPE{Heads: 3, HeadDim: D, Interleaved: true}, D),
				ropeCheck(n, M, kernel.RoPE{Heads: 2, Rest: 1, HeadDim: D, Interleaved: true, Inverse: true},
					D/4*3/2*2))
		}
	}
	n = newNumbers()
	for _, M := range checkRows {
		for _, interleaved := range []bool{false, true} {
			k := kernel.RoPE{Heads: 3, HeadDim: 24, From: 8, Interleaved: interleaved}
			all = append(all, ropeCheck(n, M, k, 16))
			k = kernel.RoPE{Heads: 2, Rest: 1, HeadDim: 192, From: 128, Inverse: true, Interleaved: interleaved}
			all = append(all, ropeCheck(n, M, k, 64))
		}
	}
	n = newNumbers()
	for _, M := range checkRows {
		for _, C := range checkWidths {
			all = append(all, gemmaChecks(n, M, C)...)
		}
	}
	n = newNumbers()
	for _, M := range checkRows {
		for _, C := range checkWidths {
			size := fmt.Sprintf("[%d,%d]", M, C)
			all = append(all, check{kernel: "relu2", name: size, build: one(kernel.ReLU2{}), bounds: []bound{rounded},
				inPlace: []int{0}, in: []checkInput{n.normal(2, M, C)}},
				check{kernel: "relu2_grad", name: size, build: one(kernel.ReLU2Grad{}), bounds: []bound{rounded},
					inPlace: []int{0}, in: []checkInput{n.normal(2, M, C), n.normal(1, M, C)}})
		}
	}
	return all
}

func rowChecks(n checkNumbers, M, C int) []check {
	size := fmt.Sprintf("[%d,%d]", M, C)
	x := func() checkInput { return n.normal(1, M, C) }
	weight := func() checkInput { return n.normal(1, C) }
	ids := make([]int, M)
	for i := range ids {
		ids[i] = (i*37 + 49) % 50
	}
	embed := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		return b.ApplyAll(kernel.Embedding{Float: b.Float()}, in...)
	}
	norm := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		rstd := b.ApplyAll(kernel.RMSNorm{Eps: 1e-5}, in[0], in[1])[1]
		return b.ApplyAll(kernel.RMSNormGrad{}, in[0], in[1], rstd, in[2])
	}
	onto := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		return b.ApplyAll(kernel.AddTo{}, b.Apply(kernel.Add{}, in[0], in[1]), in[2])
	}
	// A GPU's plan makes kernel.AddRMSNorm{} of the one, kernel.RMSNormGradTo{} of the other.
	sum := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		s := b.Apply(kernel.Add{}, in[0], in[1])
		return append([]*graph.Value{s}, b.ApplyAll(kernel.RMSNorm{Eps: 1e-5}, s, in[2])...)
	}
	// Both terms are made for the sum alone, which gets no low bits then.
	alone := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		s := b.Apply(kernel.Add{}, b.Apply(kernel.Scale{By: 2}, in[0]), b.Apply(kernel.Scale{By: 0.5}, in[1]))
		return b.ApplyAll(kernel.RMSNorm{Eps: 1e-5}, s, in[2])[:1]
	}
	// Sums of sums, which bf16 alone would miss by three times one rounding. Where something else reads a sum before
	// its norm, a GPU's plan has kernel.AddLowBits{} and kernel.RMSNormLowBits{} instead.
	const depth = 8
	terms := []checkInput{x(), weight()}
	for range depth {
		terms = append(terms, n.normal(0.25, M, C))
	}
	stream := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		x, read := in[0], []*graph.Value{}
		var norm []*graph.Value
		for _, r := range in[2 : 2+depth] {
			x = b.Apply(kernel.Add{}, x, r)
			for _, zero := range in[2+depth:] {
				read = append(read, b.Apply(kernel.Add{}, x, zero))
			}
			norm = b.ApplyAll(kernel.RMSNorm{Eps: 1e-5}, x, in[1])
			read = append(read, norm[0])
		}
		return append(read, x, norm[1])
	}
	apart := append(slices.Repeat([]bound{rounded}, 2*depth+1), single)
	residual := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		other := b.Apply(kernel.Add{}, in[3], in[4])
		return []*graph.Value{b.Apply(kernel.Add{}, other, norm(b, in)[0])}
	}
	return []check{
		{kernel: "add", name: size, build: one(kernel.Add{}), bounds: []bound{rounded}, inPlace: []int{0},
			in: []checkInput{x(), x()}},
		{kernel: "add", name: "to " + size + " in fp32", build: one(kernel.AddTo{}), bounds: []bound{single},
			in: []checkInput{n.normal32(1, M, C).overwritten(), n.normal32(1, M, C)}},
		{kernel: "add", name: "to " + size + " in activations", build: onto, bounds: []bound{rounded},
			in: []checkInput{x(), zeros(M, C), x()}},
		{kernel: "bias", name: size, build: one(kernel.AddBias{}), bounds: []bound{rounded}, inPlace: []int{0},
			in: []checkInput{x(), weight()}},
		{kernel: "dropout", name: size, build: one(kernel.Dropout{P: 0.1, Stream: 3}), bounds: []bound{masked},
			inPlace: []int{0}, in: []checkInput{x(), integers(42, 17)}},
		{kernel: "scale", name: size, build: one(kernel.Scale{By: -0.37}), bounds: []bound{rounded}, inPlace: []int{0},
			in: []checkInput{x()}},
		{kernel: "rmsnorm", name: size, build: one(kernel.RMSNorm{Eps: 1e-5}), bounds: []bound{rounded, single},
			in: []checkInput{x(), weight()}},
		{kernel: "rmsnorm_grad", name: size, build: norm, bounds: []bound{rounded}, inPlace: []int{2},
			in: []checkInput{x(), weight(), x()}},
		{kernel: "rmsnorm", name: size + " of a sum", build: sum, bounds: []bound{rounded, rounded, rounded},
			in: []checkInput{x(), x(), weight()}},
		{kernel: "rmsnorm", name: size + " of a sum of results", build: alone, bounds: []bound{rounded},
			in: []checkInput{x(), x(), weight()}},
		{kernel: "rmsnorm", name: size + fmt.Sprintf(" of %d sums", depth), build: stream, bounds: apart[depth:],
			in: terms},
		{kernel: "rmsnorm", name: size + fmt.Sprintf(" of %d sums, apart", depth), build: stream, bounds: apart,
			in: append(slices.Clone(terms), zeros(M, C))},
		{kernel: "rmsnorm_grad", name: size + " onto activations", build: residual, bounds: []bound{rounded},
			in: []checkInput{x(), weight(), x(), x(), zeros(M, C)}},
		{kernel: "swiglu", name: size, build: one(kernel.SwiGLU{}), bounds: []bound{rounded}, inPlace: []int{0},
			in: []checkInput{n.normal(3, M, C), x()}},
		{kernel: "swiglu_grad", name: size, build: one(kernel.SwiGLUGrad{}), bounds: []bound{rounded, rounded},
			inPlace: []int{0, 1}, in: []checkInput{n.normal(3, M, C), x(), x()}},
		{kernel: "embedding", name: size + " of 50", build: embed, bounds: []bound{exact},
			in: []checkInput{integers(ids...), n.normal(1, 50, C)}},
		{kernel: "zero", name: size, build: one(kernel.Zero{}), bounds: []bound{exact},
			in: []checkInput{x().overwritten()}},
	}
}

// gemmaChecks returns the kernels and attributes that Gemma brought.
func gemmaChecks(n checkNumbers, M, C int) []check {
	size := fmt.Sprintf("[%d,%d]", M, C)
	x := func() checkInput { return n.normal(1, M, C) }
	weight := func() checkInput { return n.normal(1, C) }
	ids := make([]int, M)
	for i := range ids {
		ids[i] = (i*37 + 49) % 50
	}
	scaled := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		return b.ApplyAll(kernel.Embedding{Float: b.Float(), Scale: 7.5}, in...)
	}
	plusOne := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		y := b.ApplyAll(kernel.RMSNorm{Eps: 1e-5, PlusOne: true}, in[0], in[1])
		return append(slices.Clip(y), b.ApplyAll(kernel.RMSNormGrad{PlusOne: true}, in[0], in[1], y[1], in[2])...)
	}
	plusOneHeads := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		y := b.ApplyAll(kernel.RMSNorm{Eps: 1e-5, Heads: 3, PlusOne: true}, in[0], in[1])
		return append(slices.Clip(y), b.ApplyAll(kernel.RMSNormGrad{Heads: 3, PlusOne: true}, in[0], in[1], y[1],
			in[2])...)
	}
	sumPlusOne := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		s := b.Apply(kernel.Add{}, in[0], in[1])
		return append([]*graph.Value{s}, b.ApplyAll(kernel.RMSNorm{Eps: 1e-5, PlusOne: true}, s, in[2])...)
	}
	return []check{
		{kernel: "geglu", name: size, build: one(kernel.GeGLU{}), bounds: []bound{rounded}, inPlace: []int{0},
			in: []checkInput{n.normal(3, M, C), x()}},
		{kernel: "geglu_grad", name: size, build: one(kernel.GeGLUGrad{}), bounds: []bound{rounded, rounded},
			inPlace: []int{0, 1}, in: []checkInput{n.normal(3, M, C), x(), x()}},
		{kernel: "geglu", name: size + " exact", build: one(kernel.GeGLU{Erf: true}), bounds: []bound{rounded},
			inPlace: []int{0}, in: []checkInput{n.normal(3, M, C), x()}},
		{kernel: "geglu_grad", name: size + " exact", build: one(kernel.GeGLUGrad{Erf: true}),
			bounds: []bound{rounded, rounded}, inPlace: []int{0, 1}, in: []checkInput{n.normal(3, M, C), x(), x()}},
		{kernel: "softcap", name: size, build: one(kernel.SoftCap{Cap: 1.5}), bounds: []bound{single},
			in: []checkInput{n.normal32(1, M, C)}},
		{kernel: "rmsnorm", name: size + " plus one", build: plusOne, bounds: []bound{rounded, single, rounded},
			in: []checkInput{x(), weight(), x()}},
		{kernel: "rmsnorm", name: size + " of a sum plus one", build: sumPlusOne,
			bounds: []bound{rounded, rounded, rounded}, in: []checkInput{x(), x(), weight()}},
		{kernel: "rmsnorm", name: fmt.Sprintf("%d rows of 3 heads of %d", M, C), build: plusOneHeads,
			bounds: []bound{rounded, single, rounded},
			in:     []checkInput{n.normal(1, M, 3*C), weight(), n.normal(1, M, 3*C)}},
		{kernel: "embedding", name: size + " of 50, scaled", build: scaled, bounds: []bound{rounded},
			in: []checkInput{integers(ids...), n.normal(1, 50, C)}},
	}
}

// headNormChecks are of norms of heads, of sizes that device code has a form of its own for and of others.
func headNormChecks(n checkNumbers, M, heads, D int) []check {
	k := kernel.RMSNorm{Eps: 1e-5, Heads: heads}
	x := func() checkInput { return n.normal(1, M, heads*D) }
	gradient := func(b *graph.Builder, in []*graph.Value) *graph.Value {
		return b.Apply(kernel.RMSNormGrad{Heads: heads}, in[0], in[1], b.ApplyAll(k, in[0], in[1])[1], in[2])
	}
	grad := func(b *graph.Builder, in []*graph.Value) []*graph.Value { return []*graph.Value{gradient(b, in)} }
	// A GPU's plan makes kernel.RMSNormGradTo{} of it.
	onto := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		other := b.Apply(kernel.Add{}, in[3], in[4])
		return []*graph.Value{b.Apply(kernel.Add{}, other, gradient(b, in))}
	}
	// And kernel.RMSNormRoPE{} and kernel.RMSNormRoPEGrad{} of these.
	turned := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		out := b.ApplyAll(k, in[0], in[1])
		return []*graph.Value{b.Apply(kernel.RoPE{Heads: heads}, out[0], in[2], in[3]), out[1]}
	}
	turnedGrad := func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		back := b.Apply(kernel.RoPE{Heads: heads, Inverse: true}, in[2], in[3], in[4])
		return []*graph.Value{b.Apply(kernel.RMSNormGrad{Heads: heads}, in[0], in[1], b.ApplyAll(k, in[0], in[1])[1],
			back)}
	}
	table, positions := angles(M, D)
	name, w := fmt.Sprintf("%d heads of %d, %d rows", heads, D, M), n.normal(1, D)
	return []check{
		{kernel: "rmsnorm", name: name, build: one(k), bounds: []bound{rounded, single}, in: []checkInput{x(), w}},
		{kernel: "rmsnorm_grad", name: name, build: grad, bounds: []bound{rounded}, inPlace: []int{2},
			in: []checkInput{x(), w, x()}},
		{kernel: "rmsnorm_grad", name: name + ", onto activations", build: onto, bounds: []bound{rounded},
			in: []checkInput{x(), w, x(), x(), zeros(M, heads*D)}},
		{kernel: "rmsnorm_rope", name: name, build: turned, bounds: []bound{rounded, single},
			in: []checkInput{x(), w, table, positions}},
		{kernel: "rmsnorm_rope_grad", name: name, build: turnedGrad, bounds: []bound{rounded},
			in: []checkInput{x(), w, x(), table, positions}},
	}
}

// angles returns a table of cosines and sines for 200 positions of R columns, and positions of M rows.
func angles(M, R int) (checkInput, checkInput) {
	const P = 200
	table, positions := make([]float64, P*R), make([]int, M)
	for p := range P {
		for i := range R / 2 {
			sin, cos := math.Sincos(float64(p) * math.Pow(10000, -2*float64(i)/float64(R)))
			table[p*R+i], table[p*R+R/2+i] = cos, sin
		}
	}
	for i := range positions {
		positions[i] = (i*37 + 5) % P
	}
	return given([]int{P, R}, table...), integers(positions...)
}

// ropeCheck is of heads of which the first R elements are rotated.
func ropeCheck(n checkNumbers, M int, k kernel.RoPE, R int) check {
	table, positions := angles(M, R)
	name := fmt.Sprintf("%d heads of %d, %d rows", k.Heads, k.HeadDim, M)
	if k.Rest > 0 {
		name += fmt.Sprintf(" with %d more heads, the first %d columns", k.Rest, R)
	}
	if k.From > 0 {
		name += fmt.Sprintf(", from column %d on", k.From)
	}
	if k.Inverse {
		name += ", inverse"
	}
	if k.Interleaved {
		name += ", neighbours"
	}
	return check{kernel: "rope", name: name, build: one(k), bounds: []bound{rounded}, inPlace: []int{0},
		in: []checkInput{n.normal(1, M, (k.Heads+k.Rest)*k.HeadDim), table, positions}}
}

// updateChecks returns the kernels of the optimizer's step.
func updateChecks() []check {
	n := newNumbers()
	var all []check
	for _, P := range []int{1, 33, 1000, 300007} {
		for _, limit := range []float64{0, 1, 1e9} {
			all = append(all, check{kernel: "gradnorm", name: fmt.Sprintf("%d numbers, limit %v", P, limit),
				build:  one(kernel.GradNorm{MaxNorm: limit}),
				bounds: []bound{single}, in: []checkInput{n.normal32(0.3, P), given([]int{}, 2),
					n.normal32(1, 2).overwritten()}},
				check{kernel: "gradnorm", name: fmt.Sprintf("%d scaled numbers, limit %v", P, limit),
					build:  one(kernel.GradNorm{MaxNorm: limit, Scaled: true}),
					bounds: []bound{single}, in: []checkInput{n.normal32(3000, P), given([]int{}, 2),
						n.normal32(1, 2).overwritten(), given([]int{3}, 1<<14, 7, 1)}})
		}
		const lr, step, beta1, beta2 = 1e-2, 3, 0.9, 0.95
		v := n.normal32(1, P)
		for i := range v.values {
			v.values[i] *= v.values[i] // moments of squares are not negative
			v.values[i] = float64(float32(v.values[i]))
		}
		// The device works the corrections out of the step's number, whose bits are in the last place.
		hyper := given([]int{4}, lr, 1-math.Pow(beta1, step), 1-math.Pow(beta2, step),
			float64(math.Float32frombits(step)))
		all = append(all, check{kernel: "adamw", name: fmt.Sprintf("%d numbers", P),
			build:  one(kernel.AdamW{Beta1: beta1, Beta2: beta2, Eps: 1e-6, WeightDecay: 0.1}),
			bounds: []bound{single, single, single},
			in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, P), n.normal32(0.1, P).overwritten(),
				v.overwritten(), given([]int{2}, 3, 0.25), hyper}},
			check{kernel: "adamw", name: fmt.Sprintf("%d numbers after 2 skipped steps", P),
				bounds: []bound{single, single, single},
				build:  one(kernel.AdamW{Beta1: beta1, Beta2: beta2, Eps: 1e-6, WeightDecay: 0.1, Scaled: true}),
				in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1<<14, P), n.normal32(0.1, P).overwritten(),
					v.overwritten(), given([]int{2}, 3, 0.25/(1<<14)),
					given([]int{4}, lr, 0, 0, float64(math.Float32frombits(step+2))), given([]int{3}, 1<<14, 7, 2)}})
	}
	n = newNumbers()
	for _, P := range []int{1, 33, 1000, 300007} {
		all = append(all, check{kernel: "inorder", name: fmt.Sprintf("%d numbers of 5 ranks", P),
			build: one(kernel.AddInOrder{}), bounds: []bound{single},
			in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, 5, P)}},
			check{kernel: "exchange", name: fmt.Sprintf("%d numbers, alone", P), build: one(kernel.Exchange{World: 1}),
				bounds: []bound{exact, exact, exact},
				in:     []checkInput{n.normal32(1, (P+3)&^3), given([]int{}, 2), given([]int{1}, 1)}},
			check{kernel: "exchange", name: fmt.Sprintf("%d numbers gathered, alone", P),
				build: one(kernel.GatherSlices{World: 1}), bounds: []bound{exact},
				in: []checkInput{n.normal32(1, P).overwritten()}},
			check{kernel: "slices", name: fmt.Sprintf("%d numbers taken, alone", P),
				build:  one(kernel.TakeSlice{Slices: kernel.Slices{World: 1, Unit: 4}}),
				bounds: []bound{exact}, in: []checkInput{n.normal32(1, P)}},
			check{kernel: "slices", name: fmt.Sprintf("%d numbers spread, alone", P),
				build:  one(kernel.SpreadSlices{Slices: kernel.Slices{World: 1, Unit: 4}}),
				bounds: []bound{exact}, in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, (P+3)&^3)}},
			check{kernel: "allgather", name: fmt.Sprintf("%d numbers, alone", P), bounds: []bound{exact},
				in:    []checkInput{bytesOf(P)},
				build: one(kernel.AllGather{World: 1, Parts: []kernel.Type{kernel.T(kernel.F32, P)}, At: []int64{0}})})
	}
	n = newNumbers()
	for _, P := range []int{1, 33, 1000, 300007} {
		all = append(all, check{kernel: "lion", name: fmt.Sprintf("%d numbers", P),
			build:  one(kernel.Lion{Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1}),
			bounds: []bound{single, single},
			in: []checkInput{n.normal32(1, P).overwritten(), n.normal32(1, P), n.normal32(0.1, P).overwritten(),
				given([]int{2}, 3, 0.25), given([]int{4}, 1e-2, 0, 0, 0)}})
	}
	all = append(append(all, updateChecks8Bit()...), otherUpdateChecks()...)
	nan, inf := math.NaN(), math.Inf(1)
	for i, x := range [][3]float64{{1024, 0.5, 2}, {1024, nan, 2}, {1024, nan, nan}, {1024, 0.5, inf}, {1, nan, 2},
		{0x1p100, 0.5, 2}} {
		for _, interval := range []int{4, 5} {
			all = append(all, check{kernel: "lossscale", name: fmt.Sprintf("case %d of interval %d", i, interval),
				build: one(kernel.LossScale{Interval: interval}), bounds: []bound{exact},
				in: []checkInput{given([]int{3}, x[0], 3, 6).overwritten(), given([]int{2}, 3, x[1]),
					given([]int{}, x[2])}})
		}
	}
	return all
}

// bytesOf returns so many numbers as float32 in memory, byte by byte.
func bytesOf(numbers int) checkInput {
	x := checkInput{typ: kernel.U8, shape: []int{4 * numbers}, values: make([]float64, 4*numbers)}
	for i := range numbers {
		for k, b := range binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(i%1009)-504)) {
			x.values[4*i+k] = float64(b)
		}
	}
	return x
}
