package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestLinearTopK(t *testing.T) {
	const no = kernel.Untrained
	some := []int32{no, 3, 0, no, 12, 5, 5, no, 1}
	for _, c := range []struct {
		name     string
		labels   []int32
		width, v int
		chunk, k int
		cap, hot float64
		stored   kernel.DType
	}{
		{"one", []int32{0}, 3, 5, 1, 1, 0, 1, 0},
		{"chunks of two", some, 7, 13, 2, 4, 0, 1, 0},
		{"nothing trained", []int32{no, no, no}, 5, 6, 2, 3, 0, 1, 0},
		{"bf16, all but one", some, 10, 33, 4, 32, 2, 2, kernel.BF16},
		{"more than a part", some, 4, 300, 5, 7, 0, 0.5, kernel.BF16},
	} {
		m, w := len(c.labels), kerneltest.Normal(c.v, c.width)
		if c.stored != 0 {
			w = w.As(c.stored)
		}
		kerneltest.Run(t, kerneltest.Case{Name: c.name, Bound: 4e-6,
			Kernel: kernel.LinearTopK{Chunk: c.chunk, K: c.k, Cap: c.cap, Temperature: c.hot},
			In:     []kerneltest.Input{kerneltest.Normal(m, c.width), w, kerneltest.Ints(c.labels, m)}})
	}
}

// TestLinearTopKMeaning sorts all log-probabilities, among them equal ones.
func TestLinearTopKMeaning(t *testing.T) {
	const m, width, vocab, k = 4, 5, 40, 7
	x, w := normal64(1, m*width), normal64(2, vocab*width)
	copy(w[30*width:][:width], w[3*width:]) // tokens 3 and 30 are equally likely
	for _, o := range []kernel.LinearTopK{{K: k, Temperature: 1}, {K: vocab - 1, Temperature: 1},
		{K: k, Temperature: 2, Cap: 1.5}} {
		o.Chunk = 3
		labels := []int32{1, kernel.Untrained, 2, 3}
		out := evaluate(t, o, f64s(x, m, width), f64s(w, vocab, width), i32s(labels))
		for row, label := range labels {
			ids, logps := out[0].I32()[row*o.K:][:o.K], out[1].F64()[row*(o.K+1):][:o.K+1]
			if label == kernel.Untrained {
				if ids[0] != -1 || logps[0] != 0 || logps[o.K] != 0 {
					t.Errorf("row %d: tokens %v, log-probabilities %v", row, ids, logps)
				}
				continue
			}
			z := make([]float64, vocab)
			for v := range z {
				for c := range width {
					z[v] += x[row*width+c] * w[v*width+c]
				}
				if o.Cap > 0 {
					z[v] = o.Cap * math.Tanh(z[v]/o.Cap)
				}
			}
			p, order := softmax(z, o.Temperature), make([]int32, vocab)
			for v := range order {
				order[v] = int32(v)
			}
			slices.SortStableFunc(order, func(a, b int32) int {
				if p[a] > p[b] {
					return -1
				}
				return int(min(a-b, 0))
			})
			rest := 0.
			for i, id := range order {
				if i >= o.K {
					rest += p[id]
					continue
				}
				if ids[i] != id || math.Abs(logps[i]-math.Log(p[id])) > 1e-12 {
					t.Errorf("row %d, place %d: token %d with %v, want %d with %v", row, i, ids[i], logps[i], id,
						math.Log(p[id]))
				}
			}
			if math.Abs(logps[o.K]-math.Log(rest)) > 1e-11 {
				t.Errorf("row %d: the others have %v, want %v", row, logps[o.K], math.Log(rest))
			}
		}
	}
}

func TestLinearTopKRefuses(t *testing.T) {
	in := []kernel.Type{kernel.T(kernel.F32, 3, 4), kernel.T(kernel.F32, 700, 4), kernel.T(kernel.I32, 3)}
	for _, o := range []kernel.LinearTopK{{K: 1, Temperature: 1}, {Chunk: 1, Temperature: 1},
		{Chunk: 1, K: 513, Temperature: 1}, {Chunk: 1, K: 1}, {Chunk: 1, K: 1, Temperature: math.NaN()},
		{Chunk: 1, K: 1, Temperature: 1, Cap: -1}} {
		if _, err := o.Shape(in); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	in[1] = kernel.T(kernel.F32, 5, 4)
	if _, err := (kernel.LinearTopK{Chunk: 1, K: 5, Temperature: 1}).Shape(in); err == nil {
		t.Error("as many tokens as the vocabulary has are accepted")
	}
	if _, err := (kernel.LinearTopK{Chunk: 1, K: 4, Temperature: 1}).Shape(in); err != nil {
		t.Error(err)
	}
	if fmt.Sprint((kernel.LinearTopK{}).Name()) != "topk" {
		t.Error("another name")
	}
}
