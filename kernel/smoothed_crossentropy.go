package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// SmoothedCrossEntropy computes the vocabulary head and a cross-entropy with smoothed labels, a penalty on the
// normaliser (z-loss) and a weight for each row together, a chunk of rows at a time, so that the logits [M,V] never
// exist.
//
//	x f[M,C], w w[V,C], labels i32[M], scale f[1], (weights f[M] if Weighted), (scaling if Scaled),
//	(sum f[V,C] if HeadOnto)
//	  -> loss f[], (dx f[M,C] if Grad), each f[M], nll f[], squares f[], (dw f[V,C] unless HeadFrozen)
//	z       = logsumexp(x wᵀ)
//	each    = weight ((1-Smoothing) (z - (x wᵀ)[label]) + Smoothing (z - mean(x wᵀ)) + ZLoss z²), 0 in rows labelled -100
//	loss    = scale * sum(each)
//	nll     = sum(z - (x wᵀ)[label]);  squares = sum(z²), both without weights
//
// Smoothing gives every token of the vocabulary the share Smoothing/V of the label's weight, as torch's cross_entropy
// does. ZLoss keeps the normaliser near one (Chowdhery et al. 2022, PaLM, section 5). With Cap > 0 the logits are
// Cap * tanh(x wᵀ / Cap) in place of x wᵀ. Without Weighted every weight is one.
//
// Labels, Grad, Scaled and Head are those of LinearCrossEntropy.
type SmoothedCrossEntropy struct {
	Chunk     int     // rows whose logits exist at the same time: Chunk*V numbers of scratch
	Grad      bool    // computes dx
	Scaled    bool    // multiplies the gradient, but not the loss, by the loss scale
	Weighted  bool    // multiplies each row's loss and gradient by a weight of its own
	Cap       float64 // soft cap of the logits; 0 = none
	Smoothing float64 // the part of each label that all tokens of the vocabulary share, 0 to below 1
	ZLoss     float64 // weight of z², 0 or more
	Head      HeadGradient
}

// Name returns "smoothed_crossentropy".
func (SmoothedCrossEntropy) Name() string { return "smoothed_crossentropy" }

// inputs returns the patterns of the inputs.
func (o SmoothedCrossEntropy) inputs() []string {
	patterns := []string{"f[M,C]", "w[V,C]", "i32[M]", "f[1]"}
	if o.Weighted {
		patterns = append(patterns, "f[M]")
	}
	return o.Head.inputs(withScaling(o.Scaled, patterns...)...)
}

// Shape returns the types of the loss, the gradients, the rows' losses and the sums.
func (o SmoothedCrossEntropy) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, o.inputs()...)
	if err != nil {
		return nil, err
	}
	for i := 3; i < len(in); i++ {
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if err := checkHead(o.Chunk, o.Cap); err != nil {
		return nil, err
	}
	if d.At('V') == 0 {
		return nil, fmt.Errorf("input 1 is %v: the vocabulary is empty", in[1])
	}
	if in[0].Shape[1] == 0 {
		return nil, fmt.Errorf("input 0 is %v: rows have no numbers", in[0])
	}
	if !(o.Smoothing >= 0 && o.Smoothing < 1) {
		return nil, fmt.Errorf("attribute Smoothing is %v, want 0 or more and below 1", o.Smoothing)
	}
	if !(o.ZLoss >= 0) || math.IsInf(o.ZLoss, 0) {
		return nil, fmt.Errorf("attribute ZLoss is %v, want 0 or more", o.ZLoss)
	}
	if err := o.Head.check(o.Grad); err != nil {
		return nil, err
	}
	each, sum := T(in[0].DType, in[0].Shape[0]), T(in[0].DType)
	out := []Type{sum}
	if o.Grad {
		out = append(out, in[0])
	}
	return o.Head.outputs(in[0], in[1], append(out, each, sum, sum)...), nil
}

// Overwrites is the gradient for w, where it is added to an input.
func (o SmoothedCrossEntropy) Overwrites() []Alias { return o.Head.overwrites(len(o.inputs()), 6) }

// AccumulateHead returns the form with HeadOnto.
func (o SmoothedCrossEntropy) AccumulateHead() (Kernel, bool) {
	was := o.Head
	o.Head = HeadOnto
	return o, was == HeadTrained
}

// Terminal marks the end of a graph: the gradient is that of the loss itself.
func (SmoothedCrossEntropy) Terminal() {}

// Grads returns the gradients that the forward pass computed.
func (o SmoothedCrossEntropy) Grads() Backward {
	grads := make([]Ref, len(o.inputs()))
	if o.Grad {
		grads[0] = Out(1)
	}
	o.Head.gradientFor(grads, 5)
	return Backward{Grads: grads}
}

// Scratch returns the bytes of headChunks and, for each row, of its nll and its squared normaliser.
func (o SmoothedCrossEntropy) Scratch(in []Type, _ int) int64 {
	return headScratch(o.Chunk, in[0], in[1]) + 2*AlignUp(int64(in[0].Shape[0]*in[0].DType.Size()))
}

// CPU binds the float64 or the float32 body.
func (o SmoothedCrossEntropy) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindSmoothed[float32], bindSmoothed[float64])(c, o, in, out)
}

// smoothedCrossEntropy is a bound SmoothedCrossEntropy.
type smoothedCrossEntropy[F Float] struct {
	*headChunks[F]
	SmoothedCrossEntropy
	loops        *simd.Loops[F]
	dx, each     []F
	nll, squares []F // [M], of each row
	scale        []F
	weights      []F // [M], of each row; nil = all are one
	scaling      []F // the loss scale's state, by which the gradient alone is multiplied
}

func bindSmoothed[F Float](c *CPU, o SmoothedCrossEntropy, in, out []Tensor) func() {
	dw, in, out := takeHeadGradient(o.Head, in, out)
	e := &smoothedCrossEntropy[F]{
		headChunks: newHeadChunks[F](c, o.Chunk, in[0], in[1], in[2]), SmoothedCrossEntropy: o, loops: simd.Best[F](),
		scale: Floats[F](in[3]), scaling: lossScaling[F](o.Scaled, in, len(in)-1), each: Floats[F](out[len(out)-3]),
	}
	if o.Weighted {
		e.weights = Floats[F](in[4])
	}
	e.nll, e.squares = e.take(len(e.labels)), e.take(len(e.labels))
	if o.Grad {
		e.dx = Floats[F](out[1])
	}
	e.trainHead(o.Head, dw)
	loss, nll, squares := Floats[F](out[0]), Floats[F](out[len(out)-2]), Floats[F](out[len(out)-1])
	walk := e.walk(e.untrained, e.row, gradientOf[F]{e.logits, e.dx})
	return func() {
		walk()
		loss[0] = F(sumOf(e.each) * float64(e.scale[0]))
		nll[0], squares[0] = F(sumOf(e.nll)), F(sumOf(e.squares))
	}
}

// sumOf is the sum in float64, in order.
func sumOf[F Float](x []F) (sum float64) {
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// untrained writes the losses and the gradient of row t, which has no label.
func (e *smoothedCrossEntropy[F]) untrained(t int) {
	e.each[t], e.nll[t], e.squares[t] = 0, 0, 0
	if e.dx != nil {
		clear(e.dx[t*e.width:][:e.width])
	}
}

// row computes the loss of the chunk's row i and turns its logits into their gradient.
func (e *smoothedCrossEntropy[F]) row(i int) {
	t, label, logits := e.at(i)
	if e.Cap > 0 {
		e.loops.SoftCap(logits, logits, F(e.Cap))
	}
	if label < 0 || label >= e.vocab {
		nan := F(math.NaN())
		e.each[t], e.nll[t], e.squares[t] = nan, nan, nan
		for j := range logits {
			logits[j] = nan
		}
		return
	}
	top, target := e.loops.Max(logits), float64(logits[label])
	// The exponentials go where the chunk's row of x was, which is used: the logits are needed once more.
	used := e.rows[i*e.width:][:e.width]
	sum := 0.
	for at := 0; at < len(logits); at += len(used) {
		part := logits[at:min(at+len(used), len(logits))]
		sum += simd.LongExp(e.loops, used[:len(part)], part, top)
	}
	z, share, weight := math.Log(sum)+float64(top), e.Smoothing/float64(e.vocab), 1.
	if e.weights != nil {
		weight = float64(e.weights[t])
	}
	e.nll[t], e.squares[t] = F(z-target), F(z*z)
	e.each[t] = F(weight * ((1-e.Smoothing)*(z-target) + e.Smoothing*(z-sumOf(logits)/float64(e.vocab)) + e.ZLoss*z*z))
	if e.dx != nil {
		scale := F(weight * float64(e.scale[0]) * float64(e.scaling[LossScaleNow]))
		e.gradient(i, logits, label, top, F((1+2*e.ZLoss*z)/sum), F(share), scale)
	}
}

// gradient turns the logits of the chunk's row i into their gradient, which is scale times: exponentials times factor,
// less each token's share of the label, less the label's own part.
func (e *smoothedCrossEntropy[F]) gradient(i int, logits []F, label int, top, factor, share, scale F) {
	through := func(y F) F {
		if e.Cap == 0 {
			return scale
		}
		return scale * (1 - y/F(e.Cap)*(y/F(e.Cap)))
	}
	own := F(1-e.Smoothing) * through(logits[label])
	used := e.rows[i*e.width:][:e.width]
	for at := 0; at < len(logits); at += len(used) {
		part := logits[at:min(at+len(used), len(logits))]
		p := used[:len(part)]
		e.loops.Exp(p, part, top)
		for j, y := range part {
			part[j] = (p[j]*factor - share) * through(y)
		}
	}
	logits[label] -= own
}

// Cost counts the labelled rows alone: their GEMMs, and three functions and three sums for each logit.
func (o SmoothedCrossEntropy) Cost(in, out []Type, c Content) Cost {
	gemms := 1
	if o.Grad {
		gemms = 2
	}
	return headCost(in, out, o.Head.gemms(gemms), 6, c)
}

// Stored keeps hidden states, their gradient and the vocabulary matrix in the compute type, everything else in fp32.
func (o SmoothedCrossEntropy) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, ComputeType, I32, F32}
	if o.Weighted {
		want = append(want, F32)
	}
	out = []DType{F32, F32, F32, F32}
	if o.Grad {
		out = []DType{F32, ComputeType, F32, F32, F32}
	}
	return o.Head.stored(storedScaling(o.Scaled, want...), out)
}

// ScratchGPU returns the bytes of a chunk's logits, two numbers a row, and the GEMMs' scratch.
func (o SmoothedCrossEntropy) ScratchGPU(in, _ []Type, sm int) int64 {
	return o.Head.scratchGPU(o.Chunk, in[0], in[1], sm) + 2*rowNumbers(in[0].Shape[0])
}

// rowNumbers returns the device memory of an fp32 number for each of M rows.
func rowNumbers(M int) int64 { return (4*int64(M) + 255) &^ 255 }
