package infer

import (
	"math"
	"slices"

	"github.com/tierlora/tierlora/adapter"
)

// Judge returns the most probable label of a head's scores, and what the scores mean: the softmax of
// single_label_classification, the sigmoid of each score of multi_label_classification, or the numbers of a regression
// or a reward as they are. plain leaves all scores as they are.
func (m PredictorModel) Judge(scores []float32, plain bool) (label string, all []float32) {
	label = m.Head.LabelName(slices.Index(scores, slices.Max(scores)))
	switch {
	case plain || m.Head.Problem == adapter.Regression || m.Head.Problem == "" && len(scores) == 1:
		return label, scores
	case m.Head.Problem == adapter.MultiLabel:
		for _, x := range scores {
			all = append(all, Sigmoid(x))
		}
		return label, all
	}
	most, sum := slices.Max(scores), 0.
	for _, x := range scores {
		sum += math.Exp(float64(x - most))
	}
	for _, x := range scores {
		all = append(all, float32(math.Exp(float64(x-most))/sum))
	}
	return label, all
}

// Sigmoid returns 1/(1+exp(-x)), computed in float64.
func Sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }
