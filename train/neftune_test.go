package train

import (
	"math"
	"testing"
)

// TestNEFTuneRun: a run with noise on its embeddings is the same to the last bit over two ranks and after an interrupt,
// with packing and accumulation; evaluations have no noise, and without noise the loss is another.
func TestNEFTuneRun(t *testing.T) {
	t.Parallel()
	noisy := func(alpha float64) Spec {
		s := smoothedSpec(t, 6)
		s.Training.NEFTuneAlpha = alpha
		return s
	}
	s := noisy(20)
	mustStart(t, s, oneWorker)
	sameOverRanksAndResume(t, s, 3)
	plain := noisy(0)
	mustStart(t, plain, oneWorker)
	first := func(s Spec, key string) float64 { return linesWith(t, s.OutputDir, key, key)[0][0] }
	if a, b := first(s, "eval_loss"), first(plain, "eval_loss"); a != b {
		t.Errorf("the first evaluation has the loss %v with noise and %v without", a, b)
	}
	if a, b := first(s, "loss"), first(plain, "loss"); math.Abs(a-b) < 1e-4 {
		t.Errorf("the loss is %v with noise and %v without", a, b)
	}
}

// TestNEFTuneIsOfTheRow: the noise of a row does not depend on the batch that it is in: one step has the same loss from
// one batch of four rows, from four of one, and from four that are packed into one sequence.
func TestNEFTuneIsOfTheRow(t *testing.T) {
	run := func(batch, accumulate int, packing bool) float64 {
		s := weightedSpec(t, 1, func(i int) string { return map[bool]string{true: "0"}[i >= 4] })
		s.Training.NEFTuneAlpha, s.Training.LoggingSteps, s.Training.EvalSteps, s.Training.EvalOnStart = 20, 1, 0, false
		s.Training.BatchSize, s.Training.GradientAccumulationSteps = batch, accumulate
		s.Dataset.Packing, s.Dataset.Shuffle, s.Dataset.ValSplit = packing, false, 0
		mustStart(t, s, oneWorker)
		return linesWith(t, s.OutputDir, "loss", "loss")[0][0]
	}
	one := run(4, 1, false)
	for what, loss := range map[string]float64{"four batches": run(1, 4, false), "a packed sequence": run(1, 1, true)} {
		if math.Abs(one-loss) > 1e-5*one {
			t.Errorf("the loss of one batch is %v, of %s %v", one, what, loss)
		}
	}
}
