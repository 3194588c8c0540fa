package objective

import "fmt"

// weighting is an optional capability of an Objective: it can multiply each token's loss by a weight of its own.
type weighting interface {
	// withWeights returns the objective that does.
	withWeights() Objective
}

func (crossEntropy) takesParts() bool { return true }

// takesParts reports whether the teacher is in the computation: log-probabilities in a folder belong to whole rows.
func (o distill) takesParts() bool { return o.Taught() }

func (o crossEntropy) withWeights() Objective {
	o.weighted = true
	return o
}

func (o smoothed) withWeights() Objective {
	o.weighted = true
	return o
}

func (o byToken) withWeights() Objective {
	o.weighted = true
	return o
}

// Weighted returns the objective with the weights of a batch's tokens (dataset.Config.Weights), or the objective itself
// where it takes none, which CheckWeights says.
func Weighted(o Objective) Objective {
	if w, ok := o.(weighting); ok {
		return w.withWeights()
	}
	return o
}

// CheckWeights refuses dataset.weights for an objective that takes none.
func CheckWeights(name string, c Config) error {
	if Objectives[name] == nil {
		return nil // the check of training.objective says so
	}
	if _, ok := Of(name, c).(weighting); !ok {
		return fmt.Errorf("dataset.weights: training.objective %s takes no weights of rows or messages: remove it", name)
	}
	return nil
}
