package kernel

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/kernel/simd"
)

// Teacher says how LinearDivergence is given the distribution of the teacher.
type Teacher uint8

const (
	// TeacherDense is a teacher's hidden states and vocabulary head: the whole distribution.
	TeacherDense Teacher = iota
	// TeacherRenormalised is the teacher's most likely tokens. Both distributions are renormalised over them.
	TeacherRenormalised
	// TeacherBucket is the teacher's most likely tokens, and all other tokens as one more token.
	TeacherBucket
	// TeacherZero is the teacher's most likely tokens; all others have no probability. It needs Beta 0.
	TeacherZero
)

// MaxSupport is the largest number of a teacher's most likely tokens.
const MaxSupport = 512

// LinearDivergence computes the vocabulary head of a student and the divergence of its distribution from a teacher's
// (knowledge distillation), a chunk of rows at a time, so that logits [M,V] never exist.
//
//	x f[M,C], w w[V,C], labels i32[M], scale f[1], TEACHER, (weights f[M] if Weighted), (scaling if Scaled)
//	  -> loss f[], (dx f[M,C] if Grad), each f[M], divergence f[], nll f[], agreement f[]
//	TEACHER = y f[M,D], u w[V,D] for TeacherDense, else ids i32[M,K], logps f[M,K+1]
//	s = softmax(x wᵀ / Temperature),  t = softmax(y uᵀ / Temperature)
//	d = KL(t|s) for Beta 0,  KL(s|t) for Beta 1,  else Beta KL(t|m) + (1-Beta) KL(s|m) with m = (1-Beta) s + Beta t
//	n = -log softmax(x wᵀ)[label]
//	each = weight (Alpha d + CrossEntropy n), 0 in rows labelled -100;  loss = scale * sum(each)
//	divergence = sum(d);  nll = sum(n);  agreement = the number of rows where s and t have the same most likely token
//
// The divergence is the generalised Jensen-Shannon divergence (Agarwal et al. 2024, GKD). It has no factor
// Temperature². ids are distinct tokens of the teacher, logps their log-probabilities at Temperature, and column K of
// logps is the log-probability of all other tokens together, which TeacherBucket alone reads. A negative id is a place
// without a token. Where the heads of both models have different numbers of rows, both distributions are over the
// tokens that both have, V being the smaller number. With Cap or TeacherCap above 0 the logits of the model are cap *
// tanh(logits / cap). A label or an id outside of the vocabulary gives NaN. Without Weighted every weight is one.
//
// Labels, Grad and Scaled mean what they mean in LinearCrossEntropy. No gradient reaches the teacher.
type LinearDivergence struct {
	Chunk        int     // rows whose logits exist at the same time: Chunk*V numbers of scratch for each model
	Grad         bool    // computes dx
	Scaled       bool    // multiplies the gradient, but not the loss, by the loss scale
	Weighted     bool    // multiplies each row's loss and gradient by a weight of its own
	Cap          float64 // soft cap of the student's logits; 0 = none
	TeacherCap   float64 // soft cap of the logits of TeacherDense; 0 = none
	Beta         float64 // 0 is the forward, 1 the reverse divergence, between them a generalised Jensen-Shannon one
	Temperature  float64 // above 0
	Alpha        float64 // weight of the divergence, 0 or more
	CrossEntropy float64 // weight of the labels' cross-entropy, 0 or more
	Teacher      Teacher
}

// Name returns "divergence".
func (LinearDivergence) Name() string { return "divergence" }

// inputs returns the patterns of the inputs.
func (o LinearDivergence) inputs() []string {
	patterns := []string{"f[M,C]", "w[V,C]", "i32[M]", "f[1]"}
	if o.Teacher == TeacherDense {
		patterns = append(patterns, "f[M,D]", "w[U,D]")
	} else {
		patterns = append(patterns, "i32[M,K]", "f[M,L]")
	}
	if o.Weighted {
		patterns = append(patterns, "f[M]")
	}
	return withScaling(o.Scaled, patterns...)
}

// Shape returns the types of the loss, the gradient, the rows' losses and the sums.
func (o LinearDivergence) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, o.inputs()...)
	if err != nil {
		return nil, err
	}
	for i := 3; i < len(in); i++ {
		if o.Teacher == TeacherDense && i == 5 || o.Teacher != TeacherDense && i == 4 {
			continue
		}
		if err := sameElements(in, 0, i); err != nil {
			return nil, err
		}
	}
	if d.At('V') == 0 || o.Teacher == TeacherDense && d.At('U') == 0 {
		return nil, fmt.Errorf("input 1 is %v: the vocabulary is empty", in[1])
	}
	if in[0].Shape[1] == 0 {
		return nil, fmt.Errorf("input 0 is %v: rows have no numbers", in[0])
	}
	if o.Teacher == TeacherDense {
		if in[4].Shape[1] == 0 {
			return nil, fmt.Errorf("input 4 is %v: rows have no numbers", in[4])
		}
	} else if k := in[4].Shape[1]; k < 1 || k > MaxSupport || in[5].Shape[1] != k+1 {
		return nil, fmt.Errorf("inputs 4 and 5 are %v and %v, want 1 to %d tokens and one log-probability more than "+
			"tokens", in[4], in[5], MaxSupport)
	}
	if err := o.checkAttributes(); err != nil {
		return nil, err
	}
	each, sum := T(in[0].DType, in[0].Shape[0]), T(in[0].DType)
	out := []Type{sum}
	if o.Grad {
		out = append(out, in[0])
	}
	return append(out, each, sum, sum, sum), nil
}

// checkAttributes returns the first attribute that is out of range.
func (o LinearDivergence) checkAttributes() error {
	if err := checkHead(o.Chunk, o.Cap); err != nil {
		return err
	}
	if err := checkHead(o.Chunk, o.TeacherCap); err != nil {
		return fmt.Errorf("of the teacher: %w", err)
	}
	finite := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	switch {
	case !(o.Beta >= 0 && o.Beta <= 1):
		return fmt.Errorf("attribute Beta is %v, want 0 to 1", o.Beta)
	case !finite(o.Temperature) || o.Temperature == 0:
		return fmt.Errorf("attribute Temperature is %v, want a number above 0", o.Temperature)
	case !finite(o.Alpha):
		return fmt.Errorf("attribute Alpha is %v, want 0 or more", o.Alpha)
	case !finite(o.CrossEntropy):
		return fmt.Errorf("attribute CrossEntropy is %v, want 0 or more", o.CrossEntropy)
	case o.Teacher > TeacherZero:
		return fmt.Errorf("attribute Teacher is %d, want 0 to %d", o.Teacher, TeacherZero)
	case o.Teacher == TeacherZero && o.Beta != 0:
		return fmt.Errorf("attribute Beta is %v, want 0: the divergence is infinite where the teacher's other tokens "+
			"have no probability", o.Beta)
	}
	return nil
}

// Terminal marks the end of a graph: the kernel itself computes the gradient of the loss.
func (LinearDivergence) Terminal() {}

// Grads returns the gradient that the forward pass computed.
func (o LinearDivergence) Grads() Backward {
	grads := make([]Ref, len(o.inputs()))
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

// divergencePart is the number of logits that a row's body handles at a time.
const divergencePart = 256

// support returns the number of a sparse teacher's tokens; 0 = the teacher is dense.
func (o LinearDivergence) support(in []Type) int {
	if o.Teacher == TeacherDense {
		return 0
	}
	return in[4].Shape[1]
}

// commonTokens returns the inputs with the heads of both models cut to the tokens that both have, where the teacher is
// dense: models pad their heads to different numbers of rows. typeOf returns the type of an input, and cut an input of
// another type over the start of its memory.
func commonTokens[In any](o LinearDivergence, in []In, typeOf func(In) Type, cut func(In, Type) In) []In {
	if o.Teacher != TeacherDense {
		return in
	}
	all, tokens := slices.Clone(in), min(typeOf(in[1]).Shape[0], typeOf(in[5]).Shape[0])
	for _, i := range []int{1, 5} {
		t := typeOf(in[i])
		all[i] = cut(in[i], T(t.DType, tokens, t.Shape[1]))
	}
	return all
}

// commonTypes is commonTokens of types alone.
func (o LinearDivergence) commonTypes(in []Type) []Type {
	return commonTokens(o, in, func(t Type) Type { return t }, func(_, t Type) Type { return t })
}

// Scratch returns the bytes of headChunks, of both models where the teacher is dense, and what each row needs.
func (o LinearDivergence) Scratch(in []Type, _ int) int64 {
	in = o.commonTypes(in)
	size, rows := int64(in[0].DType.Size()), int64(headRows(o.Chunk, in[0]))
	n := headScratch(o.Chunk, in[0], in[1]) + 3*AlignUp(int64(in[0].Shape[0])*size)
	n += AlignUp(rows * 3 * divergencePart * size)
	if o.Teacher == TeacherDense {
		n += AlignUp(rows*int64(in[5].Shape[0])*size) + AlignUp(rows*int64(in[4].Shape[1])*size)
		if in[0].DType == F64 && in[5].DType != F64 {
			n += AlignUp(int64(panelRows*in[4].Shape[1]) * size)
		}
		return n
	}
	return n + AlignUp(rows*int64(3*(o.support(in)+1))*size)
}

// CPU binds the float64 or the float32 body.
func (o LinearDivergence) CPU(c *CPU, in, out []Tensor) func() {
	in = commonTokens(o, in, func(t Tensor) Type { return t.Type }, func(t Tensor, as Type) Tensor {
		return NewTensor(as, t.mem)
	})
	return byFloat(in[0], bindDivergence[float32], bindDivergence[float64])(c, o, in, out)
}

// linearDivergence is a bound LinearDivergence.
type linearDivergence[F Float] struct {
	*headChunks[F]
	LinearDivergence
	loops                     *simd.Loops[F]
	dx, each                  []F
	divergence, nll, agreeing []F // [M], of each row
	scale                     []F
	weights                   []F // [M], of each row; nil = all are one
	scaling                   []F // the loss scale's state, by which the gradient alone is multiplied
	parts                     []F // [chunk,3,divergencePart]: probabilities of a part of a row's logits

	// Of a dense teacher: its logits [chunk,V].
	teacher []F

	// Of a sparse teacher.
	k          int     // tokens of a row
	ids        []int32 // [M,K]
	logps      []F     // [M,K+1]
	ofSupports []F     // [chunk,3,K+1]
}

func bindDivergence[F Float](c *CPU, o LinearDivergence, in, out []Tensor) func() {
	e := &linearDivergence[F]{
		headChunks: newHeadChunks[F](c, o.Chunk, in[0], in[1], in[2]), LinearDivergence: o, loops: simd.Best[F](),
		scale: Floats[F](in[3]), scaling: lossScaling[F](o.Scaled, in, len(in)-1), each: Floats[F](out[len(out)-4]),
	}
	if o.Weighted {
		e.weights = Floats[F](in[6])
	}
	m := len(e.labels)
	e.divergence, e.nll, e.agreeing = e.take(m), e.take(m), e.take(m)
	e.parts = e.take(e.chunk * 3 * divergencePart)
	if o.Teacher == TeacherDense {
		e.bindTeacher(c, in[4], in[5])
	} else {
		e.k, e.ids, e.logps = in[4].Shape[1], in[4].I32(), Floats[F](in[5])
		e.ofSupports = e.take(e.chunk * 3 * (e.k + 1))
	}
	if o.Grad {
		e.dx = Floats[F](out[1])
	}
	loss, sums := Floats[F](out[0]), out[len(out)-3:]
	walk := e.walk(e.untrained, e.row, gradientOf[F]{e.logits, e.dx})
	return func() {
		walk()
		loss[0] = F(sumOf(e.each) * float64(e.scale[0]))
		for i, of := range [][]F{e.divergence, e.nll, e.agreeing} {
			Floats[F](sums[i])[0] = F(sumOf(of))
		}
	}
}

// bindTeacher makes every chunk compute the teacher's logits too, from its hidden states y and its head u.
func (e *linearDivergence[F]) bindTeacher(c *CPU, y, u Tensor) {
	hidden, width := Floats[F](y), y.Shape[1]
	e.teacher = e.take(e.chunk * e.vocab)
	rows, panel := e.take(e.chunk*width), []F(nil)
	if y.DType == F64 && u.DType != F64 {
		panel = e.take(panelRows * width)
	}
	head := headOf[F](c, u)
	e.also = func(n int) {
		for i, t := range e.index[e.first:][:n] {
			copy(rows[i*width:][:width], hidden[int(t)*width:])
		}
		head.logits(e.teacher, rows, n, panel)
	}
}

// untrained writes the losses and the gradient of row t, which has no label.
func (e *linearDivergence[F]) untrained(t int) {
	e.each[t], e.divergence[t], e.nll[t], e.agreeing[t] = 0, 0, 0, 0
	if e.dx != nil {
		clear(e.dx[t*e.width:][:e.width])
	}
}

// row computes the loss of the chunk's row i and turns its logits into their gradient.
func (e *linearDivergence[F]) row(i int) {
	t, label, logits := e.at(i)
	if e.Cap > 0 {
		e.loops.SoftCap(logits, logits, F(e.Cap))
	}
	if label < 0 || label >= e.vocab || !e.known(t) {
		nan := F(math.NaN())
		e.each[t], e.divergence[t], e.nll[t], e.agreeing[t] = nan, nan, nan, nan
		for j := range logits {
			logits[j] = nan
		}
		return
	}
	r := divergenceRow[F]{e: e, i: i, t: t, label: label, z: logits, weight: 1}
	if e.weights != nil {
		r.weight = float64(e.weights[t])
	}
	own := float64(logits[label])
	first := likeliestFinite(logits)
	r.total1, r.top1 = r.sumExp(logits)
	n := math.Log(r.total1) + float64(r.top1) - own
	var d float64
	var of int
	if e.Teacher == TeacherDense {
		d, of = r.dense()
	} else {
		d, of = r.sparse()
	}
	e.divergence[t], e.nll[t], e.agreeing[t] = F(d), F(n), 0
	if first == of {
		e.agreeing[t] = 1
	}
	e.each[t] = F(r.weight * (e.Alpha*d + e.CrossEntropy*n))
}

// known reports whether the teacher's tokens of row t are in the vocabulary.
func (e *linearDivergence[F]) known(t int) bool {
	if e.Teacher == TeacherDense {
		return true
	}
	for _, id := range e.ids[t*e.k:][:e.k] {
		if int(id) >= e.vocab {
			return false
		}
	}
	return true
}

// likeliestFinite returns the index of the largest number, of equals the first; NaN is never the largest.
func likeliestFinite[F Float](row []F) int {
	at, most := 0, F(math.Inf(-1))
	for i, v := range row {
		if v > most {
			at, most = i, v
		}
	}
	return at
}

// divergenceRow computes the divergence of one row and its gradient.
type divergenceRow[F Float] struct {
	e            *linearDivergence[F]
	i, t, label  int
	z            []F     // the student's logits, divided by the temperature once they have been read as they are
	weight       float64 // the row's weight
	top1         F       // the largest logit
	total1       float64 // sum of exp(logit - top1)
	top          F       // the largest of z
	total        float64 // sum of exp(z - top)
	outside      float64 // the same over the tokens that are not in a sparse teacher's support
	topT, totalT float64 // top and total of a dense teacher

	ids        []int32 // [K] the support of a sparse teacher
	zs, ls, lt []F     // [K+1] of the support: z, and the log-probabilities of student and teacher
}

// part returns buffer b of the row, for n numbers.
func (r *divergenceRow[F]) part(b, n int) []F {
	return r.e.parts[(3*r.i+b)*divergencePart:][:n]
}

// sumExp returns the largest number and the sum of the exponentials of numbers less that.
func (r *divergenceRow[F]) sumExp(x []F) (total float64, top F) {
	top = r.e.loops.Max(x)
	for at := 0; at < len(x); at += divergencePart {
		p := x[at:min(at+divergencePart, len(x))]
		total += float64(r.e.loops.Exp(r.part(0, len(p)), p, top))
	}
	return total, top
}

// cool divides logits by the temperature.
func (r *divergenceRow[F]) cool(x []F) {
	if r.e.Temperature != 1 {
		r.e.loops.Scale(x, x, F(1/r.e.Temperature))
	}
}

// through returns the factor of the gradient for a logit that is z once it is capped and divided by the temperature.
func (r *divergenceRow[F]) through(z F) F {
	if r.e.Cap == 0 {
		return 1
	}
	y := float64(z) * r.e.Temperature / r.e.Cap
	return F(1 - y*y)
}

// factor returns what the row's gradient is multiplied by.
func (r *divergenceRow[F]) factor() float64 {
	return r.weight * float64(r.e.scale[0]) * float64(r.e.scaling[LossScaleNow])
}

// labels writes the probabilities of a part of z at temperature 1, times the weight of the cross-entropy, to buffer 2;
// nil = it has none.
func (r *divergenceRow[F]) labels(part []F) []F {
	if r.e.CrossEntropy == 0 {
		return nil
	}
	p := r.part(2, len(part))
	copy(p, part)
	if r.e.Temperature != 1 {
		r.e.loops.Scale(p, p, F(r.e.Temperature))
	}
	r.e.loops.Exp(p, p, r.top1)
	r.e.loops.Scale(p, p, F(r.e.CrossEntropy/r.total1))
	return p
}

// dense returns the divergence from a dense teacher and the teacher's most likely token, and turns z into its gradient.
func (r *divergenceRow[F]) dense() (d float64, first int) {
	e := r.e
	y := e.teacher[r.i*e.vocab:][:e.vocab]
	if e.TeacherCap > 0 {
		e.loops.SoftCap(y, y, F(e.TeacherCap))
	}
	first = likeliestFinite(y)
	r.cool(y)
	r.cool(r.z)
	r.total, r.top = r.sumExp(r.z)
	total, top := r.sumExp(y)
	r.totalT, r.topT = total, float64(top)
	own := 0. // of a Jensen-Shannon divergence: KL(s|m)
	r.each(y, func(_ int, ps, pt, ls, lt float64) {
		switch {
		case e.Beta == 0:
			d += times(pt, lt-ls)
		case e.Beta == 1:
			d += times(ps, ls-lt)
		default:
			lm := mixture(e.Beta, ps, pt)
			own += times(ps, ls-lm)
			d += e.Beta*times(pt, lt-lm) + (1-e.Beta)*times(ps, ls-lm)
		}
	})
	if e.dx == nil {
		return d, first
	}
	cold := r.factor() * e.Alpha / e.Temperature
	r.each(y, func(v int, ps, pt, ls, lt float64) {
		g := 0.
		switch {
		case e.Beta == 0:
			g = ps - pt
		case e.Beta == 1:
			g = times(ps, ls-lt-d)
		default:
			g = (1 - e.Beta) * times(ps, ls-mixture(e.Beta, ps, pt)-own)
		}
		y[v] = F(cold * g)
	})
	ofLabel := F(r.factor()*e.CrossEntropy) * r.through(r.z[r.label])
	r.finish(func(from int) []F { return y[from:] })
	r.z[r.label] -= ofLabel
	return d, first
}

// times is p x, 0 where p is 0.
func times(p, x float64) float64 {
	if p == 0 {
		return 0
	}
	return p * x
}

// mixture is log((1-beta) ps + beta pt).
func mixture(beta, ps, pt float64) float64 { return math.Log((1-beta)*ps + beta*pt) }

// each calls f with the probabilities and log-probabilities of student and teacher of every token.
func (r *divergenceRow[F]) each(y []F, f func(v int, ps, pt, ls, lt float64)) {
	logS, logT := math.Log(r.total)+float64(r.top), math.Log(r.totalT)+r.topT
	for at := 0; at < len(y); at += divergencePart {
		s, t := r.z[at:min(at+divergencePart, len(y))], y[at:min(at+divergencePart, len(y))]
		ps, pt := r.part(0, len(s)), r.part(1, len(t))
		r.e.loops.Exp(ps, s, r.top)
		r.e.loops.Exp(pt, t, F(r.topT))
		for j := range s {
			f(at+j, float64(ps[j])/r.total, float64(pt[j])/r.totalT, float64(s[j])-logS, float64(t[j])-logT)
		}
	}
}

// finish turns z into the gradient for the logits, without the label's own part. parts returns the divergence's
// gradients from a token on.
func (r *divergenceRow[F]) finish(parts func(from int) []F) {
	factor := F(r.factor())
	for from := 0; from < len(r.z); from += divergencePart {
		part := r.z[from:min(from+divergencePart, len(r.z))]
		p, g := r.labels(part), parts(from)
		for j, z := range part {
			d := g[j]
			if p != nil {
				d += factor * p[j]
			}
			part[j] = d * r.through(z)
		}
	}
}

// sparse returns the divergence from a sparse teacher and the teacher's most likely token, -1 = none, and turns z into
// its gradient.
func (r *divergenceRow[F]) sparse() (d float64, first int) {
	e := r.e
	n := e.k + 1
	r.ids = e.ids[r.t*e.k:][:e.k]
	r.zs, r.ls, r.lt = e.ofSupports[3*r.i*n:][:n], e.ofSupports[(3*r.i+1)*n:][:n], e.ofSupports[(3*r.i+2)*n:][:n]
	copy(r.lt, e.logps[r.t*n:])
	r.cool(r.z)
	r.top = e.loops.Max(r.z)
	first = -1
	most := F(math.Inf(-1))
	for k, id := range r.ids {
		if id < 0 {
			r.lt[k] = F(math.Inf(-1))
			continue
		}
		r.zs[k] = r.z[id]
		if first < 0 || r.lt[k] > most {
			first, most = int(id), r.lt[k]
		}
	}
	r.normalise()
	d, slope := r.divergeSupport()
	if e.dx != nil {
		r.spread(slope)
	}
	return d, first
}

// normalise writes the student's log-probabilities of the support, and of all other tokens as the last, to ls, and
// normalises the teacher's in lt. It leaves in total and outside the sums that it divided by.
func (r *divergenceRow[F]) normalise() {
	e, last := r.e, r.e.k
	const never = 1e4 // exp(-1e4) is zero
	for _, id := range r.ids {
		if id >= 0 {
			r.z[id] = r.top - never
		}
	}
	for at := 0; at < len(r.z); at += divergencePart {
		p := r.z[at:min(at+divergencePart, len(r.z))]
		r.outside += float64(e.loops.Exp(r.part(0, len(p)), p, r.top))
	}
	inside := 0.
	for k, id := range r.ids {
		if id >= 0 {
			r.z[id] = r.zs[k]
			inside += math.Exp(float64(r.zs[k] - r.top))
		}
	}
	r.total = inside + r.outside
	if e.Teacher == TeacherRenormalised {
		r.total, r.outside = inside, 0
		renormalise(r.lt[:last])
	}
	lse := math.Log(r.total) + float64(r.top)
	for k := range r.ids {
		r.ls[k] = F(float64(r.zs[k]) - lse)
	}
	r.ls[last] = F(math.Log(r.outside) + float64(r.top) - lse)
}

// renormalise makes log-probabilities those of a distribution over them alone.
func renormalise[F Float](l []F) {
	most, sum := math.Inf(-1), 0.
	for _, x := range l {
		most = max(most, float64(x))
	}
	for _, x := range l {
		sum += math.Exp(float64(x) - most)
	}
	for k, x := range l {
		l[k] = F(float64(x) - math.Log(sum) - most)
	}
}

// divergeSupport returns the divergence over the support and, where it is a bucket, the other tokens, and writes to lt
// the derivative by each log-probability of the student. slope is the sum of these.
func (r *divergenceRow[F]) divergeSupport() (d, slope float64) {
	e := r.e
	for k := range r.lt {
		if k < e.k && r.ids[k] < 0 || k == e.k && e.Teacher != TeacherBucket {
			r.lt[k] = 0
			continue
		}
		s, t := float64(r.ls[k]), float64(r.lt[k])
		ps, pt, g := math.Exp(s), math.Exp(t), 0.
		switch {
		case e.Beta == 0:
			d += times(pt, t-s)
			g = -pt
		case e.Beta == 1:
			d += times(ps, s-t)
			g = times(ps, s-t)
		default:
			m := mixture(e.Beta, ps, pt)
			d += e.Beta*times(pt, t-m) + (1-e.Beta)*times(ps, s-m)
			g = (1 - e.Beta) * times(ps, s-m)
		}
		r.lt[k] = F(g)
		slope += g
	}
	return d, slope
}

// spread turns z into its gradient, from the derivatives by the log-probabilities of the support in lt and their sum.
func (r *divergenceRow[F]) spread(slope float64) {
	e, factor := r.e, r.factor()
	cold, ofLabel := factor*e.Alpha/e.Temperature, F(factor*e.CrossEntropy)*r.through(r.z[r.label])
	for k, id := range r.ids {
		if id < 0 {
			continue
		}
		z := r.z[id]
		g := cold * (float64(r.lt[k]) - math.Exp(float64(r.ls[k]))*slope)
		if e.CrossEntropy > 0 {
			g += factor * e.CrossEntropy * math.Exp(float64(z)*e.Temperature-float64(r.top1)) / r.total1
		}
		r.zs[k] = F(g) * r.through(z)
	}
	outside := 0. // gradient of a token outside of the support, divided by exp(z - top)
	if r.outside > 0 {
		outside = -slope / r.total
		if e.Teacher == TeacherBucket {
			outside += float64(r.lt[e.k]) / r.outside
		}
	}
	share, q := F(cold*outside), r.part(0, divergencePart)
	r.finish(func(from int) []F {
		part := r.z[from:min(from+divergencePart, len(r.z))]
		e.loops.Exp(q[:len(part)], part, r.top)
		e.loops.Scale(q[:len(part)], q[:len(part)], share)
		return q
	})
	for k, id := range r.ids {
		if id >= 0 {
			r.z[id] = r.zs[k]
		}
	}
	r.z[r.label] -= ofLabel
}

// Cost counts the labelled rows alone: the GEMMs of both models, and a few functions for each logit.
func (o LinearDivergence) Cost(in, out []Type, c Content) Cost {
	gemms := 1
	if o.Grad {
		gemms = 2
	}
	cost := headCost(in, out, gemms, 8, c)
	if o.Teacher == TeacherDense {
		cost.FLOPs += headCost(in[4:6], nil, 1, 8, c).FLOPs
	}
	return cost
}

// Stored keeps hidden states, their gradient and vocabulary matrices in the compute type, everything else in fp32.
func (o LinearDivergence) Stored([]DType) (want, out []DType) {
	want = []DType{ComputeType, ComputeType, I32, F32}
	if o.Teacher == TeacherDense {
		want = append(want, ComputeType, ComputeType)
	} else {
		want = append(want, I32, F32)
	}
	if o.Weighted {
		want = append(want, F32)
	}
	out = []DType{F32, F32, F32, F32, F32}
	if o.Grad {
		out = []DType{F32, ComputeType, F32, F32, F32, F32}
	}
	return storedScaling(o.Scaled, want...), out
}

// ScratchGPU returns the bytes of a chunk's logits of each model, three numbers a row, and the GEMMs' scratch.
func (o LinearDivergence) ScratchGPU(in, _ []Type, sm int) int64 {
	in = o.commonTypes(in)
	n := headScratchGPU(o.Chunk, in[0], in[1], sm, 1) + 3*rowNumbers(in[0].Shape[0])
	if o.Teacher == TeacherDense {
		n += headScratchGPU(o.Chunk, in[4], in[5], sm, 1)
	}
	return n
}
