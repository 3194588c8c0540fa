package train

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

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
