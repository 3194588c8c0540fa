package kernel

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/tierlora/tierlora/kernel/gemm"
)

// Untrained is the label of a row without a label: it has neither a loss nor a gradient.
const Untrained = -100

// checkHead checks the attributes that kernels with a vocabulary head share.
func checkHead(chunk int, cap float64) error {
	if chunk <= 0 {
		return fmt.Errorf("attribute Chunk is %d, want one row or more", chunk)
	}
	if !(cap >= 0) || math.IsInf(cap, 0) {
		return fmt.Errorf("attribute Cap is %v, want a number above zero, or zero for none", cap)
	}
	return nil
}

// HeadGradient says what a kernel with a vocabulary head computes of the gradient for the vocabulary matrix w [V,C].
// The gradient comes with that for x, from the same logits. Chunks are added up in their order.
type HeadGradient uint8

// The values of HeadGradient.
const (
	HeadFrozen  HeadGradient = iota // w has no gradient
	HeadTrained                     // the last output is the gradient f[V,C]
	// HeadOnto adds the gradient to the last input f[V,C], in that one's memory, which is the last output.
	HeadOnto
)

// HeadAccumulating is a kernel with a vocabulary head whose matrix is trained.
type HeadAccumulating interface {
	Kernel
	// AccumulateHead returns the form that adds the matrix's gradient, the last output, to a last input in its memory;
	// ok is false where the kernel computes no such gradient.
	AccumulateHead() (k Kernel, ok bool)
}

// inputs adds the pattern of the gradient that is added to.
func (h HeadGradient) inputs(patterns ...string) []string {
	if h == HeadOnto {
		patterns = append(patterns, "f[V,C]")
	}
	return patterns
}

// outputs adds the gradient's type, which is that of x.
func (h HeadGradient) outputs(x, w Type, out ...Type) []Type {
	if h != HeadFrozen {
		out = append(out, Type{x.DType, w.Shape})
	}
	return out
}

// stored adds the types in which a GPU stores the gradient.
func (h HeadGradient) stored(want, out []DType) ([]DType, []DType) {
	if h == HeadOnto {
		want = append(want, F32)
	}
	if h != HeadFrozen {
		out = append(out, F32)
	}
	return want, out
}

// overwrites pairs the gradient with the input that it is added to, the last of both.
func (h HeadGradient) overwrites(in, out int) []Alias {
	if h != HeadOnto {
		return nil
	}
	return []Alias{{Out: out - 1, In: in - 1}}
}

// check refuses a gradient for w without one for x.
func (h HeadGradient) check(grad bool) error {
	if h > HeadOnto {
		return fmt.Errorf("attribute Head is %d, want 0 to %d", h, HeadOnto)
	}
	if h != HeadFrozen && !grad {
		return fmt.Errorf("attribute Head is %d without Grad", h)
	}
	return nil
}

// gradientFor sets the reference to the gradient for w, which is output i.
func (h HeadGradient) gradientFor(grads []Ref, i int) {
	if h == HeadTrained {
		grads[1] = Out(i)
	}
}

// takeHeadGradient returns the gradient's memory, and inputs and outputs without it.
func takeHeadGradient[T any](h HeadGradient, in, out []T) (dw T, onlyIn, onlyOut []T) {
	if h == HeadOnto {
		in = in[:len(in)-1]
	}
	if h != HeadFrozen {
		dw, out = out[len(out)-1], out[:len(out)-1]
	}
	return dw, in, out
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

// headOf returns the vocabulary head with the matrix w for computing in F.
func headOf[F Float](c *CPU, w Tensor) head[F] {
	var f F
	if _, double := any(f).(float64); double {
		return any(head64(c, w)).(head[F])
	}
	return any(head32(c, w)).(head[F])
}

// headRows returns the number of rows that a chunk of at most chunk rows of x has.
func headRows(chunk int, x Type) int { return min(chunk, x.Shape[0]) }

// headScratch returns the working memory of headChunks in bytes: a chunk's logits, its rows of x, the list of labelled
// rows, and a panel of w where float64 is computed from narrower numbers.
func headScratch(chunk int, x, w Type) int64 {
	rows, width, vocab, size := headRows(chunk, x), x.Shape[1], w.Shape[0], x.DType.Size()
	n := AlignUp(int64(rows*vocab*size)) + AlignUp(int64(rows*width*size)) + AlignUp(int64(4*x.Shape[0]))
	if x.DType == F64 && w.DType != F64 {
		n += int64(panelRows * width * size)
	}
	return n
}

// headChunks computes the logits of the labelled rows of x, a chunk of rows at a time, so that a matrix of all logits
// never exists.
type headChunks[F Float] struct {
	head         head[F]
	pool         *gemm.Pool
	x            []F     // [M,C]
	labels       []int32 // [M]
	width, vocab int     // C and V
	chunk        int     // rows of a chunk at most

	dw   []F          // [V,C], the gradient for the matrix; nil = it is not wanted
	kind HeadGradient // whether dw holds a sum already

	logits []F     // [chunk,V]
	rows   []F     // [chunk,C]: the chunk's rows of x, then of a gradient
	panel  []F     // [panelRows,C]: rows of w, where float64 is computed from narrower numbers
	index  []int32 // the labelled rows, ascending
	first  int     // the running chunk's first row in index
	rest   []byte  // scratch behind that of headScratch

	also func(n int) // what else a chunk of n rows computes before its rows are visited; nil = nothing
}

func newHeadChunks[F Float](c *CPU, chunk int, x, w, labels Tensor) *headChunks[F] {
	h := &headChunks[F]{
		pool: c.Pool, x: Floats[F](x), labels: labels.I32(), width: x.Shape[1], vocab: w.Shape[0],
		chunk: headRows(chunk, x.Type), rest: c.Scratch,
	}
	h.head = headOf[F](c, w)
	h.logits, h.rows = h.take(h.chunk*h.vocab), h.take(h.chunk*h.width)
	h.index = carve[int32](h.rest, len(h.labels))
	h.rest = h.rest[AlignUp(4*int64(len(h.labels))):]
	if x.DType == F64 && w.DType != F64 {
		h.panel = h.take(panelRows * h.width)
	}
	return h
}

// take carves n numbers from the scratch that is left.
func (h *headChunks[F]) take(n int) []F {
	var f F
	s := carve[F](h.rest, n)
	h.rest = h.rest[min(AlignUp(int64(n)*int64(unsafe.Sizeof(f))), int64(len(h.rest))):]
	return s
}

// gradientOf is a gradient for a chunk's logits [chunk,V] and where the gradient for x [M,C] that follows from it goes;
// no dx = it is not wanted.
type gradientOf[F Float] struct{ dlogits, dx []F }

// trainHead makes walk compute the gradient for the vocabulary matrix, from the first of its gradients.
func (h *headChunks[F]) trainHead(kind HeadGradient, dw Tensor) {
	if h.kind = kind; kind != HeadFrozen {
		h.dw = Floats[F](dw)
	}
}

// addHead adds the gradient of n rows, from place first of index on, for the vocabulary matrix. It takes the rows of x
// into h.rows.
func (h *headChunks[F]) addHead(dlogits []F, n int) {
	for i, t := range h.index[h.first:][:n] {
		copy(h.rows[i*h.width:][:h.width], h.x[int(t)*h.width:])
	}
	beta := F(1)
	if h.first == 0 && h.kind == HeadTrained {
		beta = 0
	}
	gemm.Gemm(h.pool, true, false, h.vocab, h.width, n, 1, dlogits, h.vocab, h.rows, h.width, beta, h.dw, h.width)
}

// walk returns the work that calls unlabelled for every row without a label, and row for every row of each chunk once
// its logits are computed. row leaves the gradients for the logits, which are then multiplied by w.
func (h *headChunks[F]) walk(unlabelled, row func(i int), gradients ...gradientOf[F]) func() {
	return func() {
		labelled := h.list(unlabelled)
		if labelled == 0 && h.kind == HeadTrained {
			clear(h.dw)
		}
		// Chunks of one size: a short last one would read all of w for a few rows.
		chunks := (labelled + h.chunk - 1) / max(h.chunk, 1)
		even := (labelled + chunks - 1) / max(chunks, 1)
		for h.first = 0; h.first < labelled; h.first += even {
			n := min(even, labelled-h.first)
			for i, t := range h.index[h.first:][:n] {
				copy(h.rows[i*h.width:][:h.width], h.x[int(t)*h.width:])
			}
			h.head.logits(h.logits, h.rows, n, h.panel)
			if h.also != nil {
				h.also(n)
			}
			h.pool.Parallel(n, row)
			if h.dw != nil {
				h.addHead(gradients[0].dlogits, n)
			}
			for _, g := range gradients {
				if g.dx == nil {
					continue
				}
				h.head.dx(h.rows, g.dlogits, n, h.panel)
				for i, t := range h.index[h.first:][:n] {
					copy(g.dx[int(t)*h.width:][:h.width], h.rows[i*h.width:])
				}
			}
		}
	}
}

// list writes the labelled rows to index, calls unlabelled for the others, and returns how many are labelled.
func (h *headChunks[F]) list(unlabelled func(t int)) int {
	n := 0
	for t, label := range h.labels {
		if label == Untrained {
			unlabelled(t)
			continue
		}
		h.index[n] = int32(t)
		n++
	}
	return n
}

// at returns of the running chunk's row i the row of x, the label and the logits.
func (h *headChunks[F]) at(i int) (t, label int, logits []F) {
	t = int(h.index[h.first+i])
	return t, int(h.labels[t]), h.logits[i*h.vocab:][:h.vocab]
}

// headCost returns the cost of GEMMs of the labelled rows with the vocabulary matrix, and of some operations for each
// logit.
func headCost(in, out []Type, gemms, operations int, c Content) Cost {
	rows := in[0].Shape[0]
	if c.Trained > 0 {
		rows = min(rows, c.Trained)
	}
	vocab, width := int64(in[1].Shape[0]), int64(in[1].Shape[1])
	return Cost{moved(in, out), int64(rows) * vocab * (2*int64(gemms)*width + int64(operations))}
}

// logitBytes returns the device memory of a chunk's logits.
func logitBytes(chunk int, x, w Type) int64 {
	return (int64(headRows(chunk, x))*int64(w.Shape[0])*int64(x.DType.Size()) + 255) &^ 255
}

// gemms returns n GEMMs, and one more where the vocabulary matrix has a gradient.
func (h HeadGradient) gemms(n int) int {
	if h != HeadFrozen {
		n++
	}
	return n
}

// headScratchGPU returns the working memory on a device, in bytes: some matrices of a chunk's logits, and what its
// GEMMs need.
func headScratchGPU(chunk int, x, w Type, sm, matrices int) int64 {
	logits, back := headGEMMs(x, w, headRows(chunk, x))
	return int64(matrices)*logitBytes(chunk, x, w) + max(logits.scratch(sm), back.scratch(sm))
}

// scratchGPU is headScratchGPU of one matrix of logits, and of the GEMM of the matrix's gradient where it has one.
func (h HeadGradient) scratchGPU(chunk int, x, w Type, sm int) int64 {
	n := headScratchGPU(chunk, x, w, sm, 1)
	if h != HeadFrozen {
		n = max(n, logitBytes(chunk, x, w)+headGradientGEMM(x, w, headRows(chunk, x), 1).scratch(sm))
	}
	return n
}

// headGradientGEMM returns dw = dlogitsᵀ x + beta dw for some rows; dw is fp32.
func headGradientGEMM(x, w Type, rows int, beta float32) gemmOp {
	return gemmOp{m: w.Shape[0], n: w.Shape[1], k: rows, transA: true, alpha: 1, beta: beta, operand: x.DType, out: F32}
}

// headGEMMs returns logits = x wᵀ and dx = dlogits w for some rows.
func headGEMMs(x, w Type, rows int) (logits, back gemmOp) {
	V, C := w.Shape[0], w.Shape[1]
	d := x.DType
	return gemmOp{m: rows, n: V, k: C, transB: true, alpha: 1, operand: d, out: d},
		gemmOp{m: rows, n: C, k: V, alpha: 1, operand: d, out: d}
}
