package kernel_test

import (
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestAnswerSums(t *testing.T) {
	pairs := kerneltest.Ints([]int32{4, 1, -1, -1, 0, 3, 2, 9}, 4, 2)
	rows := kerneltest.Ints([]int32{4, 1, 1, -1, -1, 1, 0, 3, -1, 2, -1, 0, 5, -1, 1}, 5, 3)
	for name, answers := range map[string]kerneltest.Input{"pairs": pairs, "labelled rows": rows} {
		kerneltest.Run(t, kerneltest.Case{Name: name, Kernel: kernel.AnswerSums{}, Bound: 1e-7,
			In: []kerneltest.Input{kerneltest.Normal(3, 5), kerneltest.Normal(5), answers}})
	}
}

// TestAnswerSumsMeaning compares pairs, and labelled rows whose mismatched sequences count nowhere.
func TestAnswerSumsMeaning(t *testing.T) {
	sums := f64s([]float64{1, 2, 3, 4, 10, 20, 30, 40, 0, 5, 6, 7}, 3, 4)
	counts := f64s([]float64{8, 16, 32, 64}, 4)
	for name, c := range map[string]struct {
		answers []int32
		columns int
		want    []float64
	}{
		"pairs":                {[]int32{1, 0, -1, 2, 3, 4}, 2, []float64{3, 20, 10, 5, 24, 16, 8}},
		"two pairs":            {[]int32{1, 0, 2, 3}, 2, []float64{10, 50, 50, 11, 120, 48, 72}},
		"labelled":             {[]int32{0, 1, -1, 2, 3, 1, 3, -1, 0}, 3, []float64{4, 30, 10, 6, 40, 32, 8}},
		"one label":            {[]int32{3, -1, 1, -1, -1, -1}, 3, []float64{4, 40, 0, 7, 64, 64, 0}},
		"behind the sequences": {[]int32{4, -1, 1}, 3, make([]float64, 7)},
	} {
		out := evaluate(t, kernel.AnswerSums{}, sums, counts, i32s(c.answers, len(c.answers)/c.columns, c.columns))
		for i, want := range c.want {
			near(t, name, out[i].F64(), []float64{want}, 0)
		}
	}
}

func TestAnswerSumsRefuses(t *testing.T) {
	sums, counts := kernel.T(kernel.F32, 3, 5), kernel.T(kernel.F32, 5)
	for what, in := range map[string][]kernel.Type{
		"two rows of sums":   {kernel.T(kernel.F32, 2, 5), counts, kernel.T(kernel.I32, 4, 2)},
		"other sequences":    {sums, kernel.T(kernel.F32, 4), kernel.T(kernel.I32, 4, 2)},
		"four columns":       {sums, counts, kernel.T(kernel.I32, 4, 4)},
		"other element type": {sums, kernel.T(kernel.F64, 5), kernel.T(kernel.I32, 4, 2)},
	} {
		if _, err := (kernel.AnswerSums{}).Shape(in); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
