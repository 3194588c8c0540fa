package graph

import (
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// halfSquares is an objective over sequences: half the sum of their sums' squares, whose gradient is the sums.
type halfSquares struct{}

func (halfSquares) Name() string { return "half_squares" }
func (halfSquares) Terminal()    {}
func (halfSquares) Shape(in []kernel.Type) ([]kernel.Type, error) {
	_, err := kernel.Want(in, "f[S]")
	return []kernel.Type{kernel.T(in[0].DType)}, err
}
func (halfSquares) CPU(_ *kernel.CPU, in, out []kernel.Tensor) func() {
	return func() {
		sum := 0.0
		for _, s := range in[0].F64() {
			sum += s * s / 2
		}
		out[0].F64()[0] = sum
	}
}
func (halfSquares) Grads() kernel.Backward { return kernel.Backward{Grads: []kernel.Ref{kernel.In(0)}} }
func (halfSquares) Stored([]kernel.DType) (want, out []kernel.DType) {
	return []kernel.DType{kernel.F32}, []kernel.DType{kernel.F32}
}

// logProbNetwork records an objective over whole sequences: hidden states, log-probabilities, sums, halfSquares.
func logProbNetwork(b *Builder, float kernel.DType) (loss, A *Value) {
	A = b.Param("params", "A", kernel.T(float, width, width))
	z := b.Apply(kernel.MatMul{TransB: true}, b.Frozen("x", kernel.T(float, rows, width)), A)
	labels := b.Batch("labels", kernel.T(kernel.I32, rows))
	logp := b.ApplyAll(kernel.LinearLogProbs{Chunk: 4, Grad: true}, z, b.Frozen("W", kernel.T(float, vocab, width)),
		labels)
	sums := b.ApplyAll(kernel.SequenceSums{}, logp[0], labels, b.Batch("starts", kernel.T(kernel.I32, 3)))
	return b.Apply(halfSquares{}, sums[0]), A
}

// TestObjectiveOverSequences: the gradient goes from a function of sums of log-probabilities back to a weight.
func TestObjectiveOverSequences(t *testing.T) {
	b := NewBuilder(kernel.F64)
	loss, A := logProbNetwork(b, kernel.F64)
	grad := b.Grad(loss, A)[0]
	m, run := mustBind(t, mustCompile(t, b, loss, grad))
	for _, name := range m.Names() {
		x, _ := m.Tensor(name)
		switch name {
		case "one":
		case "labels":
			copy(x.I32(), labelIDs)
		case "starts":
			copy(x.I32(), []int32{0, 2, rows})
		default:
			copy(x.F64(), data(name, x.Shape...))
		}
	}
	run.Run("main")
	got := append([]float64(nil), run.Tensor(grad).F64()...)
	a, err := m.Tensor("A")
	if err != nil {
		t.Fatal(err)
	}
	const step = 1e-5
	for j, was := range a.F64() {
		at := func(v float64) float64 {
			a.F64()[j] = v
			run.Run("main")
			return run.Tensor(loss).F64()[0]
		}
		want := (at(was+step) - at(was-step)) / (2 * step)
		a.F64()[j] = was
		if !(math.Abs(got[j]-want) <= 1e-8*math.Max(1, math.Abs(want))) {
			t.Errorf("d loss / d A[%d] = %.12g, central difference %.12g", j, got[j], want)
		}
	}
}

// TestObjectiveOverSequencesForGPU plans the same for a GPU, in every precision.
func TestObjectiveOverSequencesForGPU(t *testing.T) {
	for _, p := range []kernel.Precision{kernel.PrecisionBF16, kernel.PrecisionFP16, kernel.PrecisionTF32,
		kernel.PrecisionFP32} {
		b := NewBuilder(kernel.F32)
		loss, A := logProbNetwork(b, kernel.F32)
		grad := b.Grad(loss, A)[0]
		on, err := NewChip(DefaultChip(), 2, p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := on.Compile(b, loss, grad); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}
