package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestLinearLogProbs(t *testing.T) {
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
		{"nothing labelled", []int32{no, no, no}, 5, 6, 2, 0},
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
		in := []kerneltest.Input{kerneltest.Normal(len(c.labels), c.width), w, kerneltest.Ints(c.labels, len(c.labels))}
		for _, cap := range []float64{0, 1.5} {
			for entropy, name := range []string{"", ", entropies", ", entropies with gradient", ", collisions"} {
				for _, grad := range []bool{false, true} {
					k := kernel.LinearLogProbs{Chunk: c.chunk, Grad: grad, Entropy: kernel.Entropy(entropy), Cap: cap}
					what := fmt.Sprintf("%s, cap %v, gradient %v%s", c.name, cap, grad, name)
					kerneltest.Run(t, kerneltest.Case{Name: what, Kernel: k, In: in, Bound: 2e-6})
					k.Statistics = true
					kerneltest.Run(t, kerneltest.Case{Name: what + ", statistics", Kernel: k, In: in, Bound: 2e-6})
				}
			}
		}
	}
}

func TestLinearLogProbsGrad(t *testing.T) {
	labels := kerneltest.Ints([]int32{3, kernel.Untrained, 0, 7, kernel.Untrained}, 5)
	slope, entropySlope := kerneltest.Normal(5, 37), kerneltest.Normal(5, 37)
	kerneltest.Run(t,
		kerneltest.Case{Name: "log-probabilities", Kernel: kernel.LinearLogProbsGrad{}, Bound: 1e-7,
			In: []kerneltest.Input{labels, kerneltest.Normal(5), slope}},
		kerneltest.Case{Name: "with entropies", Kernel: kernel.LinearLogProbsGrad{Entropy: true}, Bound: 2e-7,
			In: []kerneltest.Input{labels, kerneltest.Normal(2, 5), slope, entropySlope}},
	)
	nan := math.NaN()
	out := evaluate(t, kernel.LinearLogProbsGrad{}, i32s([]int32{kernel.Untrained, 4}), f64s([]float64{nan, -2}, 2),
		f64s([]float64{0, 0, 1, 3}, 2, 2))
	near(t, "a weight that is NaN in a row without a label", out[0].F64(), []float64{0, 0, -2, -6}, 0)
}

// TestLinearLogProbsMeaning compares with the definition, computed from all logits.
func TestLinearLogProbsMeaning(t *testing.T) {
	const m, width, vocab = 6, 5, 9
	x, w := normal64(1, m*width), normal64(2, vocab*width)
	labels, weights := []int32{2, kernel.Untrained, 8, 0, vocab, -1}, []float64{0.5, 7, -1.25, 3, 1, 1}
	entropyWeights := []float64{-0.75, 5, 0.1, -2, 1, 1}
	for _, cap := range []float64{0, 1.25} {
		logp, entropies, dx, dxBoth := make([]float64, m), make([]float64, m), make([]float64, m*width),
			make([]float64, m*width)
		collisions := make([]float64, m)
		for i, label := range labels {
			if label == kernel.Untrained {
				continue
			}
			p, through := softmaxOf(x[i*width:][:width], w, cap)
			invalid := 0.
			if label < 0 || label >= vocab {
				label, invalid = 0, math.NaN()
			}
			logp[i] = math.Log(p[label]) + invalid
			squares := 0.
			for _, p := range p {
				entropies[i] -= p*math.Log(p) + invalid
				squares += p * p
			}
			collisions[i] = -math.Log(squares) + invalid
			for v, p := range p {
				d, e := -p, -p*(math.Log(p)+entropies[i])
				if v == int(label) {
					d++
				}
				for c := range width {
					dx[i*width+c] += weights[i]*d*through[v]*w[v*width+c] + invalid
					dxBoth[i*width+c] += (weights[i]*d+entropyWeights[i]*e)*through[v]*w[v*width+c] + invalid
				}
			}
		}
		in := []kernel.Tensor{f64s(x, m, width), f64s(w, vocab, width), i32s(labels)}
		out := evaluate(t, kernel.LinearLogProbs{Chunk: 2, Grad: true, Entropy: kernel.EntropyConstant, Cap: cap},
			in...)
		near(t, "log-probabilities", out[0].F64(), logp, 1e-14)
		near(t, "entropies", out[2].F64(), entropies, 1e-14)
		again := evaluate(t, kernel.LinearLogProbs{Chunk: 2, Grad: true, Entropy: kernel.EntropyCollision, Cap: cap},
			in...)
		near(t, "collision entropies", again[2].F64(), collisions, 1e-14)
		got := evaluate(t, kernel.LinearLogProbsGrad{}, in[2], f64s(weights, m), out[1])
		near(t, "dx", got[0].F64(), dx, 1e-13)
		out = evaluate(t, kernel.LinearLogProbs{Chunk: 4, Grad: true, Entropy: kernel.EntropyDifferentiable, Cap: cap},
			in...)
		near(t, "both", out[0].F64(), append(logp[:m:m], entropies...), 1e-14)
		got = evaluate(t, kernel.LinearLogProbsGrad{Entropy: true}, in[2],
			f64s(append(weights[:m:m], entropyWeights...), 2, m), out[1], out[2])
		near(t, "dx of both", got[0].F64(), dxBoth, 1e-13)
	}
}

// TestLinearLogProbsStatistics compares the statistics with their definitions, and the other outputs with those of a
// kernel without statistics, bit by bit, in float32 and in float64.
func TestLinearLogProbsStatistics(t *testing.T) {
	const m, width, vocab = 6, 5, 9
	x, w := normal64(1, m*width), normal64(2, vocab*width)
	for i := 3 * width; i < 4*width; i++ {
		w[i] *= 3
	}
	copy(w[7*width:8*width], w[3*width:4*width]) // two labels with equal logits: the first is the likeliest
	labels := []int32{2, kernel.Untrained, 3, 7, vocab, 0}
	copy(x[2*width:3*width], w[3*width:4*width])
	copy(x[3*width:4*width], w[3*width:4*width])
	for _, cap := range []float64{0, 1.25} {
		want := make([]float64, 3*m)
		for i, label := range labels {
			if label == kernel.Untrained {
				continue
			}
			p, _ := softmaxOf(x[i*width:][:width], w, cap)
			top := 0
			for v, q := range p {
				z := 0.0
				for c := range width {
					z += x[i*width+c] * w[v*width+c]
				}
				if cap > 0 {
					z = cap * math.Tanh(z/cap)
				}
				want[i] -= q * math.Log(q)
				want[m+i] += z / vocab
				if q > p[top] {
					top = v
				}
			}
			if top == int(label) {
				want[2*m+i] = 1
			}
			if label == vocab {
				want[i], want[m+i], want[2*m+i] = math.NaN(), math.NaN(), math.NaN()
			}
		}
		if want[2*m+2] != 1 || want[2*m+3] != 0 {
			t.Fatalf("labels 3 and 7 of equal logits: %v and %v are the likeliest", want[2*m+2], want[2*m+3])
		}
		in := []kernel.Tensor{f64s(x, m, width), f64s(w, vocab, width), i32s(labels)}
		for entropy := range kernel.EntropyCollision + 1 {
			k := kernel.LinearLogProbs{Chunk: 2, Grad: true, Entropy: entropy, Cap: cap}
			plain := evaluate(t, k, in...)
			k.Statistics = true
			out := evaluate(t, k, in...)
			near(t, "statistics", out[len(out)-1].F64(), want, 1e-14)
			for i, o := range plain {
				near(t, fmt.Sprintf("output %d with statistics", i), out[i].F64(), o.F64(), 0)
			}
		}
	}
	wide32 := []kernel.Tensor{f32s(narrowed(normal64(3, 37*24)), 37, 24), f32s(narrowed(normal64(4, 301*24)), 301, 24),
		i32s(labelsTo(37, 301))}
	for entropy := range kernel.EntropyCollision + 1 {
		k := kernel.LinearLogProbs{Chunk: 10, Grad: true, Entropy: entropy}
		plain := evaluate(t, k, wide32...)
		k.Statistics = true
		for i, o := range evaluate(t, k, wide32...)[:len(plain)] {
			if !slices.Equal(o.F32(), plain[i].F32()) {
				t.Errorf("entropy %d: statistics change output %d in float32", entropy, i)
			}
		}
	}
}

// labelsTo returns labels of n rows within a vocabulary.
func labelsTo(n, vocab int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i * 7919 % vocab)
	}
	return all
}

// softmaxOf returns the probabilities that the matrix w gives a row x, and the soft cap's derivative at each logit.
func softmaxOf(x, w []float64, cap float64) (p, through []float64) {
	vocab, sum := len(w)/len(x), 0.0
	p, through = make([]float64, vocab), make([]float64, vocab)
	for v := range p {
		for c, x := range x {
			p[v] += x * w[v*len(w)/vocab+c]
		}
		through[v] = 1
		if cap > 0 {
			tanh := math.Tanh(p[v] / cap)
			p[v], through[v] = cap*tanh, 1-tanh*tanh
		}
		p[v] = math.Exp(p[v])
		sum += p[v]
	}
	for v := range p {
		p[v] /= sum
	}
	return p, through
}

// TestLinearLogProbsIsCrossEntropy: with the weight -scale in every row the gradient is that of LinearCrossEntropy, and
// asking for entropies or a gradient changes no bit of the log-probabilities.
func TestLinearLogProbsIsCrossEntropy(t *testing.T) {
	const m, width, vocab, scale = 37, 24, 301, 0.1
	labels, weights := make([]int32, m), make([]float64, m)
	for i := range labels {
		labels[i], weights[i] = int32(i*8), -scale
		if i%3 == 0 {
			labels[i] = kernel.Untrained
		}
	}
	x, w, l := f64s(normal64(1, m*width), m, width), f64s(normal64(2, vocab*width), vocab, width), i32s(labels)
	for _, cap := range []float64{0, 2} {
		want := evaluate(t, kernel.LinearCrossEntropy{Chunk: 10, Grad: true, Cap: cap}, x, w, l,
			f64s([]float64{scale}, 1))
		first := evaluate(t, kernel.LinearLogProbs{Chunk: 10, Cap: cap}, x, w, l)[0].F64()
		for entropy := range kernel.EntropyCollision + 1 {
			out := evaluate(t, kernel.LinearLogProbs{Chunk: 10, Grad: true, Entropy: entropy, Cap: cap}, x, w, l)
			near(t, "log-probabilities", out[0].F64()[:m], first, 0)
			if entropy == kernel.EntropyDifferentiable {
				continue
			}
			negative := make([]float64, m)
			for i, v := range out[0].F64() {
				negative[i] = -v
			}
			near(t, "negative log-probabilities", negative, want[2].F64(), 1e-14)
			dx := evaluate(t, kernel.LinearLogProbsGrad{}, l, f64s(weights, m), out[1])
			near(t, "dx", dx[0].F64(), want[1].F64(), 1e-15)
		}
	}
}

func TestLinearLogProbsRefuses(t *testing.T) {
	types := func(rows, vocab, width int) []kernel.Type {
		return []kernel.Type{kernel.T(kernel.F32, 3, width), kernel.T(kernel.F32, vocab, width),
			kernel.T(kernel.I32, rows)}
	}
	good := kernel.LinearLogProbs{Chunk: 1}
	for what, c := range map[string]struct {
		k  kernel.LinearLogProbs
		in []kernel.Type
	}{
		"no chunk": {kernel.LinearLogProbs{}, types(3, 5, 4)}, "no vocabulary": {good, types(3, 0, 4)},
		"no width":             {good, types(3, 5, 0)},
		"labels of other rows": {good, types(4, 5, 4)},
		"a negative cap":       {kernel.LinearLogProbs{Chunk: 1, Cap: -1}, types(3, 5, 4)},
		"an unknown entropy":   {kernel.LinearLogProbs{Chunk: 1, Entropy: 9}, types(3, 5, 4)},
	} {
		if _, err := c.k.Shape(c.in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
