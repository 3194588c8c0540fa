package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Entropy says what LinearLogProbs computes of the entropies of its distributions.
type Entropy uint8

const (
	EntropyNone           Entropy = iota // no entropies
	EntropyConstant                      // entropies as a constant: no gradient flows through them
	EntropyDifferentiable                // entropies with a gradient
	EntropyCollision                     // collision entropies, -log(sum over v of p_v²), as a constant
	entropies                            // the number of values
)

// LinearLogProbs computes the vocabulary head and the log-probability of every row's label together, a chunk of rows at
// a time, so that the logits [M,V] never exist. Any loss that is a function of log-probabilities can follow: its
// gradient arrives as one signed weight per row.
//
//	x f[M,C], w w[V,C], labels i32[M]
//	  -> y, (slope f[M,C] if Grad), (entropy slope f[M,C] if Grad and EntropyDifferentiable),
//	     (entropies f[M] if EntropyConstant or EntropyCollision), (statistics f[3,M] if Statistics)
//	y f[M]   = log p[label], p = softmax(x wᵀ); with EntropyDifferentiable
//	y f[2,M] = log p[label] in row 0, the entropy -sum over v of p_v log p_v in row 1
//
// statistics are numbers that training reports, constants for the gradient: in row LogitEntropy the entropy, in row
// LogitMean the mean of the logits over the vocabulary, and in row LogitTop 1 where no label is likelier and no earlier
// one as likely as the row's, else 0.
//
// With Cap > 0 the logits are Cap * tanh(x wᵀ / Cap) in place of x wᵀ. A row labelled -100 gives zeros and has no
// gradient; a label outside the vocabulary otherwise gives NaN. w is frozen.
//
// The gradient of y for a row of x is the row's slope times the weight that arrives. Grad computes the slopes in the
// forward pass, while a chunk's logits exist, so that no logits are computed twice:
//
//	slope         = sum over v of (1[v = label] - p_v) (1 - (logit_v/Cap)²) w_v
//	entropy slope = sum over v of -p_v (log p_v + entropy) (1 - (logit_v/Cap)²) w_v
type LinearLogProbs struct {
	// rows whose logits exist at the same time: Chunk*V numbers of scratch, twice that for entropy slopes
	Chunk   int
	Grad    bool    // computes slopes; without them nothing has a gradient
	Entropy Entropy // entropies and their gradient
	Cap     float64 // soft cap of the logits; 0 = none
	// Statistics computes statistics of the logits. They change no bit of the other outputs.
	Statistics bool
}

// The rows of LinearLogProbs' statistics.
const (
	LogitEntropy    = iota // entropy of the distribution, in nats
	LogitMean              // mean of the logits over the vocabulary
	LogitTop               // 1 where the label is the likeliest, the first of equals; else 0
	LogitStatistics        // the number of rows
)

// Name returns "logprobs".
func (LinearLogProbs) Name() string { return "logprobs" }

// Shape returns the types of y, slopes and entropies.
func (o LinearLogProbs) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[V,C]", "i32[M]")
	if err != nil {
		return nil, err
	}
	if err := checkHead(o.Chunk, o.Cap); err != nil {
		return nil, err
	}
	if o.Entropy >= entropies {
		return nil, fmt.Errorf("attribute Entropy is %d, want 0 to %d", o.Entropy, entropies-1)
	}
	if d.At('V') == 0 || d.At('C') == 0 {
		return nil, fmt.Errorf("input 1 is %v: the vocabulary matrix is empty", in[1])
	}
	each := T(in[0].DType, d.At('M'))
	out := []Type{each}
	if o.Entropy == EntropyDifferentiable {
		out[0] = T(in[0].DType, 2, d.At('M'))
	}
	for range o.slopes() {
		out = append(out, in[0])
	}
	if o.Entropy.constant() {
		out = append(out, each)
	}
	if o.Statistics {
		out = append(out, T(in[0].DType, LogitStatistics, d.At('M')))
	}
	return out, nil
}

// constant reports whether the entropies are an output of their own, without a gradient.
func (e Entropy) constant() bool { return e == EntropyConstant || e == EntropyCollision }

// slopes returns the number of outputs that are slopes.
func (o LinearLogProbs) slopes() int {
	switch {
	case !o.Grad:
		return 0
	case o.Entropy == EntropyDifferentiable:
		return 2
	}
	return 1
}

// Grads weighs the slopes with what arrives for y.
func (o LinearLogProbs) Grads() Backward {
	if !o.Grad {
		return Backward{Grads: make([]Ref, 3)}
	}
	in := []Ref{In(2), Upstream()}
	for i := range o.slopes() {
		in = append(in, Out(1+i))
	}
	return Backward{Calls: []Call{{LinearLogProbsGrad{Entropy: o.Entropy == EntropyDifferentiable}, in}},
		Grads: []Ref{FromCall(0, 0), {}, {}}}
}

// Scratch returns the bytes of a chunk's logits, its rows, and a second matrix of the logits' shape for entropy slopes.
func (o LinearLogProbs) Scratch(in []Type, _ int) int64 {
	n := headScratch(o.Chunk, in[0], in[1])
	if o.slopes() == 2 {
		n = AlignUp(n) + AlignUp(int64(headRows(o.Chunk, in[0])*in[1].Shape[0]*in[0].DType.Size()))
	}
	return n
}

// CPU binds the float64 or the float32 body.
func (o LinearLogProbs) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindLogProbs[float32], bindLogProbs[float64])(c, o, in, out)
}

// logProbs is a bound LinearLogProbs.
type logProbs[F Float] struct {
	*headChunks[F]
	loops *simd.Loops[F]
	cap   F // soft cap of the logits; 0 = none

	y, entropies []F  // [M] each; no entropies = they are not wanted
	collision    bool // entropies are collision entropies
	statistics   []F  // [3,M]; nil = they are not wanted

	// A slope [M,C] and the gradient for a chunk's logits that it is computed from; no dx = it is not wanted.
	slope, entropySlope gradientOf[F]
}

func bindLogProbs[F Float](c *CPU, o LinearLogProbs, in, out []Tensor) func() {
	e := &logProbs[F]{
		headChunks: newHeadChunks[F](c, o.Chunk, in[0], in[1], in[2]), loops: simd.Best[F](), cap: F(o.Cap),
		y: Floats[F](out[0]), collision: o.Entropy == EntropyCollision,
	}
	if o.Statistics {
		e.statistics, out = Floats[F](out[len(out)-1]), out[:len(out)-1]
	}
	switch M := in[0].Shape[0]; o.Entropy {
	case EntropyConstant, EntropyCollision:
		e.entropies = Floats[F](out[len(out)-1])
	case EntropyDifferentiable:
		e.y, e.entropies = e.y[:M], e.y[M:]
	}
	if o.slopes() > 0 {
		e.slope = gradientOf[F]{e.logits, Floats[F](out[1])}
	}
	if o.slopes() > 1 {
		e.entropySlope = gradientOf[F]{e.take(e.chunk * e.vocab), Floats[F](out[2])}
	}
	return e.walk(e.unlabelled, e.row, e.slope, e.entropySlope)
}

// unlabelled writes the results of row t, which has no label.
func (e *logProbs[F]) unlabelled(t int) {
	e.y[t] = 0
	if e.entropies != nil {
		e.entropies[t] = 0
	}
	e.setStatistics(t, 0, 0, 0)
	for _, s := range []gradientOf[F]{e.slope, e.entropySlope} {
		if s.dx != nil {
			clear(s.dx[t*e.width:][:e.width])
		}
	}
}

// row computes the results of the chunk's row i and turns its logits into the gradients that are wanted.
func (e *logProbs[F]) row(i int) {
	t, label, logits := e.at(i)
	if label < 0 || label >= e.vocab {
		e.undefined(i, t)
		return
	}
	if e.cap > 0 {
		e.loops.SoftCap(logits, logits, e.cap)
	}
	top, target := e.loops.Max(logits), float64(logits[label])
	// likeliest is 1 where the label is the first of the largest logits.
	likeliest := F(0)
	if e.statistics != nil && logits[label] == top && e.loops.Max(logits[:label]) < top {
		likeliest = 1
	}
	// Exponentials overwrite the logits unless those are needed once more. Then they go where the chunk's row of x was,
	// which has been used, a part at a time: the parts are the same either way, so that the sums are.
	keep, spare := e.entropies != nil || e.cap > 0, e.rows[i*e.width:][:e.width]
	sum, dot, squares, total, weighted := 0.0, 0.0, 0.0, 0.0, 0.0
	for at := 0; at < len(logits); at += len(spare) {
		part := logits[at:min(at+len(spare), len(logits))]
		p := part
		if keep || e.statistics != nil {
			p = spare[:len(part)]
		}
		sum += simd.LongExp(e.loops, p, part, top)
		if e.statistics != nil {
			total += sumByFour(part)
			weighted += simd.LongDot(e.loops, p, part)
		}
		if !keep && e.statistics != nil {
			copy(part, p)
		}
		if e.entropies != nil {
			for j := range part {
				part[j] -= top
			}
			dot += simd.LongDot(e.loops, p, part)
		}
		if e.collision {
			squares += simd.LongDot(e.loops, p, p)
		}
	}
	e.y[t] = F(target - float64(top) - math.Log(sum))
	entropy := math.Log(sum) - dot/sum
	if e.collision {
		entropy = 2*math.Log(sum) - math.Log(squares)
	}
	e.setStatistics(t, F(math.Log(sum)+float64(top)-weighted/sum), F(total/float64(len(logits))), likeliest)
	shift := top // what is still to be subtracted from the logits
	if e.entropies != nil {
		e.entropies[t], shift = F(entropy), 0
	}
	switch {
	case e.slope.dx == nil:
	case !keep:
		e.loops.Scale(logits, logits, F(-1/sum))
		logits[label]++
	default:
		e.slopes(i, label, logits, shift, top, sum, F(entropy))
	}
}

// setStatistics writes the statistics of row t, where they are wanted.
func (e *logProbs[F]) setStatistics(t int, entropy, mean, likeliest F) {
	if e.statistics == nil {
		return
	}
	M := len(e.y)
	e.statistics[LogitEntropy*M+t], e.statistics[LogitMean*M+t], e.statistics[LogitTop*M+t] = entropy, mean, likeliest
}

// sumByFour returns the sum of numbers, in an order that depends only on how many they are. Four running sums make it
// faster than sumOf.
func sumByFour[F Float](x []F) (sum float64) {
	var s [4]float64
	for ; len(x) >= 4; x = x[4:] {
		s[0], s[1], s[2], s[3] = s[0]+float64(x[0]), s[1]+float64(x[1]), s[2]+float64(x[2]), s[3]+float64(x[3])
	}
	for _, v := range x {
		sum += float64(v)
	}
	return sum + (s[0] + s[1]) + (s[2] + s[3])
}

// undefined gives the chunk's row i, row t of x, NaN for results: its label is outside the vocabulary.
func (e *logProbs[F]) undefined(i, t int) {
	nan := F(math.NaN())
	e.y[t] = nan
	if e.entropies != nil {
		e.entropies[t] = nan
	}
	e.setStatistics(t, nan, nan, nan)
	for _, s := range []gradientOf[F]{e.slope, e.entropySlope} {
		if s.dx == nil {
			continue
		}
		for j := range e.vocab {
			s.dlogits[i*e.vocab+j] = nan
		}
	}
}

// slopes turns the chunk's row i of logits, which lie top-shift below the capped ones, into the gradients of the
// log-probability and of the entropy for the logits before the cap. sum adds up the exponentials; the
// largest exponential is 1.
func (e *logProbs[F]) slopes(i, label int, logits []F, shift, top F, sum float64, entropy F) {
	spare, log := e.rows[i*e.width:][:e.width], F(math.Log(sum))
	through := func(y F) F {
		if e.cap == 0 {
			return 1
		}
		y += top - shift
		return 1 - y/e.cap*(y/e.cap)
	}
	target := logits[label]
	for at := 0; at < len(logits); at += len(spare) {
		part := logits[at:min(at+len(spare), len(logits))]
		p := spare[:len(part)]
		e.loops.Exp(p, part, shift)
		e.loops.Scale(p, p, F(-1/sum))
		if e.entropySlope.dx != nil {
			d := e.entropySlope.dlogits[i*e.vocab+at:][:len(part)]
			for j, y := range part {
				d[j] = p[j] * (y - shift - log + entropy) * through(y)
			}
		}
		if e.cap == 0 {
			copy(part, p)
			continue
		}
		for j, y := range part {
			part[j] = p[j] * through(y)
		}
	}
	logits[label] += through(target)
}

// Cost counts the labelled rows alone: their GEMMs, and two functions and four sums for each logit, three more for
// statistics.
func (o LinearLogProbs) Cost(in, out []Type, c Content) Cost {
	operations := 6
	if o.Statistics {
		operations += 3
	}
	return headCost(in, out, 1+o.slopes(), operations, c)
}

// Stored keeps hidden states, slopes and the vocabulary matrix in the compute type, and statistics in fp32.
func (o LinearLogProbs) Stored([]DType) (want, out []DType) {
	out = []DType{F32}
	for range o.slopes() {
		out = append(out, ComputeType)
	}
	if o.Entropy.constant() {
		out = append(out, F32)
	}
	if o.Statistics {
		out = append(out, F32)
	}
	return []DType{ComputeType, ComputeType, I32}, out
}

// ScratchGPU returns the bytes of a chunk's logits, a second matrix of their shape for entropy slopes, and the GEMMs'
// scratch.
func (o LinearLogProbs) ScratchGPU(in, _ []Type, sm int) int64 {
	return headScratchGPU(o.Chunk, in[0], in[1], sm, max(1, o.slopes()))
}

// LinearLogProbsGrad is the gradient of LinearLogProbs for its hidden states: slopes weighted row by row.
//
//	labels i32[M], dy f[M], slope f[M,C] -> dx f[M,C] = dy slope
//	labels i32[M], dy f[2,M], slope f[M,C], entropy slope f[M,C] -> dx f[M,C] = dy[0] slope + dy[1] entropy slope, if
//	  Entropy
//
// A row labelled -100 gives zeros whatever dy is there.
type LinearLogProbsGrad struct{ Entropy bool }

// Name returns "logprobs_grad".
func (LinearLogProbsGrad) Name() string { return "logprobs_grad" }

// Shape returns the type of the slopes.
func (o LinearLogProbsGrad) Shape(in []Type) ([]Type, error) {
	want := []string{"i32[M]", "f[M]", "f[M,C]"}
	if o.Entropy {
		want = []string{"i32[M]", "f[2,M]", "f[M,C]", "f[M,C]"}
	}
	if _, err := Want(in, want...); err != nil {
		return nil, err
	}
	return in[2:3], sameElements(in, 1, 2, len(in)-1)
}

// InPlace allows dx in the memory of the slopes.
func (LinearLogProbsGrad) InPlace() []Alias { return []Alias{{0, 2}} }

// CPU binds the float64 or the float32 body.
func (o LinearLogProbsGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[1], logProbsGrad[float32], logProbsGrad[float64])(c, o, in, out)
}

func logProbsGrad[F Float](c *CPU, o LinearLogProbsGrad, in, out []Tensor) func() {
	labels, dy, slope, dx := in[0].I32(), Floats[F](in[1]), Floats[F](in[2]), Floats[F](out[0])
	M, width, loops := in[2].Shape[0], in[2].Shape[1], simd.Best[F]()
	var entropySlope []F
	if o.Entropy {
		entropySlope = Floats[F](in[3])
	}
	return c.Range(M, rowGrain(width), func(lo, hi int) {
		for m := lo; m < hi; m++ {
			to := dx[m*width:][:width]
			if labels[m] == Untrained {
				clear(to)
				continue
			}
			loops.Scale(to, slope[m*width:][:width], dy[m])
			if o.Entropy {
				loops.Blend(to, 1, entropySlope[m*width:][:width], dy[M+m])
			}
		}
	})
}

// Cost counts one multiplication for each slope, and a sum.
func (o LinearLogProbsGrad) Cost(in, out []Type, _ Content) Cost {
	return pointwise(in, out, out[0], 2*(len(in)-2)-1)
}

// Stored keeps slopes in the compute type and the weights in fp32.
func (o LinearLogProbsGrad) Stored([]DType) (want, out []DType) {
	want = []DType{I32, F32, ComputeType}
	if o.Entropy {
		want = append(want, ComputeType)
	}
	return want, []DType{ComputeType}
}
