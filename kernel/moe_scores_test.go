package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// scoreRoutes are ways to choose and to weigh experts: DeepSeek-V3's, MiniMax-M2's, ERNIE 4.5's, DeepSeek-V2's, and one
// whose divisor is a constant.
var scoreRoutes = map[string]kernel.RouteScores{
	"groups": {TopK: 3, Corrected: true, Groups: 4, TopGroups: 2, Best: 2,
		Weigh: kernel.ScoreWeights{Normalise: true, Epsilon: 1e-20, Scale: 2.5}},
	"sigmoids": {TopK: 2, Corrected: true, Weigh: kernel.ScoreWeights{Normalise: true}},
	"softmax": {TopK: 3, Corrected: true,
		Weigh: kernel.ScoreWeights{Softmax: true, Normalise: true, Least: 1e-12}},
	"best group":   {TopK: 2, Groups: 4, TopGroups: 1, Best: 1, Weigh: kernel.ScoreWeights{Softmax: true, Scale: 16}},
	"least":        {TopK: 3, Weigh: kernel.ScoreWeights{Normalise: true, Epsilon: 1e-6, Least: 5, Scale: 0.5}},
	"as they are":  {TopK: 8, Weigh: kernel.ScoreWeights{Scale: 1.5}},
	"one of eight": {TopK: 1, Corrected: true, Weigh: kernel.ScoreWeights{Normalise: true}},
}

func TestRouteScores(t *testing.T) {
	var cases []kerneltest.Case
	for what, o := range scoreRoutes {
		for _, s := range [][2]int{{1, 8}, {7, 8}, {40, 128}} {
			name := fmt.Sprintf("%s %v", what, s)
			in := []kerneltest.Input{kerneltest.Normal(s[0], s[1])}
			if o.Corrected {
				in = append(in, kerneltest.Normal(s[1]))
			}
			cases = append(cases,
				kerneltest.Case{Name: name, Kernel: o, In: in, Bound: 1e-6, Step: 1e-5},
				kerneltest.Case{Name: name + " gradient", Kernel: kernel.RouteScoresGrad{Weigh: o.Weigh}, Bound: 1e-6,
					In: []kerneltest.Input{in[0], kerneltest.Ints(route(s[0], o.TopK, s[1]), s[0], o.TopK),
						kerneltest.Normal(s[0], o.TopK)}})
		}
	}
	kerneltest.Run(t, cases...)
}

// TestRouteScoresMeaning: the correction steers the choice and not the weights, closed groups have no expert, and ties
// go to the lower index.
func TestRouteScoresMeaning(t *testing.T) {
	s := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	logits := []float64{2, 1, 0, -1, 1, 1, 3, -9}
	correction := []float64{0, 0, 0.9, 0, 0, 0, -0.5, 0}
	for what, c := range map[string]struct {
		o       kernel.RouteScores
		experts []int32
		weights []float64
	}{
		"sigmoids": {kernel.RouteScores{TopK: 3, Weigh: kernel.ScoreWeights{Scale: 2}}, []int32{6, 0, 1},
			[]float64{2 * s(3), 2 * s(2), 2 * s(1)}},
		"corrected": {kernel.RouteScores{TopK: 3, Corrected: true,
			Weigh: kernel.ScoreWeights{Normalise: true, Epsilon: 0.5}}, []int32{2, 0, 1},
			[]float64{s(0) / (s(0) + s(2) + s(1) + 0.5), s(2) / (s(0) + s(2) + s(1) + 0.5),
				s(1) / (s(0) + s(2) + s(1) + 0.5)}},
		"groups of two": {kernel.RouteScores{TopK: 3, Groups: 4, TopGroups: 2, Best: 2}, []int32{0, 1, 4},
			[]float64{s(2), s(1), s(1)}},
		"the best of groups": {kernel.RouteScores{TopK: 2, Groups: 4, TopGroups: 1, Best: 1}, []int32{6, 7},
			[]float64{s(3), s(-9)}},
		"a least divisor": {kernel.RouteScores{TopK: 1, Weigh: kernel.ScoreWeights{Normalise: true, Least: 4}},
			[]int32{6}, []float64{s(3) / 4}},
	} {
		in := []kernel.Tensor{f64s(logits, 1, 8)}
		if c.o.Corrected {
			in = append(in, f64s(correction, 8))
		}
		out := evaluate(t, c.o, in...)
		if got, want := fmt.Sprint(out[1].I32()), fmt.Sprint(c.experts); got != want {
			t.Errorf("%s: experts %v, want %v", what, got, want)
		}
		near(t, what, out[0].F64(), c.weights, 1e-15)
	}
	for what, o := range map[string]kernel.RouteScores{
		"no expert": {}, "more experts": {TopK: 9}, "uneven groups": {TopK: 1, Groups: 3, TopGroups: 1, Best: 1},
		"no group":                        {TopK: 1, Groups: 2, Best: 1},
		"more groups":                     {TopK: 1, Groups: 2, TopGroups: 3, Best: 1},
		"more experts than in the groups": {TopK: 5, Groups: 2, TopGroups: 1, Best: 1},
		"best of none":                    {TopK: 1, Groups: 2, TopGroups: 1},
		"two of one":                      {TopK: 1, Groups: 8, TopGroups: 1, Best: 2},
	} {
		if _, err := o.Shape([]kernel.Type{kernel.T(kernel.F32, 3, 8)}); err == nil {
			t.Errorf("%s: %+v is accepted", what, o)
		}
	}
}
