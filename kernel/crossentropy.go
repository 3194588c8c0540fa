package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// LinearCrossEntropy computes the vocabulary head and the cross-entropy loss together, a chunk of rows at a time, so
// that the logits [M,V] never exist.
//
//	x f[M,C], w w[V,C], labels i32[M], scale f[1], (scaling if Scaled), (sum f[V,C] if HeadOnto)
//	  -> loss f[], (dx f[M,C] if Grad), nll f[M], (dw f[V,C] unless HeadFrozen)
//	nll = logsumexp(x wᵀ) - (x wᵀ)[label], 0 in rows labelled -100;  loss = scale * sum(nll)
//
// With Cap > 0 the logits are Cap * tanh(x wᵀ / Cap) in place of x wᵀ.
//
// labels[t] is the token that row t must predict. Grad computes the gradient of the loss for x in the forward pass, for
// a gradient of the loss of one, or of the loss scale where Scaled, and with Head that for w too; without Grad nothing
// has a gradient. A label outside the vocabulary other than -100 gives NaN in the row's loss and gradient; the data set
// refuses such labels.
type LinearCrossEntropy struct {
	Chunk  int     // rows whose logits exist at the same time: Chunk*V numbers of scratch
	Grad   bool    // computes dx
	Scaled bool    // multiplies the gradient, but not the loss, by the loss scale
	Cap    float64 // soft cap of the logits; 0 = none
	Head   HeadGradient
}

func (LinearCrossEntropy) Name() string { return "crossentropy" }

func (o LinearCrossEntropy) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, o.inputs()...)
	if err != nil {
		return nil, err
	}
	for i := 3; i < len(in); i++ {
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if err := o.Head.check(o.Grad); err != nil {
		return nil, err
	}
	if err := checkHead(o.Chunk, o.Cap); err != nil {
		return nil, err
	}
	if d.At('V') == 0 || d.At('C') == 0 && o.Cap > 0 {
		return nil, fmt.Errorf("input 1 is %v: the vocabulary is empty", in[1])
	}
	loss, nll := T(in[0].DType), T(in[0].DType, d.At('M'))
	if o.Grad {
		return o.Head.outputs(in[0], in[1], loss, in[0], nll), nil
	}
	return []Type{loss, nll}, nil
}

// Overwrites is the gradient for w, where it is added to an input.
func (o LinearCrossEntropy) Overwrites() []Alias {
	return o.Head.overwrites(len(o.inputs()), 4)
}

// AccumulateHead returns the form with HeadOnto.
func (o LinearCrossEntropy) AccumulateHead() (Kernel, bool) {
	was := o.Head
	o.Head = HeadOnto
	return o, was == HeadTrained
}

// Terminal marks the end of a graph: the gradient is that of the loss itself.
func (LinearCrossEntropy) Terminal() {}

// inputs returns the patterns of the inputs.
func (o LinearCrossEntropy) inputs() []string {
	return o.Head.inputs(withScaling(o.Scaled, "f[M,C]", "w[V,C]", "i32[M]", "f[1]")...)
}

func (o LinearCrossEntropy) Grads() Backward {
	grads := make([]Ref, len(o.inputs()))
	if o.Grad {
		grads[0] = Out(1)
	}
	o.Head.gradientFor(grads, 3)
	return Backward{Grads: grads}
}

func (o LinearCrossEntropy) Scratch(in []Type, _ int) int64 {
	return headScratch(o.Chunk, in[0], in[1])
}

func (o LinearCrossEntropy) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindCrossEntropy[float32], bindCrossEntropy[float64])(c, o, in, out)
}

// crossEntropy is a bound LinearCrossEntropy.
type crossEntropy[F Float] struct {
	*headChunks[F]
	loops   *simd.Loops[F]
	dx, nll []F
	scale   []F
	scaling []F // the loss scale's state, by which the gradient alone is multiplied
	cap     F   // soft cap of the logits; 0 = none
}

func bindCrossEntropy[F Float](c *CPU, o LinearCrossEntropy, in, out []Tensor) func() {
	dw, in, out := takeHeadGradient(o.Head, in, out)
	e := &crossEntropy[F]{
		headChunks: newHeadChunks[F](c, o.Chunk, in[0], in[1], in[2]), loops: simd.Best[F](),
		scale: Floats[F](in[3]), scaling: lossScaling[F](o.Scaled, in, 4), nll: Floats[F](out[len(out)-1]),
		cap: F(o.Cap),
	}
	if o.Grad {
		e.dx = Floats[F](out[1])
	}
	e.trainHead(o.Head, dw)
	loss := Floats[F](out[0])
	walk := e.walk(e.untrained, e.row, gradientOf[F]{e.logits, e.dx})
	return func() {
		walk()
		var sum float64
		for _, v := range e.nll {
			sum += float64(v)
		}
		loss[0] = F(sum * float64(e.scale[0]))
	}
}

// untrained writes the loss and the gradient of row t, which has no label.
func (e *crossEntropy[F]) untrained(t int) {
	e.nll[t] = 0
	if e.dx != nil {
		clear(e.dx[t*e.width:][:e.width])
	}
}

// row computes the loss of the chunk's row i and turns its logits into their gradient.
func (e *crossEntropy[F]) row(i int) {
	t, label, logits := e.at(i)
	if e.cap > 0 {
		e.loops.SoftCap(logits, logits, e.cap)
	}
	top := e.loops.Max(logits)
	if label < 0 || label >= e.vocab {
		e.nll[t] = F(math.NaN())
		for j := range logits {
			logits[j] = F(math.NaN())
		}
		return
	}
	target := logits[label]
	if e.cap > 0 {
		e.nll[t] = e.capped(i, logits, label, top)
		return
	}
	sum := simd.LongExp(e.loops, logits, logits, top)
	e.nll[t] = F(math.Log(sum) + float64(top) - float64(target))
	if e.dx != nil {
		scale := float64(e.scale[0]) * float64(e.scaling[LossScaleNow])
		e.loops.Scale(logits, logits, F(scale/sum))
		logits[label] -= F(scale)
	}
}

// capped returns the loss of a row of capped logits, which become the gradient for the logits before the cap.
func (e *crossEntropy[F]) capped(i int, logits []F, label int, top F) (nll F) {
	// The exponentials go where the chunk's row of x was, which is used: the capped logits are needed once more.
	room := e.rows[i*e.width:][:e.width]
	sum, target := 0.0, logits[label]
	for at := 0; at < len(logits); at += len(room) {
		part := logits[at:min(at+len(room), len(logits))]
		sum += simd.LongExp(e.loops, room[:len(part)], part, top)
	}
	nll = F(math.Log(sum) + float64(top) - float64(target))
	if e.dx == nil {
		return nll
	}
	scale := float64(e.scale[0]) * float64(e.scaling[LossScaleNow])
	through := func(y F) F { return 1 - y/e.cap*(y/e.cap) }
	for at := 0; at < len(logits); at += len(room) {
		part := logits[at:min(at+len(room), len(logits))]
		p := room[:len(part)]
		e.loops.Exp(p, part, top)
		for j, y := range part {
			part[j] = p[j] * F(scale/sum) * through(y)
		}
	}
	logits[label] -= F(scale) * through(target)
	return nll
}

// Cost counts the labelled rows alone: their GEMMs, and two functions and two sums for each logit.
func (o LinearCrossEntropy) Cost(in, out []Type, c Content) Cost {
	gemms := 1
	if o.Grad {
		gemms = 2
	}
	return headCost(in, out, o.Head.gemms(gemms), 4, c)
}

func (o LinearCrossEntropy) Stored([]DType) (want, out []DType) {
	want = storedScaling(o.Scaled, ComputeType, ComputeType, I32, F32)
	if o.Grad {
		return o.Head.stored(want, []DType{F32, ComputeType, F32})
	}
	return want, []DType{F32, F32}
}

func (o LinearCrossEntropy) ScratchGPU(in, _ []Type, sm int) int64 {
	return o.Head.scratchGPU(o.Chunk, in[0], in[1], sm)
}
