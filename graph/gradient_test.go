package graph

import (
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tierlora/tierlora/kernel"
)

// The composed network of this file: y = x + (x Aᵀ) Bᵀ, h = swiglu(y Gᵀ, y Uᵀ), z = h Dᵀ + y, loss of z Wᵀ.
const (
	rows, width, rank, inner, vocab = 6, 5, 2, 7, 9
	lossScale                       = 1.0 / 5
)

var (
	paramShapes = map[string][]int{"A": {rank, width}, "B": {width, rank}, "G": {inner, width}, "U": {inner, width},
		"D": {width, inner}}
	paramNames = []string{"A", "B", "G", "U", "D"}
	labelIDs   = []int32{3, 0, kernel.Untrained, 8, 3, 1}
)

// data draws the same numbers for a name wherever it is asked for.
func data(name string, shape ...int) []float64 {
	r := rand.New(rand.NewPCG(uint64(name[0]), 5))
	n := 1
	for _, d := range shape {
		n *= d
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = 0.7 * r.NormFloat64()
	}
	return out
}

// network records the composed network in float64; with a norm and with the residual used more than once
// where more is wanted than Gorgonia has ops for.
func network(b *Builder, norm bool) (loss *Value, params []*Value) {
	real := func(shape ...int) kernel.Type { return kernel.T(kernel.F64, shape...) }
	p := map[string]*Value{}
	for _, n := range paramNames {
		p[n] = b.Param("params", n, real(paramShapes[n]...))
		params = append(params, p[n])
	}
	mul := kernel.MatMul{TransB: true}
	x := b.Batch("x", real(rows, width))
	y := b.Apply(kernel.Add{}, x, b.Apply(mul, b.Apply(mul, x, p["A"]), p["B"]))
	h := y
	if norm {
		h = b.Apply(kernel.RMSNorm{Eps: 1e-5}, y, b.Frozen("N", real(width)))
	}
	h = b.Apply(kernel.SwiGLU{}, b.Apply(mul, h, p["G"]), b.Apply(mul, h, p["U"]))
	z := b.Apply(kernel.Add{}, b.Apply(mul, h, p["D"]), y)
	if norm {
		z = b.Apply(kernel.Add{}, z, z) // one value, both terms of a sum
	}
	loss = b.Apply(kernel.LinearCrossEntropy{Chunk: 4, Grad: true}, z, b.Frozen("W", real(vocab, width)),
		b.Batch("labels", kernel.T(kernel.I32, rows)), b.Batch("scale", real(1)))
	return loss, params
}

// gradientsOf plans the network with its gradients and runs it.
func gradientsOf(t *testing.T, norm bool) (m *Memory, run *Run, loss *Value, grads []*Value) {
	t.Helper()
	b := NewBuilder(kernel.F64)
	loss, params := network(b, norm)
	grads = b.Grad(loss, params...)
	p := mustCompile(t, b, append([]*Value{loss}, grads...)...)
	m, run = mustBind(t, p)
	for _, name := range m.Names() {
		x, _ := m.Tensor(name)
		switch name {
		case "one":
		case "labels":
			copy(x.I32(), labelIDs)
		case "scale":
			x.F64()[0] = lossScale
		default:
			copy(x.F64(), data(name, x.Shape...))
		}
	}
	run.Run("main")
	return m, run, loss, grads
}

func TestGradientsEqualCentralDifferences(t *testing.T) {
	m, run, loss, grads := gradientsOf(t, true)
	const step = 1e-5
	worst := 0.0
	all := make([][]float64, len(grads))
	for i, g := range grads {
		all[i] = append(all[i], run.Tensor(g).F64()...)
	}
	for i, name := range paramNames {
		got := all[i]
		x, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for j, was := range x.F64() {
			at := func(v float64) float64 {
				x.F64()[j] = v
				run.Run("main")
				return run.Tensor(loss).F64()[0]
			}
			want := (at(was+step) - at(was-step)) / (2 * step)
			x.F64()[j] = was
			d := math.Abs(got[j] - want)
			worst = math.Max(worst, d)
			if !(d <= 1e-8) {
				t.Errorf("d loss / d %s[%d] = %.12g, central difference %.12g", name, j, got[j], want)
			}
		}
	}
	t.Logf("differs by at most %.3g", worst)
}

// TestGradientsEqualGorgonias builds the network of Gorgonia's own ops and lets its tape machine run it.
func TestGradientsEqualGorgonias(t *testing.T) {
	g := gorgonia.NewGraph()
	matrix := func(name string, values []float64, shape ...int) *gorgonia.Node {
		return gorgonia.NewMatrix(g, gorgonia.Float64, gorgonia.WithShape(shape...), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))))
	}
	p := map[string]*gorgonia.Node{}
	var nodes gorgonia.Nodes
	for _, n := range paramNames {
		p[n] = matrix(n, data(n, paramShapes[n]...), paramShapes[n]...)
		nodes = append(nodes, p[n])
	}
	must := gorgonia.Must
	mul := func(x, w *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Mul(x, must(gorgonia.Transpose(w)))) }
	oneHot := make([]float64, rows*vocab)
	for i, l := range labelIDs {
		if l >= 0 {
			oneHot[i*vocab+int(l)] = -lossScale
		}
	}
	x := matrix("x", data("x", rows, width), rows, width)
	y := must(gorgonia.Add(x, mul(mul(x, p["A"]), p["B"])))
	gate := mul(y, p["G"])
	h := must(gorgonia.HadamardProd(must(gorgonia.HadamardProd(gate, must(gorgonia.Sigmoid(gate)))), mul(y, p["U"])))
	z := must(gorgonia.Add(mul(h, p["D"]), y))
	logits := mul(z, matrix("W", data("W", vocab, width), vocab, width))
	logp := must(gorgonia.Log(must(gorgonia.SoftMax(logits))))
	cost := must(gorgonia.Sum(must(gorgonia.HadamardProd(logp, matrix("one hot", oneHot, rows, vocab)))))
	want, err := gorgonia.Grad(cost, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	tape := gorgonia.NewTapeMachine(g)
	defer tape.Close()
	if err := tape.RunAll(); err != nil {
		t.Fatal(err)
	}

	_, run, loss, grads := gradientsOf(t, false)
	wantLoss := cost.Value().Data().(float64)
	if got := run.Tensor(loss).F64()[0]; !(math.Abs(got-wantLoss) <= 1e-12) {
		t.Errorf("loss %.15g, Gorgonia's tape machine %.15g", got, wantLoss)
	}
	worst := 0.0
	for i, name := range paramNames {
		ref := want[i].Value().Data().([]float64)
		for j, got := range run.Tensor(grads[i]).F64() {
			d := math.Abs(got - ref[j])
			worst = math.Max(worst, d)
			if !(d <= 1e-12) {
				t.Errorf("d loss / d %s[%d] = %.15g, Gorgonia's tape machine %.15g", name, j, got, ref[j])
			}
		}
	}
	t.Logf("gradients differ by at most %.3g", worst)
}
