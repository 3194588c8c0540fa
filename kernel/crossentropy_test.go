package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestLinearCrossEntropy(t *testing.T) {
	const no = kernel.Untrained
	some := []int32{no, 3, 0, no, 12, 5, 5, no, 1}
	cases := []struct {
		name     string
		labels   []int32
		width, v int
		chunk    int
		stored   kernel.DType
	}{
		{"one", []int32{0}, 1, 1, 1, 0},
		{"chunks of two", some, 7, 13, 2, 0},
		{"one chunk", some, 7, 13, 100, 0},
		{"nothing trained", []int32{no, no, no}, 5, 6, 2, 0},
		{"bf16", some, 10, 33, 4, kernel.BF16},
		{"f16", some, 10, 33, 4, kernel.F16},
		{"f32", some, 10, 33, 4, kernel.F32},
		{"f64", some, 10, 33, 4, kernel.F64},
		{"more than a panel", some, 6, 150, 5, kernel.BF16},
	}
	for _, c := range cases {
		w := kerneltest.Normal(c.v, c.width)
		if c.stored != 0 {
			w = w.As(c.stored)
		}
		in := []kerneltest.Input{kerneltest.Normal(len(c.labels), c.width), w, kerneltest.Ints(c.labels, len(c.labels)),
			kerneltest.Uniform(0.1, 0.5, 1)}
		kerneltest.Run(t,
			kerneltest.Case{Name: c.name, Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk, Grad: true}, In: in,
				Bound: 6e-7},
			kerneltest.Case{Name: c.name + " scaled", Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk, Grad: true,
				Scaled: true}, Bound: 6e-7,
				In: append(in[:4:4], kerneltest.Values([]float64{1, 5, 2}, 3))},
			kerneltest.Case{Name: c.name + " capped", Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk, Grad: true,
				Scaled: true, Cap: 1.5}, Bound: 2e-6,
				In: append(in[:4:4], kerneltest.Values([]float64{1, 5, 2}, 3))},
			kerneltest.Case{Name: c.name + " head", Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk, Grad: true,
				Head: kernel.HeadTrained}, In: in, Bound: 6e-7},
			kerneltest.Case{Name: c.name + " head onto", Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk, Grad: true,
				Scaled: true, Head: kernel.HeadOnto}, Bound: 6e-7,
				In: append(in[:4:4], kerneltest.Values([]float64{1, 5, 2}, 3), kerneltest.Normal(c.v, c.width))},
			kerneltest.Case{Name: c.name + " capped without gradient",
				Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk, Cap: 3}, In: in, Bound: 6e-7},
			kerneltest.Case{Name: c.name + " without gradient", Kernel: kernel.LinearCrossEntropy{Chunk: c.chunk},
				In: in, Bound: 3e-7},
		)
	}
}

// TestHeadGradientMeaning compares the gradient for the vocabulary matrix with its formula, alone and added to a sum,
// in one chunk and in several.
func TestHeadGradientMeaning(t *testing.T) {
	const m, width, vocab, scale = 6, 5, 9, 0.25
	x, w, sum := normal64(1, m*width), normal64(2, vocab*width), normal64(3, vocab*width)
	labels := []int32{2, kernel.Untrained, 8, 0, 3, 3}
	want := make([]float64, vocab*width)
	for i, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		p, total := make([]float64, vocab), 0.0
		for v := range p {
			for c := range width {
				p[v] += x[i*width+c] * w[v*width+c]
			}
			p[v] = math.Exp(p[v])
			total += p[v]
		}
		for v := range p {
			d := p[v] / total
			if v == int(label) {
				d--
			}
			for c := range width {
				want[v*width+c] += scale * d * x[i*width+c]
			}
		}
	}
	for _, chunk := range []int{1, 2, 10} {
		in := []kernel.Tensor{f64s(x, m, width), f64s(w, vocab, width), i32s(labels), f64s([]float64{scale}, 1)}
		for name, k := range map[string]func(h kernel.HeadGradient) kernel.Kernel{
			"cross-entropy": func(h kernel.HeadGradient) kernel.Kernel {
				return kernel.LinearCrossEntropy{Chunk: chunk, Grad: true, Head: h}
			},
			"smoothed": func(h kernel.HeadGradient) kernel.Kernel {
				return kernel.SmoothedCrossEntropy{Chunk: chunk, Grad: true, Head: h}
			},
		} {
			out := evaluate(t, k(kernel.HeadTrained), in...)
			near(t, name, out[len(out)-1].F64(), want, 1e-14)
			out = evaluate(t, k(kernel.HeadOnto), append(in[:4:4], f64s(sum, vocab, width))...)
			for i, got := range out[len(out)-1].F64() {
				near(t, name+" onto", []float64{got}, []float64{sum[i] + want[i]}, 1e-14)
			}
		}
	}
	none := []int32{kernel.Untrained, kernel.Untrained}
	out := evaluate(t, kernel.LinearCrossEntropy{Chunk: 4, Grad: true, Head: kernel.HeadTrained}, f64s(x, 2, width),
		f64s(w, vocab, width), i32s(none), f64s([]float64{scale}, 1))
	near(t, "nothing trained", out[3].F64(), make([]float64, vocab*width), 0)
}

// The definition, logits held.
func TestLinearCrossEntropyMeaning(t *testing.T) {
	for _, cap := range []float64{0, 1.25} {
		t.Run(fmt.Sprintf("cap %v", cap), func(t *testing.T) { testCrossEntropyMeaning(t, cap) })
	}
}

func testCrossEntropyMeaning(t *testing.T, cap float64) {
	const m, width, vocab, scale = 6, 5, 9, 0.25
	x, w := normal64(1, m*width), normal64(2, vocab*width)
	labels := []int32{2, kernel.Untrained, 8, 0, vocab, -1}
	nll, dx := make([]float64, m), make([]float64, m*width)
	for i, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		logits, through, sum := make([]float64, vocab), make([]float64, vocab), 0.0
		for v := range logits {
			for c := range width {
				logits[v] += x[i*width+c] * w[v*width+c]
			}
			through[v] = 1
			if cap > 0 {
				tanh := math.Tanh(logits[v] / cap)
				logits[v], through[v] = cap*tanh, 1-tanh*tanh
			}
			sum += math.Exp(logits[v])
		}
		if label < 0 || label >= vocab {
			nll[i] = math.NaN()
		} else {
			nll[i] = math.Log(sum) - logits[label]
		}
		for v := range logits {
			p := math.Exp(logits[v]) / sum
			if v == int(label) {
				p--
			}
			for c := range width {
				dx[i*width+c] += scale*p*through[v]*w[v*width+c] + 0*nll[i]
			}
		}
	}
	in := func(n int) []kernel.Tensor {
		return []kernel.Tensor{f64s(x[:n*width], n, width), f64s(w, vocab, width), i32s(labels[:n]),
			f64s([]float64{scale}, 1)}
	}
	out := evaluate(t, kernel.LinearCrossEntropy{Chunk: 2, Grad: true, Cap: cap}, in(4)...)
	near(t, "loss", out[0].F64(), []float64{scale * (nll[0] + nll[2] + nll[3])}, 1e-14)
	near(t, "dx", out[1].F64(), dx[:4*width], 1e-14)
	near(t, "nll", out[2].F64(), nll[:4], 1e-14)
	out = evaluate(t, kernel.LinearCrossEntropy{Chunk: 4, Grad: true, Cap: cap}, in(m)...)
	near(t, "loss with wrong labels", out[0].F64(), []float64{math.NaN()}, 0)
	near(t, "dx with wrong labels", out[1].F64(), dx, 1e-14)
	near(t, "nll with wrong labels", out[2].F64(), nll, 1e-14)
}

// Chunks are a matter of memory, not of numbers.
func TestLinearCrossEntropyChunks(t *testing.T) {
	const m, width, vocab = 37, 24, 301
	labels := make([]int32, m)
	for i := range labels {
		labels[i] = int32(i * 8)
		if i%3 == 0 {
			labels[i] = kernel.Untrained
		}
	}
	run := func(chunk int) []kernel.Tensor {
		return evaluate(t, kernel.LinearCrossEntropy{Chunk: chunk, Grad: true},
			f64s(normal64(1, m*width), m, width), f64s(normal64(2, vocab*width), vocab, width), i32s(labels),
			f64s([]float64{0.1}, 1))
	}
	want := run(m)
	for _, chunk := range []int{1, 5, 10, 23} {
		for i, got := range run(chunk) {
			near(t, want[i].String(), got.F64(), want[i].F64(), 1e-13)
		}
	}
}

func TestLinearCrossEntropyRefuses(t *testing.T) {
	types := func(scale kernel.DType, vocab int) []kernel.Type {
		return []kernel.Type{kernel.T(kernel.F32, 3, 4), kernel.T(kernel.F32, vocab, 4), kernel.T(kernel.I32, 3),
			kernel.T(scale, 1)}
	}
	for what, c := range map[string]struct {
		chunk int
		in    []kernel.Type
	}{"no chunk": {0, types(kernel.F32, 5)}, "mixed floats": {1, types(kernel.F64, 5)},
		"no vocabulary": {1, types(kernel.F32, 0)}} {
		if _, err := (kernel.LinearCrossEntropy{Chunk: c.chunk}).Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
