package kernel_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// steps are the clip factor and the numbers of a step as updates read them: learning rate 1e-2, second moments'
// correction 0.3.
func steps() []kerneltest.Input {
	return []kerneltest.Input{kerneltest.Values([]float64{3, 0.3}, 2), kerneltest.Values([]float64{1e-2, 0.4, 0.3,
		0}, 4)}
}

func TestSGD(t *testing.T) {
	var cases []kerneltest.Case
	for _, n := range []int{1, 5, 3<<13 + 1} {
		for _, nesterov := range []bool{false, true} {
			in := append([]kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Normal(n)},
				steps()...)
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%d nesterov %v", n, nesterov), Bound: 4e-7, In: in,
				Kernel: kernel.SGD{Momentum: 0.9, WeightDecay: 0.1, Nesterov: nesterov}})
		}
	}
	kerneltest.Run(t, cases...)
}

func TestScheduleFree(t *testing.T) {
	var cases []kerneltest.Case
	for _, n := range []int{1, 5, 3<<13 + 1} {
		v := make([]float64, n)
		for i := range v {
			v[i] = 0.1 + float64(i%7)
		}
		weight := kerneltest.Values([]float64{1e-2, 4e-4, 0.25, 4}, 4)
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(n), Bound: 1e-6,
			Kernel: kernel.ScheduleFreeAdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1},
			In: append([]kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Normal(n),
				kerneltest.Normal(n),
				kerneltest.Values(v, n), weight}, steps()...)})
		for _, average := range []bool{false, true} {
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%d shown %v", n, average), Bound: 4e-7,
				Kernel: kernel.ScheduleFreeShow{Beta1: 0.9, Average: average},
				In:     []kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Normal(n), weight}})
		}
	}
	for name, of := range map[string][]float64{"first": {0, 0, 0, 0}, "later": {5e-3, 1e-4, 0.3, 7},
		"smaller": {2e-2, 1e-3, 0.3, 7}} {
		cases = append(cases, kerneltest.Case{Name: "weight " + name, Bound: 4e-7, Kernel: kernel.ScheduleFreeWeight{},
			In: append([]kerneltest.Input{kerneltest.Values(of, 4)}, steps()...)})
	}
	kerneltest.Run(t, cases...)
}

func TestLion8Bit(t *testing.T) {
	var cases []kerneltest.Case
	for _, c := range []struct {
		n         int
		blocks    []int32
		quantised int
	}{{1, []int32{0, 1}, 1}, {300, []int32{1, 256, 257, 20, 280, 19}, 2}, {40, []int32{0, 40}, 0}} {
		q, rows := max(c.quantised, 1), len(c.blocks)/2
		codes := make([]byte, 256*q)
		for i := range codes {
			codes[i] = byte(i*37 + 5)
		}
		in := []kerneltest.Input{kerneltest.Normal(c.n), kerneltest.Normal(c.n), kerneltest.Bytes(codes, 256*q),
			kerneltest.Uniform(0.1, 2, q), kerneltest.Normal(256 * max(rows-c.quantised, 1)),
			kerneltest.Ints(c.blocks, rows, 2)}
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(c.n), Bound: 1e-6, In: append(in, steps()...),
			Kernel: kernel.Lion8Bit{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1, Quantised: c.quantised}})
	}
	kerneltest.Run(t, cases...)
}

// updated are matrices of every form, a vector between them, and numbers that are none's.
var updated = []kernel.Matrix{{From: 0, Rows: 4, Cols: 12}, {From: 48, Rows: 20, Cols: 4}, {From: 130, Rows: 1,
	Cols: 9}, {From: 139, Rows: 7, Cols: 7}}

func table(all []kernel.Matrix, places func(kernel.Matrix) (int, int)) kerneltest.Input {
	rows := make([]int32, kernel.MatrixColumns*len(all))
	kernel.MatrixTable(rows, all, places)
	return kerneltest.Ints(rows, len(all), kernel.MatrixColumns)
}

func TestAdafactor(t *testing.T) {
	all := append(slices.Clone(updated), kernel.Matrix{From: 188, Rows: 5})
	const n = 200
	rows, cols := kernel.AdafactorStates(all)
	positive := func(n int) kerneltest.Input {
		v := make([]float64, n)
		for i := range v {
			v[i] = 0.05 + float64(i%5)
		}
		return kerneltest.Values(v, n)
	}
	var cases []kerneltest.Case
	for _, k := range []kernel.Adafactor{{ClipThreshold: 1}, {ClipThreshold: 0.1, ScaleParameter: true,
		WeightDecay: 0.1},
		{ClipThreshold: 1, Beta1: 0.9, WeightDecay: 0.1}} {
		k.Matrices = all
		m := 1
		if k.Beta1 > 0 {
			m = n
		}
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(k.ClipThreshold, k.ScaleParameter, k.Beta1),
			Kernel: k, Bound: 2e-6,
			In: append([]kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(n), positive(rows), positive(cols),
				kerneltest.Normal(m), table(all, kernel.AdafactorPlaces)}, steps()...)})
	}
	kerneltest.Run(t, cases...)
}

// TestMuon bounds what rounding to bfloat16 does in float32, where float64 rounds nothing.
func TestMuon(t *testing.T) {
	const n = 200
	var cases []kerneltest.Case
	for _, k := range []kernel.Muon{{Momentum: 0.95, Nesterov: true, WeightDecay: 0.1}, {Momentum: 0.9,
		MatchRMS: true}} {
		k.Matrices = updated
		cases = append(cases, kerneltest.Case{Name: fmt.Sprint(k.Nesterov), Kernel: k, Bound: 2e-3,
			In: append([]kerneltest.Input{kerneltest.Normal(n), kerneltest.Normal(n), kerneltest.Normal(n),
				table(updated, kernel.MuonPlaces)}, steps()...)})
	}
	kerneltest.Run(t, cases...)
}

// TestMuonIsNearOrthogonal: the singular values of an update lie between 0.5 and 1.5 times the rate, whatever the
// gradient's size, and of a zero gradient nothing is left.
func TestMuonIsNearOrthogonal(t *testing.T) {
	const rows, cols, lr = 3, 40, 0.5
	for _, size := range []float64{1e-3, 1, 1e3, 0} {
		g := make([]float64, rows*cols)
		for i := range g {
			g[i] = size * math.Sin(float64(i*i))
		}
		of := func(v ...float64) kernel.Tensor { return tensor64(kernel.T(kernel.F64, len(v)), v) }
		k := kernel.Muon{Matrices: []kernel.Matrix{{Rows: rows, Cols: cols}}}
		where := kernel.NewTensor(kernel.T(kernel.I32, 1, kernel.MatrixColumns), kernel.Alloc(4*kernel.MatrixColumns))
		kernel.MatrixTable(where.I32(), k.Matrices, kernel.MuonPlaces)
		run, out := work(t, 1, k, of(make([]float64, rows*cols)...), of(g...), of(make([]float64, rows*cols)...),
			where, of(1, 1), of(lr))
		run()
		x := out[0].F64()
		for i := range rows {
			for j := range i + 1 {
				dot := 0.0
				for c := range cols {
					dot += x[i*cols+c] * x[j*cols+c] / (lr * lr)
				}
				switch {
				case size == 0 && dot != 0, size > 0 && i == j && (dot < 0.4 || dot > 1.6), i != j &&
					math.Abs(dot) > 0.3:
					t.Errorf("size %v: rows %d and %d of the update have the product %v", size, i, j, dot)
				}
			}
		}
	}
}

// TestUpdatesSkip: without a clip factor nothing changes.
func TestUpdatesSkip(t *testing.T) {
	of := func(n int) kernel.Tensor {
		v := make([]float64, n)
		for i := range v {
			v[i] = 1 + float64(i)
		}
		return tensor64(kernel.T(kernel.F64, n), v)
	}
	clip := tensor64(kernel.T(kernel.F64, 2), []float64{1, math.NaN()})
	one := []kernel.Matrix{{Rows: 2, Cols: 3}}
	where := kernel.NewTensor(kernel.T(kernel.I32, 1, kernel.MatrixColumns), kernel.Alloc(4*kernel.MatrixColumns))
	kernel.MatrixTable(where.I32(), one, kernel.MuonPlaces)
	block := kernel.NewTensor(kernel.T(kernel.I32, 1, 2), kernel.Alloc(8))
	copy(block.I32(), []int32{0, 6})
	codes := kernel.NewTensor(kernel.T(kernel.U8, 256), kernel.Alloc(256))
	for name, c := range map[string]struct {
		k  kernel.Kernel
		in []kernel.Tensor
	}{
		"sgd": {kernel.SGD{Momentum: 0.9}, []kernel.Tensor{of(6), of(6), of(6), clip, of(4)}},
		"lion_8bit": {kernel.Lion8Bit{Quantised: 1}, []kernel.Tensor{of(6), of(6), codes, of(1), of(256), block,
			clip, of(4)}},
		"muon": {kernel.Muon{Matrices: one}, []kernel.Tensor{of(6), of(6), of(6), where, clip, of(4)}},
		"adafactor": {kernel.Adafactor{Matrices: one, ClipThreshold: 1}, []kernel.Tensor{of(6), of(6), of(2),
			of(3), of(1), where, clip, of(4)}},
		"schedule_free": {kernel.ScheduleFreeAdamW{Beta2: 0.9}, []kernel.Tensor{of(6), of(6), of(6), of(6), of(6),
			of(4), clip, of(4)}},
		"weight": {kernel.ScheduleFreeWeight{}, []kernel.Tensor{of(4), clip, of(4)}},
	} {
		run, out := work(t, 1, c.k, c.in...)
		var before [][]byte
		for _, o := range out {
			before = append(before, bytes.Clone(o.Bytes()))
		}
		run()
		for i, o := range out {
			if !bytes.Equal(before[i], o.Bytes()) {
				t.Errorf("%s: output %d changes without a clip factor", name, i)
			}
		}
	}
}

// TestUpdatesReject: what Shape must not take of updates over matrices and over blocks, and what it says.
func TestUpdatesReject(t *testing.T) {
	f := func(n int) kernel.Type { return kernel.T(kernel.F32, n) }
	rows := func(n int) kernel.Type { return kernel.T(kernel.I32, n, 5) }
	u8 := func(n int) kernel.Type { return kernel.T(kernel.U8, n) }
	blocks := kernel.T(kernel.I32, 2, 2)
	one := kernel.Matrix{Rows: 2, Cols: 3}
	for name, c := range map[string]struct {
		k    kernel.Kernel
		in   []kernel.Type
		want string
	}{
		"a vector": {kernel.Muon{Matrices: []kernel.Matrix{{Rows: 6}}}, []kernel.Type{f(6), f(6), f(6),
			rows(1), f(2), f(4)}, "is a vector"},
		"no matrix": {kernel.Muon{}, []kernel.Type{f(6), f(6), f(6), rows(0), f(2), f(4)}, ""},
		"outside": {kernel.Muon{Matrices: []kernel.Matrix{{From: 1, Rows: 2, Cols: 3}}},
			[]kernel.Type{f(6), f(6), f(6), rows(1), f(2), f(4)}, "does not lie in 6 elements"},
		"another table": {kernel.Muon{Matrices: []kernel.Matrix{one}}, []kernel.Type{f(6), f(6), f(6), rows(2),
			f(2), f(4)}, "a table of 2 rows for 1 matrices"},
		"few means": {kernel.Adafactor{Matrices: []kernel.Matrix{one}}, []kernel.Type{f(6), f(6), f(1),
			f(3), f(1), rows(1), f(2), f(4)}, "1 means of rows and 3 of columns: want 2 and 3"},
		"a moment too many": {kernel.Adafactor{Matrices: []kernel.Matrix{one}}, []kernel.Type{f(6), f(6), f(2),
			f(3), f(6), rows(1), f(2), f(4)}, "6 first moments: want 1"},
		"codes": {kernel.Lion8Bit{Quantised: 1}, []kernel.Type{f(300), f(300), u8(255), f(1), f(256),
			blocks, f(2), f(4)}, "255 codes of 1 blocks"},
		"no room": {kernel.Lion8Bit{Quantised: 0}, []kernel.Type{f(300), f(300), u8(256), f(1), f(256),
			blocks, f(2), f(4)}, "2 blocks in 32 bits"},
		"too many coded": {kernel.Lion8Bit{Quantised: 2}, []kernel.Type{f(300), f(300), u8(256), f(1), f(256),
			blocks, f(2), f(4)}, "2 of 2 blocks in 8 bits"},
	} {
		if _, err := c.k.Shape(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
