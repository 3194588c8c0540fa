package kernel

import (
	"fmt"
	"math"
)

// ContrastiveLoss computes the loss of vectors of texts against the other texts of their batch (van den Oord et al.
// 2018; MultipleNegativesRankingLoss of sentence-transformers), with the gradient for the vectors.
//
//	vectors f[S,C], targets i32[S], scale f[1], (scaling if Scaled)
//	  -> loss f[], (dvectors f[S,C] if Grad), right f[], own f[], others f[]
//	loss = scale * sum over anchors a of log sum over candidates c of exp(z_ac) - z_a,target(a)
//	z_ac = similarity(vectors_a, vectors_c) / Temperature
//
// targets says what each sequence is: 0 or more for an anchor, the sequence of its target, which must be a candidate;
// ContrastCandidate for a candidate of every anchor; any other negative number for a sequence that does not count. An
// anchor whose target is no candidate does not count either. The similarity is the cosine of the angle, or with Dot the
// dot product; a vector whose length is below 1e-12 has the cosine 0 to all others and no gradient. The last three
// outputs are sums over anchors that nothing scales: one where no candidate is more similar than the target, the
// similarity of the target, and the mean similarity of the other candidates, which is 0 without any. All arithmetic is
// in float64.
type ContrastiveLoss struct {
	Temperature float64 // divides similarities; above 0
	Dot         bool    // the similarity is the dot product
	Grad        bool    // computes dvectors
	Scaled      bool    // multiplies the gradient, but not the loss, by the loss scale
}

// ContrastCandidate is the target of a sequence that every anchor of the batch is compared with.
const ContrastCandidate = -1

// contrastSums is the number of sums over anchors beside the loss.
const contrastSums = 3

// shortestVector is the length below which a vector has no direction.
const shortestVector = 1e-12

// Name returns "contrastive_loss".
func (ContrastiveLoss) Name() string { return "contrastive_loss" }

func (o ContrastiveLoss) patterns() []string {
	return withScaling(o.Scaled, "f[S,C]", "i32[S]", "f[1]")
}

// Shape returns the types of the loss, the gradient and the three sums.
func (o ContrastiveLoss) Shape(in []Type) ([]Type, error) {
	if _, err := Want(in, o.patterns()...); err != nil {
		return nil, err
	}
	for i := 2; i < len(in); i++ {
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if !(o.Temperature > 0) || math.IsInf(o.Temperature, 0) {
		return nil, fmt.Errorf("attribute Temperature is %v, want a finite number above 0", o.Temperature)
	}
	one := T(in[0].DType)
	out := []Type{one}
	if o.Grad {
		out = append(out, in[0])
	}
	return append(out, one, one, one), nil
}

// Terminal marks the end of a graph: the gradient belongs to the loss itself.
func (ContrastiveLoss) Terminal() {}

// Grads returns the gradient that the forward pass computed.
func (o ContrastiveLoss) Grads() Backward {
	grads := make([]Ref, len(o.patterns()))
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

// contrastNumbers is the number of fp64 numbers that each sequence has in scratch memory beside its similarities: its
// length, the logarithm of its sum of exponentials, and its four parts of the sums.
const contrastNumbers = 6

// contrastScratch returns the scratch bytes of S sequences: the similarities [S,S] and the numbers of each, in fp64.
func contrastScratch(S int) int64 { return 8 * int64(S) * int64(S+contrastNumbers) }

// Scratch holds similarities in float64.
func (ContrastiveLoss) Scratch(in []Type, _ int) int64 { return contrastScratch(in[0].Shape[0]) }

// ScratchGPU holds similarities in fp64 on a device.
func (ContrastiveLoss) ScratchGPU(in, _ []Type, _ int) int64 { return contrastScratch(in[0].Shape[0]) }

// CPU binds the float64 or the float32 body.
func (o ContrastiveLoss) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindContrast[float32], bindContrast[float64])(c, o, in, out)
}

// contrast is a bound ContrastiveLoss.
type contrast[F Float] struct {
	ContrastiveLoss
	vectors, dvectors []F // [S,C]; no dvectors = no gradient is wanted
	targets           []int32
	scale, scaling    []F
	similar           []float64 // [S,S], of anchors to candidates
	length, logSum    []float64 // [S]
	parts             [1 + contrastSums][]float64
	S, C              int
}

func bindContrast[F Float](c *CPU, o ContrastiveLoss, in, out []Tensor) func() {
	S, C := in[0].Shape[0], in[0].Shape[1]
	b := &contrast[F]{ContrastiveLoss: o, vectors: Floats[F](in[0]), targets: in[1].I32(), scale: Floats[F](in[2]),
		scaling: lossScaling[F](o.Scaled, in, len(in)-1), S: S, C: C}
	if o.Grad {
		b.dvectors = Floats[F](out[1])
	}
	numbers := carve[float64](c.Scratch, S*(S+contrastNumbers))
	next := func(n int) (part []float64) { part, numbers = numbers[:n], numbers[n:]; return part }
	b.similar, b.length, b.logSum = next(S*S), next(S), next(S)
	for i := range b.parts {
		b.parts[i] = next(S)
	}
	grain := rowGrain(S * C)
	lengths := c.Range(S, rowGrain(C), b.each(b.measure))
	anchors := c.Range(S, grain, b.each(b.anchor))
	gradients := c.Range(S, grain, b.each(b.gradient))
	results := out[len(out)-contrastSums:]
	return func() {
		lengths()
		anchors()
		if o.Grad {
			gradients()
		}
		for i, part := range b.parts {
			sum := 0.
			for _, x := range part {
				sum += x
			}
			if i == 0 {
				Floats[F](out[0])[0] = F(sum * float64(b.scale[0]))
			} else {
				Floats[F](results[i-1])[0] = F(sum)
			}
		}
	}
}

// each returns the work of a range of sequences.
func (b *contrast[F]) each(work func(s int)) func(lo, hi int) {
	return func(lo, hi int) {
		for s := lo; s < hi; s++ {
			work(s)
		}
	}
}

// target returns the target of an anchor that counts, and whether sequence s is one.
func (b *contrast[F]) target(s int) (t int, anchor bool) {
	t = int(b.targets[s])
	return t, t >= 0 && t < b.S && b.targets[t] == ContrastCandidate
}

func (b *contrast[F]) dot(s, t int) (sum float64) {
	x, y := b.vectors[s*b.C:][:b.C], b.vectors[t*b.C:][:b.C]
	for j, v := range x {
		sum += float64(v) * float64(y[j])
	}
	return sum
}

// measure writes the number that the vector of a sequence is divided by: its length, or 1 for dot products. It is 0 for
// a vector without a direction.
func (b *contrast[F]) measure(s int) {
	if b.length[s] = 1; b.Dot {
		return
	}
	if b.length[s] = math.Sqrt(b.dot(s, s)); b.length[s] < shortestVector {
		b.length[s] = 0
	}
}

// inverse returns 1/x, and 0 for 0.
func inverse(x float64) float64 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

// anchor computes the similarities of an anchor and its parts of the sums.
func (b *contrast[F]) anchor(s int) {
	for i := range b.parts {
		b.parts[i][s] = 0
	}
	target, ok := b.target(s)
	if !ok {
		return
	}
	row, top, candidates := b.similar[s*b.S:][:b.S], math.Inf(-1), 0
	for c := range row {
		if b.targets[c] != ContrastCandidate {
			continue
		}
		row[c] = b.dot(s, c) * inverse(b.length[s]) * inverse(b.length[c])
		top, candidates = math.Max(top, row[c]), candidates+1
	}
	sum, others := 0., 0.
	for c, x := range row {
		if b.targets[c] == ContrastCandidate {
			sum += math.Exp((x - top) / b.Temperature)
			if c != target {
				others += x
			}
		}
	}
	b.logSum[s] = top/b.Temperature + math.Log(sum)
	b.parts[0][s] = b.logSum[s] - row[target]/b.Temperature
	if row[target] >= top {
		b.parts[1][s] = 1
	}
	b.parts[2][s] = row[target]
	if candidates > 1 {
		b.parts[3][s] = others / float64(candidates-1)
	}
}

// slope returns the gradient of the loss for the similarity of an anchor to a candidate; 0 if they are none.
func (b *contrast[F]) slope(a, c int) float64 {
	target, ok := b.target(a)
	if !ok || b.targets[c] != ContrastCandidate {
		return 0
	}
	g := math.Exp(b.similar[a*b.S+c]/b.Temperature - b.logSum[a])
	if c == target {
		g--
	}
	return g * float64(b.scale[0]) * float64(b.scaling[LossScaleNow]) / b.Temperature
}

// pair returns the slope of an anchor and a candidate, and their similarity; isAnchor says that s is the anchor.
func (b *contrast[F]) pair(s, t int, isAnchor bool) (slope, similar float64) {
	if !isAnchor {
		s, t = t, s
	}
	return b.slope(s, t), b.similar[s*b.S+t]
}

// contrastColumns is the number of columns of a gradient that are summed at a time.
const contrastColumns = 256

// gradient writes the gradient of the vector of a sequence.
func (b *contrast[F]) gradient(s int) {
	row := b.dvectors[s*b.C:][:b.C]
	_, isAnchor := b.target(s)
	if !isAnchor && b.targets[s] != ContrastCandidate || b.length[s] == 0 {
		clear(row)
		return
	}
	along := 0. // the part of the gradient that would only change the vector's length
	for t := 0; t < b.S && !b.Dot; t++ {
		if g, similar := b.pair(s, t, isAnchor); g != 0 {
			along += g * similar
		}
	}
	var sums [contrastColumns]float64
	for from := 0; from < b.C; from += contrastColumns {
		n := min(contrastColumns, b.C-from)
		clear(sums[:n])
		for t := range b.S {
			g, _ := b.pair(s, t, isAnchor)
			if g *= inverse(b.length[t]); g == 0 {
				continue
			}
			for j, v := range b.vectors[t*b.C+from:][:n] {
				sums[j] += g * float64(v)
			}
		}
		for j, v := range b.vectors[s*b.C+from:][:n] {
			row[from+j] = F((sums[j] - along*float64(v)/b.length[s]) / b.length[s])
		}
	}
}

// Stored keeps vectors and their gradient in the type of activations, and all else in fp32.
func (o ContrastiveLoss) Stored(in []DType) (want, out []DType) {
	n := 1 + contrastSums
	if o.Grad {
		n++
	}
	want, out = pairStored(in, 1, n)
	if want[0] = ComputeType; o.Grad {
		out[1] = ComputeType
	}
	return want, out
}

// Cost counts a dot product for each pair of sequences, three times as many with the gradient.
func (o ContrastiveLoss) Cost(in, out []Type, _ Content) Cost {
	S, C := int64(in[0].Shape[0]), int64(in[0].Shape[1])
	flops := 2 * S * S * C
	if o.Grad {
		flops *= 3
	}
	return Cost{moved(in, out), flops}
}
