package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// SmoothedCrossEntropy computes the vocabulary head and a cross-entropy with smoothed labels and a penalty on the
// normaliser (z-loss) together, a chunk of rows at a time, so that the logits [M,V] never exist.
//
//	x f[M,C], w w[V,C], labels i32[M], scale f[1], (scaling if Scaled) -> loss f[], (dx f[M,C] if Grad), each f[M], nll f[], squares f[]
//	z       = logsumexp(x wᵀ)
//	each    = (1-Smoothing) (z - (x wᵀ)[label]) + Smoothing (z - mean(x wᵀ)) + ZLoss z², 0 in rows labelled -100
//	loss    = scale * sum(each)
//	nll     = sum(z - (x wᵀ)[label]);  squares = sum(z²)
//
// Smoothing gives every token of the vocabulary the share Smoothing/V of the label's weight, as torch's cross_entropy does.
// ZLoss keeps the normaliser near one (Chowdhery et al. 2022, PaLM, section 5). With Cap > 0 the logits are
// Cap * tanh(x wᵀ / Cap) in place of x wᵀ.
//
// Labels, Grad and Scaled are those of LinearCrossEntropy. There is no body for GPUs.
type SmoothedCrossEntropy struct {
	Chunk     int     // rows whose logits exist at the same time: Chunk*V numbers of scratch
	Grad      bool    // computes dx
	Scaled    bool    // multiplies the gradient, but not the loss, by the loss scale
	Cap       float64 // soft cap of the logits; 0 = none
	Smoothing float64 // the part of each label that all tokens of the vocabulary share, 0 to below 1
	ZLoss     float64 // weight of z², 0 or more
}

func (SmoothedCrossEntropy) Name() string { return "smoothed_crossentropy" }

func (o SmoothedCrossEntropy) Shape(in []Type) ([]Type, error) {
	if _, err := (LinearCrossEntropy{Chunk: o.Chunk, Grad: o.Grad, Scaled: o.Scaled, Cap: o.Cap}).Shape(in); err != nil {
		return nil, err
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
	d, rows := in[0].DType, in[0].Shape[0]
	out := []Type{T(d)}
	if o.Grad {
		out = append(out, in[0])
	}
	return append(out, T(d, rows), T(d), T(d)), nil
}

// Terminal marks the end of a graph: the gradient is that of the loss itself.
func (SmoothedCrossEntropy) Terminal() {}

func (o SmoothedCrossEntropy) Grads() Backward {
	return LinearCrossEntropy{Grad: o.Grad, Scaled: o.Scaled}.Grads()
}

// Scratch holds the chunks and, for each row, its nll and its squared normaliser.
func (o SmoothedCrossEntropy) Scratch(in []Type, _ int) int64 {
	return headScratch(o.Chunk, in[0], in[1]) + 2*AlignUp(int64(in[0].Shape[0]*in[0].DType.Size()))
}

func (o SmoothedCrossEntropy) CPU(c *CPU, in, out []Tensor) func() {
	if in[0].DType == F64 {
		return bindSmoothed[float64](c, o, in, out)
	}
	return bindSmoothed[float32](c, o, in, out)
}

// smoothedCrossEntropy is a bound SmoothedCrossEntropy.
type smoothedCrossEntropy[F Float] struct {
	*headChunks[F]
	SmoothedCrossEntropy
	loops        *simd.Loops[F]
	dx, each     []F
	nll, squares []F // [M], of each row
	scale        []F
	scaling      []F // the loss scale's state, by which the gradient alone is multiplied
}

func bindSmoothed[F Float](c *CPU, o SmoothedCrossEntropy, in, out []Tensor) func() {
	e := &smoothedCrossEntropy[F]{
		headChunks: newHeadChunks[F](c, o.Chunk, in[0], in[1], in[2]), SmoothedCrossEntropy: o, loops: simd.Best[F](),
		scale: Floats[F](in[3]), scaling: lossScaling[F](o.Scaled, in, 4), each: Floats[F](out[len(out)-3]),
	}
	e.nll, e.squares = e.take(len(e.labels)), e.take(len(e.labels))
	if o.Grad {
		e.dx = Floats[F](out[1])
	}
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
	z, share := math.Log(sum)+float64(top), e.Smoothing/float64(e.vocab)
	e.nll[t], e.squares[t] = F(z-target), F(z*z)
	e.each[t] = F((1-e.Smoothing)*(z-target) + e.Smoothing*(z-sumOf(logits)/float64(e.vocab)) + e.ZLoss*z*z)
	if e.dx != nil {
		e.gradient(i, logits, label, top, F((1+2*e.ZLoss*z)/sum), F(share))
	}
}

// gradient turns the logits of the chunk's row i into their gradient: exponentials times factor, less each token's share of
// the label, and the label's own.
func (e *smoothedCrossEntropy[F]) gradient(i int, logits []F, label int, top, factor, share F) {
	scale := F(float64(e.scale[0]) * float64(e.scaling[LossScaleNow]))
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
	return headCost(in, out, gemms, 6, c)
}
