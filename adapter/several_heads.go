package adapter

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// severalHeads is the name of the heads of several adapters, one below the other.
const severalHeads = "adapters_score"

// headParams are the tensors of a task's classification head over a width; nil = the task has none.
func (t Task) headParams(width int) (all []Param) {
	if !t.HasScores() {
		return nil
	}
	all = []Param{{ScoreWeight, []int{t.Labels, width}, make([]float32, t.Labels*width)}}
	if t.Biased() {
		all = append(all, Param{ScoreBias, []int{t.Labels}, make([]float32, t.Labels)})
	}
	return all
}

// ScoreRange returns the rows [from,to) of Scores that are the head of adapter i; none for an adapter without one.
func (s *Several) ScoreRange(i int) (from, to int) {
	for _, saved := range s.saved[:i+1] {
		if from = to; saved.Config.Task.HasScores() {
			to += saved.Config.Task.Labels
		}
	}
	return from, to
}

// Scores declares the classification heads of all adapters as one matrix [L,C] over a width of C, L being the sum of
// their labels; nil if no adapter has one.
func (s *Several) Scores(n *nn.Net, width int) *nn.Value {
	s.width, s.biases = width, make([][]float32, len(s.saved))
	_, labels := s.ScoreRange(len(s.saved) - 1)
	if labels == 0 {
		return nil
	}
	return n.Frozen(severalHeads, kernel.T(n.Float(), labels, width))
}

// ScoreBias returns the bias of the head of adapter i, after Load; nil = it has none.
func (s *Several) ScoreBias(i int) []float32 { return s.biases[i] }

// placeHead writes the head of adapter i into memory and keeps its bias. params are the tensors of the head.
func (s *Several) placeHead(m graph.Store, i int, params []Param) error {
	if len(params) == 0 || s.width == 0 {
		return nil
	}
	t, err := m.Tensor(severalHeads)
	if err == nil && t.DType != kernel.F32 {
		err = fmt.Errorf("heads are computed in float32, %s is %v", severalHeads, t.Type)
	}
	if err != nil {
		return fmt.Errorf("write the heads: %w", err)
	}
	from, to := s.ScoreRange(i)
	copy(t.F32()[from*s.width:to*s.width], params[0].Data)
	if len(params) > 1 {
		s.biases[i] = params[1].Data
	}
	return m.Put(severalHeads)
}
