package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/kernel/simd"
)

// Untrained is the label of a row that no loss is taken of.
const Untrained = -100

// LinearCrossEntropy is the vocabulary head and the loss in one, so that the logits [M,V] never exist:
// trained rows are gathered and go through in chunks of Chunk rows.
//
//	x f[M,C], w w[V,C], labels i32[M], scale f[1], (scaling if Scaled) -> loss f[], (dx f[M,C] if Grad), nll f[M]
//	nll = logsumexp(x wᵀ) - (x wᵀ)[label], 0 in rows labelled -100;  loss = scale * sum(nll)
//
// With Cap > 0 the logits are Cap * tanh(x wᵀ / Cap) in place of x wᵀ.
//
// labels[t] is what row t must predict. With Grad the gradient of the loss for x is computed along the way,
// as if the gradient of the loss were one, or the loss scale where Scaled; without it nothing has a gradient. w is frozen. A label outside
// the vocabulary gives NaN: the data set checks labels.
type LinearCrossEntropy struct {
	Chunk int // rows at a time: its logits take Chunk*V numbers of scratch
	Grad  bool
	// Scaled multiplies the gradient, not the loss, by the loss scale.
	Scaled bool
	Cap    float64 // soft cap of the logits; 0 = none
}

func (LinearCrossEntropy) Name() string { return "crossentropy" }

func (o LinearCrossEntropy) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, withScaling(o.Scaled, "f[M,C]", "w[V,C]", "i32[M]", "f[1]")...)
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 3, len(in)-1); err != nil {
		return nil, err
	}
	if o.Chunk <= 0 {
		return nil, fmt.Errorf("attribute Chunk is %d, want one row or more", o.Chunk)
	}
	if !(o.Cap >= 0) || math.IsInf(o.Cap, 0) {
		return nil, fmt.Errorf("attribute Cap is %v, want a number above zero, or zero for none", o.Cap)
	}
	if d.At('V') == 0 || d.At('C') == 0 && o.Cap > 0 {
		return nil, fmt.Errorf("input 1 is %v: the vocabulary is empty", in[1])
	}
	loss, nll := T(in[0].DType), T(in[0].DType, d.At('M'))
	if o.Grad {
		return []Type{loss, in[0], nll}, nil
	}
	return []Type{loss, nll}, nil
}

// Terminal marks the end of a graph: the gradient is that of the loss itself.
func (LinearCrossEntropy) Terminal() {}

func (o LinearCrossEntropy) Grads() Backward {
	grads := make([]Ref, 4, 5)
	if o.Scaled {
		grads = grads[:5]
	}
	if o.Grad {
		grads[0] = Out(1)
	}
	return Backward{Grads: grads}
}

func (o LinearCrossEntropy) Scratch(in []Type, workers int) int64 {
	rows, width, vocab, size := o.rows(in[0]), in[0].Shape[1], in[1].Shape[0], in[0].DType.Size()
	n := AlignUp(int64(rows*vocab*size)) + AlignUp(int64(rows*width*size)) + AlignUp(int64(4*in[0].Shape[0]))
	if in[0].DType == F64 && in[1].DType != F64 {
		n += int64(panelRows * width * size)
	}
	return n
}

// rows is how many rows a chunk has at most.
func (o LinearCrossEntropy) rows(x Type) int { return min(o.Chunk, x.Shape[0]) }

func (o LinearCrossEntropy) CPU(c *CPU, in, out []Tensor) func() {
	if in[0].DType == F64 {
		return bindCrossEntropy(c, o, in, out, head64(c, in[1]))
	}
	return bindCrossEntropy(c, o, in, out, head32(c, in[1]))
}

// head multiplies by the vocabulary matrix: logits [n,V] = x wᵀ, dx [n,C] = dlogits w.
type head[F Float] struct {
	logits func(logits, x []F, n int, panel []F)
	dx     func(dx, dlogits []F, n int, panel []F)
}

func head32(c *CPU, w Tensor) head[float32] {
	vocab, width := w.Shape[0], w.Shape[1]
	if w.DType == F32 {
		w := w.F32()
		return head[float32]{
			func(logits, x []float32, n int, _ []float32) {
				gemm.Gemm(c.Pool, false, true, n, vocab, width, 1, x, width, w, width, 0, logits, vocab)
			},
			func(dx, dlogits []float32, n int, _ []float32) {
				gemm.Gemm(c.Pool, false, false, n, width, vocab, 1, dlogits, vocab, w, width, 0, dx, width)
			},
		}
	}
	var packed gemm.Dequantiser = rowConverter(converter[float32](w))
	return head[float32]{
		func(logits, x []float32, n int, _ []float32) {
			gemm.GemmDequantised(c.Pool, true, n, vocab, width, 1, x, width, packed, 0, logits, vocab)
		},
		func(dx, dlogits []float32, n int, _ []float32) {
			gemm.GemmDequantised(c.Pool, false, n, width, vocab, 1, dlogits, vocab, packed, 0, dx, width)
		},
	}
}

func head64(c *CPU, w Tensor) head[float64] {
	vocab, width := w.Shape[0], w.Shape[1]
	if w.DType == F64 {
		w := w.F64()
		return head[float64]{
			func(logits, x []float64, n int, _ []float64) {
				gemm.Gemm(c.Pool, false, true, n, vocab, width, 1, x, width, w, width, 0, logits, vocab)
			},
			func(dx, dlogits []float64, n int, _ []float64) {
				gemm.Gemm(c.Pool, false, false, n, width, vocab, 1, dlogits, vocab, w, width, 0, dx, width)
			},
		}
	}
	convert := converter[float64](w)
	return head[float64]{
		func(logits, x []float64, n int, panel []float64) {
			for v := 0; v < vocab; v += panelRows {
				rows := min(panelRows, vocab-v)
				convert(panel[:rows*width], v*width)
				gemm.Gemm(c.Pool, false, true, n, rows, width, 1, x, width, panel, width, 0, logits[v:], vocab)
			}
		},
		func(dx, dlogits []float64, n int, panel []float64) {
			for v := 0; v < vocab; v += panelRows {
				rows, beta := min(panelRows, vocab-v), 1.
				if v == 0 {
					beta = 0
				}
				convert(panel[:rows*width], v*width)
				gemm.Gemm(c.Pool, false, false, n, width, rows, 1, dlogits[v:], vocab, panel, width, beta, dx, width)
			}
		},
	}
}

// crossEntropy is a bound LinearCrossEntropy.
type crossEntropy[F Float] struct {
	loops        *simd.Loops[F]
	x, dx, nll   []F
	labels       []int32
	scale        []F
	scaling      []F // of the gradient besides
	width, vocab int
	cap          F // 0: none

	logits []F     // [chunk,V], then the gradient for them
	rows   []F     // [chunk,C], the chunk's rows of x, then of dx
	panel  []F     // [panelRows,C], rows of w where float64 has to be made of them
	index  []int32 // the trained rows
	first  int     // of index, in the running chunk
}

func bindCrossEntropy[F Float](c *CPU, o LinearCrossEntropy, in, out []Tensor, w head[F]) func() {
	chunk := o.rows(in[0].Type)
	e := &crossEntropy[F]{
		loops: simd.Best[F](), x: Floats[F](in[0]), labels: in[2].I32(), scale: Floats[F](in[3]), scaling: lossScaling[F](o.Scaled, in, 4), nll: Floats[F](out[len(out)-1]),
		width: in[0].Shape[1], vocab: in[1].Shape[0], cap: F(o.Cap),
	}
	if o.Grad {
		e.dx = Floats[F](out[1])
	}
	size, mem := int64(in[0].DType.Size()), c.Scratch
	take := func(n int) []F {
		s := carve[F](mem, n)
		mem = mem[min(AlignUp(int64(n)*size), int64(len(mem))):]
		return s
	}
	e.logits, e.rows = take(chunk*e.vocab), take(chunk*e.width)
	e.index = carve[int32](mem, len(e.labels))
	mem = mem[AlignUp(4*int64(len(e.labels))):]
	if in[0].DType == F64 && in[1].DType != F64 {
		e.panel = take(panelRows * e.width)
	}
	loss, pool, row := Floats[F](out[0]), c.Pool, e.row
	return func() {
		trained := e.gather()
		// Chunks of one size: a short last one would read all of w for a few rows.
		chunks := (trained + chunk - 1) / max(chunk, 1)
		even := (trained + chunks - 1) / max(chunks, 1)
		for e.first = 0; e.first < trained; e.first += even {
			n := min(even, trained-e.first)
			for i, t := range e.index[e.first:][:n] {
				copy(e.rows[i*e.width:][:e.width], e.x[int(t)*e.width:])
			}
			w.logits(e.logits, e.rows, n, e.panel)
			pool.Parallel(n, row)
			if !o.Grad {
				continue
			}
			w.dx(e.rows, e.logits, n, e.panel)
			for i, t := range e.index[e.first:][:n] {
				copy(e.dx[int(t)*e.width:][:e.width], e.rows[i*e.width:])
			}
		}
		var sum float64
		for _, v := range e.nll {
			sum += float64(v)
		}
		loss[0] = F(sum * float64(e.scale[0]))
	}
}

// gather lists the trained rows and writes zeros for the others; it returns how many are trained.
func (e *crossEntropy[F]) gather() int {
	n := 0
	for t, label := range e.labels {
		if label == Untrained {
			e.nll[t] = 0
			if e.dx != nil {
				clear(e.dx[t*e.width:][:e.width])
			}
			continue
		}
		e.index[n] = int32(t)
		n++
	}
	return n
}

// row takes the loss of row i of the chunk and turns its logits into their gradient.
func (e *crossEntropy[F]) row(i int) {
	t, logits := e.index[e.first+i], e.logits[i*e.vocab:][:e.vocab]
	if e.cap > 0 {
		e.loops.SoftCap(logits, logits, e.cap)
	}
	label, top := int(e.labels[t]), e.loops.Max(logits)
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

// capped is the loss of a row of capped logits, which become the gradient for the logits before the cap.
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

// Cost counts the trained rows alone, two functions and two sums for each logit.
func (o LinearCrossEntropy) Cost(in, out []Type, c Content) Cost {
	rows := in[0].Shape[0]
	if c.Trained > 0 {
		rows = min(rows, c.Trained)
	}
	gemms := 1
	if o.Grad {
		gemms = 2
	}
	vocab, width := int64(in[1].Shape[0]), int64(in[1].Shape[1])
	return Cost{moved(in, out), int64(rows) * vocab * (2*int64(gemms)*width + 4)}
}

func (o LinearCrossEntropy) Stored([]DType) (want, out []DType) {
	want = storedScaling(o.Scaled, ComputeType, ComputeType, I32, F32)
	if o.Grad {
		return want, []DType{F32, ComputeType, F32}
	}
	return want, []DType{F32, F32}
}

// logitBytes is the scratch for a chunk's logits.
func (o LinearCrossEntropy) logitBytes(x, w Type) int64 {
	return (int64(o.rows(x))*int64(w.Shape[0])*int64(x.DType.Size()) + 255) &^ 255
}

func (o LinearCrossEntropy) ScratchGPU(in, _ []Type, sm int) int64 {
	logits, back := o.ops(in[0], in[1], o.rows(in[0]))
	return o.logitBytes(in[0], in[1]) + max(logits.scratch(sm), back.scratch(sm))
}

// ops are a chunk's logits = x wᵀ and dx = dlogits w, for rows of the chunk.
func (o LinearCrossEntropy) ops(x, w Type, rows int) (logits, back gemmOp) {
	V, C := w.Shape[0], w.Shape[1]
	d := x.DType
	return gemmOp{m: rows, n: V, k: C, transB: true, alpha: 1, operand: d, out: d}, gemmOp{m: rows, n: C, k: V, alpha: 1, operand: d, out: d}
}
