package kernel_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestSmoothedCrossEntropy(t *testing.T) {
	const no = kernel.Untrained
	some := []int32{no, 3, 0, no, 12, 5, 5, no, 1}
	for _, c := range []struct {
		name     string
		labels   []int32
		width, v int
		chunk    int
		stored   kernel.DType
	}{
		{"one", []int32{0}, 1, 3, 1, 0},
		{"chunks of two", some, 7, 13, 2, 0},
		{"nothing trained", []int32{no, no, no}, 5, 6, 2, 0},
		{"bf16", some, 10, 33, 4, kernel.BF16},
		{"more than a panel", some, 6, 150, 5, kernel.BF16},
	} {
		w := kerneltest.Normal(c.v, c.width)
		if c.stored != 0 {
			w = w.As(c.stored)
		}
		in := []kerneltest.Input{kerneltest.Normal(len(c.labels), c.width), w, kerneltest.Ints(c.labels, len(c.labels)), kerneltest.Uniform(0.1, 0.5, 1)}
		scaling := append(in[:4:4], kerneltest.Values([]float64{1, 5, 2}, 3))
		k := kernel.SmoothedCrossEntropy{Chunk: c.chunk, Smoothing: 0.1, ZLoss: 1e-2}
		grad, scaled, capped := k, k, k
		grad.Grad, scaled.Grad, scaled.Scaled, capped.Grad, capped.Scaled, capped.Cap = true, true, true, true, true, 1.5
		weights := kerneltest.Uniform(0, 3, len(c.labels))
		weighted, plain := scaled, k
		weighted.Weighted, plain.Weighted = true, true
		kerneltest.Run(t,
			kerneltest.Case{Name: c.name, Kernel: grad, In: in, Bound: 2e-6},
			kerneltest.Case{Name: c.name + " weighted", Kernel: weighted, Bound: 2e-6,
				In: append(append(in[:4:4], weights), scaling[4])},
			kerneltest.Case{Name: c.name + " weighted, without gradient", Kernel: plain, Bound: 2e-6,
				In: append(in[:4:4], weights)},
			kerneltest.Case{Name: c.name + " scaled", Kernel: scaled, In: scaling, Bound: 2e-6},
			kerneltest.Case{Name: c.name + " capped", Kernel: capped, In: scaling, Bound: 4e-6},
			kerneltest.Case{Name: c.name + " without gradient", Kernel: k, In: in, Bound: 2e-6},
		)
	}
}

// TestSmoothedCrossEntropyMeaning computes the definition with all logits at hand, in float64.
func TestSmoothedCrossEntropyMeaning(t *testing.T) {
	for _, c := range []struct{ smoothing, zLoss, cap float64 }{{0.1, 0, 0}, {0, 1e-3, 0}, {0.2, 1e-2, 0}, {0.2, 1e-2, 1.25}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			testSmoothedMeaning(t, c.smoothing, c.zLoss, c.cap, nil)
			testSmoothedMeaning(t, c.smoothing, c.zLoss, c.cap, []float64{0.25, 7, 1, 0, 2.5, 1.75})
		})
	}
}

func testSmoothedMeaning(t *testing.T, smoothing, zLoss, cap float64, weights []float64) {
	const m, width, vocab, scale = 6, 5, 9, 0.25
	x, w := normal64(1, m*width), normal64(2, vocab*width)
	labels := []int32{2, kernel.Untrained, 8, 0, 1, 8}
	each, dx := make([]float64, m), make([]float64, m*width)
	nll, squares, loss := 0., 0., 0.
	for i, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		logits, through, sum, mean := make([]float64, vocab), make([]float64, vocab), 0., 0.
		for v := range logits {
			for c := range width {
				logits[v] += x[i*width+c] * w[v*width+c]
			}
			through[v] = 1
			if cap > 0 {
				tanh := math.Tanh(logits[v] / cap)
				logits[v], through[v] = cap*tanh, 1-tanh*tanh
			}
			sum, mean = sum+math.Exp(logits[v]), mean+logits[v]/vocab
		}
		z := math.Log(sum)
		one := z - logits[label]
		weight := 1.
		if weights != nil {
			weight = weights[i]
		}
		each[i] = weight * ((1-smoothing)*one + smoothing*(z-mean) + zLoss*z*z)
		nll, squares, loss = nll+one, squares+z*z, loss+scale*each[i]
		for v := range logits {
			d := math.Exp(logits[v]-z)*(1+2*zLoss*z) - smoothing/vocab
			if v == int(label) {
				d -= 1 - smoothing
			}
			for c := range width {
				dx[i*width+c] += scale * weight * d * through[v] * w[v*width+c]
			}
		}
	}
	k := kernel.SmoothedCrossEntropy{Chunk: 2, Grad: true, Cap: cap, Smoothing: smoothing, ZLoss: zLoss}
	in := []kernel.Tensor{f64s(x, m, width), f64s(w, vocab, width), i32s(labels), f64s([]float64{scale}, 1)}
	if weights != nil {
		k.Weighted, in = true, append(in, f64s(weights, m))
	}
	out := evaluate(t, k, in...)
	for i, want := range [][]float64{{loss}, dx, each, {nll}, {squares}} {
		for j, got := range out[i].F64() {
			if math.Abs(got-want[j]) > 1e-13*(1+math.Abs(want[j])) {
				t.Errorf("output %d at %d is %v, want %v", i, j, got, want[j])
			}
		}
	}
}

func TestSmoothedCrossEntropyRefuses(t *testing.T) {
	in := []kernel.Type{kernel.T(kernel.F32, 3, 4), kernel.T(kernel.F32, 7, 4), kernel.T(kernel.I32, 3), kernel.T(kernel.F32, 1)}
	for _, k := range []kernel.SmoothedCrossEntropy{{Smoothing: 0.1}, {Chunk: 1, Smoothing: 1}, {Chunk: 1, Smoothing: -0.1}, {Chunk: 1, ZLoss: -1}, {Chunk: 1, ZLoss: math.Inf(1)}} {
		if _, err := k.Shape(in); err == nil {
			t.Errorf("%+v is accepted", k)
		}
	}
}

// TestSmoothedCrossEntropyIsTorchs compares with torch's cross_entropy in float64; testdata/smoothed_crossentropy.py wrote the
// numbers.
func TestSmoothedCrossEntropyIsTorchs(t *testing.T) {
	data, err := os.ReadFile("testdata/smoothed_crossentropy.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Scale  float64
		X, W   []float64
		Labels []int32
		Cases  []struct {
			Smoothing    float64 `json:"label_smoothing"`
			ZLoss        float64 `json:"z_loss"`
			Loss         float64
			Gradient     []float64
			NLL, Squares float64
		}
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	m := len(want.Labels)
	width := len(want.X) / m
	for _, c := range want.Cases {
		k := kernel.SmoothedCrossEntropy{Chunk: 3, Grad: true, Smoothing: c.Smoothing, ZLoss: c.ZLoss}
		out := evaluate(t, k, f64s(want.X, m, width), f64s(want.W, len(want.W)/width, width), i32s(want.Labels), f64s([]float64{want.Scale}, 1))
		near(t, "loss", out[0].F64(), []float64{c.Loss}, 1e-14)
		near(t, "gradient", out[1].F64(), c.Gradient, 1e-14)
		near(t, "nll", out[3].F64(), []float64{c.NLL}, 1e-14)
		near(t, "squares", out[4].F64(), []float64{c.Squares}, 1e-14)
	}
}
