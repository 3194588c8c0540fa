package train

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// slowEvaluation takes two seconds over each evaluation, and keeps the time that the paces of steps are of.
type slowEvaluation struct {
	Silent
	tokens  int64
	seconds []float64
}

func (s *slowEvaluation) Eval(EvalMetrics) error {
	time.Sleep(2 * time.Second)
	return nil
}

func (s *slowEvaluation) Step(i StepInfo) error {
	s.tokens += i.Tokens
	s.seconds = append(s.seconds, float64(s.tokens)/i.TokensPerSecond)
	return nil
}

// TestPaceIsOfSteps: tokens a second are those of training, whatever time evaluations take.
func TestPaceIsOfSteps(t *testing.T) {
	t.Parallel() // it waits most of the time
	spec := testSpec(t, 4)
	spec.Dataset.ValSplit, spec.Training.EvalSteps = 0.05, 1
	slow := &slowEvaluation{}
	mustStart(t, spec, Env{Observers: []Observer{slow}})
	if last := slow.seconds[len(slow.seconds)-1]; len(slow.seconds) != 4 || last > 5 {
		t.Errorf("the pace after %d steps is of %.1f s, 6 s of which are evaluations", len(slow.seconds), last)
	}
}

// TestEvaluationDropsNothing: dropout is of training only, also in the evaluations of a run.
func TestEvaluationDropsNothing(t *testing.T) {
	s := testSpec(t, 8)
	s.LoRA.Dropout, s.Training.LearningRate = 0.5, 1e-2
	s.Dataset.ValSplit = 0.05
	r := mustStart(t, s, Env{})
	e, err := infer.Evaluate(context.Background(), s.Evaluation(s.OutputDir), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	golden.Near(t, "evaluation at the run's end", *r.EvalLoss, e.Loss, 1e-6)
	none, err := infer.Evaluate(context.Background(), s.Evaluation(""), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(none.Loss-e.Loss) < 1e-2 {
		t.Errorf("the adapter hardly changes the loss: %v, without it %v", e.Loss, none.Loss)
	}
}
