package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// supportOf returns distinct tokens for each of m rows, some places without one, and log-probabilities whose sum stays
// below 1, with that of all other tokens behind them.
func supportOf(m, k, vocab int) (ids []int32, logps []float64) {
	for row := range m {
		rest := 1.
		for i := range k {
			id := int32((row*7 + i*(vocab/k)) % vocab)
			if i > 0 && (row+i)%4 == 3 {
				ids, logps = append(ids, -1), append(logps, -3)
				continue
			}
			p := rest * (0.3 + 0.1*float64((row+2*i)%3))
			rest -= p
			ids, logps = append(ids, id), append(logps, math.Log(p))
		}
		logps = append(logps, math.Log(rest))
	}
	return ids, logps
}

func TestLinearDivergence(t *testing.T) {
	const no = kernel.Untrained
	some := []int32{no, 3, 0, no, 12, 5, 5, no, 1}
	for _, c := range []struct {
		name     string
		labels   []int32
		width, v int
		chunk    int
		stored   kernel.DType
	}{
		{"one", []int32{0}, 3, 5, 1, 0},
		{"chunks of two", some, 7, 13, 2, 0},
		{"nothing trained", []int32{no, no, no}, 5, 6, 2, 0},
		{"bf16", some, 10, 33, 4, kernel.BF16},
		{"more than a part", some, 4, 300, 5, kernel.BF16},
	} {
		m := len(c.labels)
		head := func(width int) kerneltest.Input {
			w := kerneltest.Normal(c.v, width)
			if c.stored != 0 {
				w = w.As(c.stored)
			}
			return w
		}
		in := []kerneltest.Input{kerneltest.Normal(m, c.width), head(c.width), kerneltest.Ints(c.labels, m),
			kerneltest.Uniform(0.1, 0.5, 1)}
		weights, scaling := kerneltest.Uniform(0, 3, m), kerneltest.Values([]float64{1, 5, 2}, 3)
		k := min(4, c.v-1)
		ids, logps := supportOf(m, k, c.v)
		dense := []kerneltest.Input{kerneltest.Normal(m, c.width+1), head(c.width + 1)}
		sparse := []kerneltest.Input{kerneltest.Ints(ids, m, k), kerneltest.Values(logps, m, k+1)}
		for _, o := range []kernel.LinearDivergence{
			{Beta: 0, Temperature: 1, Alpha: 1},
			{Beta: 1, Temperature: 1, Alpha: 1},
			{Beta: 0.25, Temperature: 2, Alpha: 0.5, CrossEntropy: 0.75, Cap: 1.5, TeacherCap: 2},
			{Beta: 0, Temperature: 1.5, Alpha: 1, CrossEntropy: 0.5, Teacher: kernel.TeacherRenormalised},
			{Beta: 1, Temperature: 1, Alpha: 1, Teacher: kernel.TeacherRenormalised, Cap: 1.5},
			{Beta: 0.5, Temperature: 1, Alpha: 1, Teacher: kernel.TeacherBucket, CrossEntropy: 0.5},
			{Beta: 0, Temperature: 2, Alpha: 1, Teacher: kernel.TeacherBucket, Cap: 1.5, CrossEntropy: 0.25},
			{Beta: 1, Temperature: 1, Alpha: 1, Teacher: kernel.TeacherBucket},
			{Beta: 0, Temperature: 1, Alpha: 1, Teacher: kernel.TeacherZero, CrossEntropy: 0.5},
		} {
			o.Chunk = c.chunk
			all := slices.Concat(in, dense)
			if o.Teacher != kernel.TeacherDense {
				all = slices.Concat(in, sparse)
			}
			grad, scaled := o, o
			grad.Grad, scaled.Grad, scaled.Scaled, scaled.Weighted = true, true, true, true
			name := fmt.Sprintf("%s, teacher %d, beta %v, temperature %v", c.name, o.Teacher, o.Beta, o.Temperature)
			kerneltest.Run(t,
				kerneltest.Case{Name: name, Kernel: grad, In: all, Bound: 8e-6},
				kerneltest.Case{Name: name + ", weighted and scaled", Kernel: scaled, Bound: 8e-6,
					In: append(slices.Clone(all), weights, scaling)},
				kerneltest.Case{Name: name + ", without gradient", Kernel: o, In: all, Bound: 8e-6},
			)
		}
	}
}

// TestLinearDivergenceMeaning computes the definition with all logits at hand, in float64.
func TestLinearDivergenceMeaning(t *testing.T) {
	for teacher := range kernel.TeacherZero + 1 {
		for _, beta := range []float64{0, 0.25, 0.5, 1} {
			for _, temperature := range []float64{1, 2} {
				if teacher == kernel.TeacherZero && beta != 0 {
					continue
				}
				o := kernel.LinearDivergence{Chunk: 2, Teacher: teacher, Beta: beta, Temperature: temperature,
					Alpha: 0.75, CrossEntropy: 0.5}
				name := fmt.Sprintf("teacher %d, beta %v, temperature %v", teacher, beta, temperature)
				t.Run(name, func(t *testing.T) { testDivergenceMeaning(t, o) })
			}
		}
	}
}

func testDivergenceMeaning(t *testing.T, o kernel.LinearDivergence) {
	const m, width, vocab, k, scale = 6, 5, 9, 3, 0.25
	x, w, y, u := normal64(1, m*width), normal64(2, vocab*width), normal64(3, m*width), normal64(4, vocab*width)
	labels := []int32{2, kernel.Untrained, 8, 0, 1, 8}
	ids, logps := supportOf(m, k, vocab)
	logits := func(x, w []float64, row int) []float64 {
		z := make([]float64, vocab)
		for v := range z {
			for c := range width {
				z[v] += x[row*width+c] * w[v*width+c]
			}
		}
		return z
	}
	loss, divergence, nll, agreement := 0., 0., 0., 0.
	for row, label := range labels {
		if label == kernel.Untrained {
			continue
		}
		z := logits(x, w, row)
		n := -math.Log(softmax(z, 1)[label])
		s, q, first := softmax(z, o.Temperature), []float64(nil), 0
		if o.Teacher == kernel.TeacherDense {
			l := logits(y, u, row)
			q, first = softmax(l, o.Temperature), argmax(l)
		} else {
			s, q, first = onSupport(o.Teacher, s, ids[row*k:][:k], logps[row*(k+1):][:k+1])
		}
		d := divergenceOf(o.Beta, s, q)
		loss += scale * (o.Alpha*d + o.CrossEntropy*n)
		divergence, nll = divergence+d, nll+n
		if argmax(z) == first {
			agreement++
		}
	}
	in := []kernel.Tensor{f64s(x, m, width), f64s(w, vocab, width), i32s(labels), f64s([]float64{scale}, 1),
		f64s(y, m, width), f64s(u, vocab, width)}
	if o.Teacher != kernel.TeacherDense {
		in = append(in[:4:4], tokens(ids, m, k), f64s(logps, m, k+1))
	}
	out := evaluate(t, o, in...)
	for i, want := range []float64{loss, 0, divergence, nll, agreement} {
		if i == 1 {
			continue
		}
		near(t, fmt.Sprintf("output %d", i), out[i].F64(), []float64{want}, 1e-12)
	}
}

// TestLinearDivergenceOfPaddedHeads checks that rows of a head that the other model lacks change no bit, whichever
// model has more, whatever is in them.
func TestLinearDivergenceOfPaddedHeads(t *testing.T) {
	const m, width, vocab, more = 6, 5, 9, 4
	x, w, y, u := normal64(1, m*width), normal64(2, vocab*width), normal64(3, m*width), normal64(4, vocab*width)
	padding := slices.Repeat([]float64{math.NaN()}, more*width)
	run := func(w, u []float64, grad bool) []kernel.Tensor {
		return evaluate(t, kernel.LinearDivergence{Chunk: 2, Beta: 0.25, Temperature: 2, Alpha: 1, CrossEntropy: 0.5,
			Grad: grad}, f64s(x, m, width), f64s(w, len(w)/width, width),
			i32s([]int32{2, kernel.Untrained, 8, 0, 1, 8}), f64s([]float64{0.25}, 1), f64s(y, m, width),
			f64s(u, len(u)/width, width))
	}
	for _, grad := range []bool{false, true} {
		want := run(w, u, grad)
		for name, got := range map[string][]kernel.Tensor{
			"teacher": run(w, append(slices.Clone(u), padding...), grad),
			"student": run(append(slices.Clone(w), padding...), u, grad),
		} {
			for i := range want {
				near(t, fmt.Sprintf("%s with more rows, output %d", name, i), got[i].F64(), want[i].F64(), 0)
			}
		}
	}
}

func softmax(z []float64, temperature float64) []float64 {
	p, sum := make([]float64, len(z)), 0.
	for v := range z {
		p[v] = math.Exp(z[v] / temperature)
		sum += p[v]
	}
	for v := range p {
		p[v] /= sum
	}
	return p
}

func argmax(x []float64) int {
	at := 0
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	return at
}

// onSupport returns the student's and the teacher's distribution over a support, and the teacher's most likely token.
func onSupport(teacher kernel.Teacher, p []float64, ids []int32, logps []float64) (s, q []float64, first int) {
	sumS, sumQ, most := 0., 0., math.Inf(-1)
	for k, id := range ids {
		if id < 0 {
			continue
		}
		if logps[k] > most {
			most, first = logps[k], int(id)
		}
		s, q = append(s, p[id]), append(q, math.Exp(logps[k]))
		sumS, sumQ = sumS+p[id], sumQ+math.Exp(logps[k])
	}
	switch teacher {
	case kernel.TeacherRenormalised:
		for i := range s {
			s[i], q[i] = s[i]/sumS, q[i]/sumQ
		}
	case kernel.TeacherBucket:
		s, q = append(s, 1-sumS), append(q, math.Exp(logps[len(ids)]))
	}
	return s, q, first
}

func divergenceOf(beta float64, s, q []float64) (d float64) {
	for i := range s {
		m := (1-beta)*s[i] + beta*q[i]
		switch beta {
		case 0:
			d += q[i] * math.Log(q[i]/s[i])
		case 1:
			d += s[i] * math.Log(s[i]/q[i])
		default:
			d += beta*q[i]*math.Log(q[i]/m) + (1-beta)*s[i]*math.Log(s[i]/m)
		}
	}
	return d
}

func TestLinearDivergenceRefuses(t *testing.T) {
	f, i := kernel.F32, kernel.I32
	in := []kernel.Type{kernel.T(f, 3, 4), kernel.T(f, 7, 4), kernel.T(i, 3), kernel.T(f, 1)}
	dense := append(in[:4:4], kernel.T(f, 3, 5), kernel.T(f, 7, 5))
	sparse := append(in[:4:4], kernel.T(i, 3, 2), kernel.T(f, 3, 3))
	good := kernel.LinearDivergence{Chunk: 1, Temperature: 1, Alpha: 1}
	for name, change := range map[string]func(*kernel.LinearDivergence, *[]kernel.Type){
		"no chunk":             func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Chunk = 0 },
		"cap":                  func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Cap = -1 },
		"cap of the teacher":   func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.TeacherCap = math.NaN() },
		"beta above 1":         func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Beta = 1.5 },
		"beta NaN":             func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Beta = math.NaN() },
		"temperature 0":        func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Temperature = 0 },
		"temperature infinite": func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Temperature = math.Inf(1) },
		"alpha":                func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Alpha = -1 },
		"cross-entropy":        func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.CrossEntropy = math.NaN() },
		"teacher":              func(o *kernel.LinearDivergence, _ *[]kernel.Type) { o.Teacher = 4 },
		"reverse of zero": func(o *kernel.LinearDivergence, in *[]kernel.Type) {
			o.Teacher, o.Beta, *in = kernel.TeacherZero, 1, sparse
		},
		"no vocabulary": func(_ *kernel.LinearDivergence, in *[]kernel.Type) { (*in)[5] = kernel.T(f, 0, 5) },
		"no rest": func(o *kernel.LinearDivergence, in *[]kernel.Type) {
			o.Teacher, *in = kernel.TeacherBucket, append(sparse[:5:5], kernel.T(f, 3, 2))
		},
		"a large support": func(o *kernel.LinearDivergence, in *[]kernel.Type) {
			o.Teacher, *in = kernel.TeacherBucket, append(in4(sparse), kernel.T(i, 3, 513), kernel.T(f, 3, 514))
		},
	} {
		o, types := good, slices.Clone(dense)
		change(&o, &types)
		if _, err := o.Shape(types); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := good.Shape(dense); err != nil {
		t.Error(err)
	}
	good.Teacher = kernel.TeacherBucket
	if _, err := good.Shape(sparse); err != nil {
		t.Error(err)
	}
}

func tokens(ids []int32, shape ...int) kernel.Tensor {
	t := zeros(kernel.I32, shape...)
	copy(t.I32(), ids)
	return t
}

func in4(in []kernel.Type) []kernel.Type { return in[:4:4] }

// TestLinearDivergenceOfUnknownTokens gives NaN for a label or a token of the teacher outside of the vocabulary.
func TestLinearDivergenceOfUnknownTokens(t *testing.T) {
	x, w := normal64(1, 2*3), normal64(2, 5*3)
	o := kernel.LinearDivergence{Chunk: 2, Grad: true, Temperature: 1, Alpha: 1, Teacher: kernel.TeacherBucket}
	for _, c := range []struct{ label, id int32 }{{5, 1}, {-1, 1}, {2, 5}} {
		out := evaluate(t, o, f64s(x, 2, 3), f64s(w, 5, 3), i32s([]int32{c.label, 1}), f64s([]float64{1}, 1),
			tokens([]int32{c.id, 2}, 2, 1),
			f64s([]float64{-1, -0.5, -1, -0.5}, 2, 2))
		if !math.IsNaN(out[0].F64()[0]) || !math.IsNaN(out[1].F64()[0]) || math.IsNaN(out[1].F64()[3]) {
			t.Errorf("label %d, token %d: loss %v, gradients %v", c.label, c.id, out[0].F64(), out[1].F64())
		}
	}
}
