package train

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/objective"
)

// smoothedSpec is a run of steps with label smoothing and a z-loss, packed and accumulated, that evaluates.
func smoothedSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Dataset.Packing, s.Dataset.ValSplit = true, 0.1
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps, c.EvalOnStart, c.ReportTo = 1, 4, 2,
		3, true, []string{"csv"}
	c.Objective, s.Objectives.SmoothedCrossEntropy = "smoothed_cross_entropy",
		&objective.SmoothedConfig{LabelSmoothing: 0.1, ZLoss: 1e-3}
	return s
}

// linesWith are the lines of a run's metrics.jsonl that have a key, each with some keys' values.
func linesWith(t *testing.T, dir, having string, keys ...string) (all [][]float64) {
	t.Helper()
	for _, text := range fileLines(t, filepath.Join(dir, MetricsFile)) {
		var line map[string]float64
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if _, ok := line[having]; !ok {
			continue
		}
		var row []float64
		for _, key := range keys {
			v, ok := line[key]
			if !ok {
				t.Fatalf("a line has no %s: %s", key, text)
			}
			row = append(row, v)
		}
		all = append(all, row)
	}
	return all
}

// TestSmoothedCrossEntropyRun: the named numbers of an objective are in metrics.jsonl and metrics.csv, they add up to
// the loss, and they are the same to the last bit over ranks and after an interrupt between two lines.
func TestSmoothedCrossEntropyRun(t *testing.T) {
	t.Parallel()
	whole := smoothedSpec(t, 6)
	mustStart(t, whole, oneWorker)
	steps := linesWith(t, whole.OutputDir, "loss", "loss", "nll", "ppl", "z_squared")
	evals := linesWith(t, whole.OutputDir, "eval_loss", "eval_loss", "eval_nll", "eval_ppl", "eval_z_squared")
	if len(steps) != 3 || len(evals) != 3 {
		t.Fatalf("%d lines of steps and %d of evaluations, want 3 and 3", len(steps), len(evals))
	}
	for _, row := range append(steps, evals...) {
		if loss, nll, ppl, z := row[0], row[1], row[2], row[3]; !(loss > 0 && z > 0) || loss == nll ||
			math.Abs(ppl-math.Exp(nll)) > 1e-9*ppl {
			t.Errorf("loss %v, nll %v, ppl %v, z_squared %v", loss, nll, ppl, z)
		}
	}
	table := fileLines(t, filepath.Join(whole.OutputDir, CSVFile))
	if !strings.HasSuffix(table[0], ",eval_loss,nll,z_squared,eval_nll,eval_z_squared") || len(table) != 7 ||
		!strings.HasSuffix(table[2], fmt.Sprintf(",,%s,%s,,", number(steps[0][1]), number(steps[0][3]))) ||
		!strings.HasSuffix(table[1], fmt.Sprintf(",%s,,,%s,%s", number(evals[0][0]), number(evals[0][1]),
			number(evals[0][3]))) {
		t.Errorf("the table is\n%s", strings.Join(table, "\n"))
	}

	sameOverRanksAndResume(t, whole, 3)
}

// TestZLossAddsUp: without smoothing the loss is the negative log-likelihood and the weighted squares, and the
// likelihood of the untrained model is what cross-entropy has.
func TestZLossAddsUp(t *testing.T) {
	s := smoothedSpec(t, 2)
	s.Objectives.SmoothedCrossEntropy, s.Training.LoggingSteps = &objective.SmoothedConfig{ZLoss: 0.01}, 1
	mustStart(t, s, Env{})
	both := s
	both.Training.LoggingSteps, both.OutputDir = 2, filepath.Join(t.TempDir(), "both")
	mustStart(t, both, Env{})
	plain := smoothedSpec(t, 1)
	plain.Training.Objective, plain.Objectives.SmoothedCrossEntropy,
		plain.Training.LoggingSteps = objective.Default, nil, 1
	mustStart(t, plain, Env{})
	steps := linesWith(t, s.OutputDir, "loss", "loss", "nll", "z_squared")
	for _, row := range append(steps, linesWith(t, both.OutputDir, "loss", "loss", "nll", "z_squared")...) {
		if want := row[1] + 0.01*row[2]; math.Abs(row[0]-want) > 1e-6*want {
			t.Errorf("the loss is %v, its parts are %v", row[0], want)
		}
	}
	if want := linesWith(t, plain.OutputDir, "loss", "loss")[0][0]; math.Abs(steps[0][1]-want) > 1e-6*want {
		t.Errorf("the first step's negative log-likelihood is %v, that of cross-entropy %v", steps[0][1], want)
	}
}

// bySequence is cross-entropy as a sum over each sequence, averaged over sequences.
type bySequence struct{ objective.Objective }

func (bySequence) Divisor() objective.Count    { return objective.Sequences }
func (bySequence) Numbers() []objective.Number { return nil }

// TestDivisorOfSequences: an objective's divisor reaches the loss, the means of metrics.jsonl, evaluations and
// checkpoints.
func TestDivisorOfSequences(t *testing.T) {
	t.Parallel()
	objective.Objectives["by_sequence"] = func(c objective.Config) objective.Objective {
		return bySequence{objective.Of(objective.Default, c)}
	}
	t.Cleanup(func() { delete(objective.Objectives, "by_sequence") })
	run := func(name string) (Spec, Result) {
		s := smoothedSpec(t, 4)
		s.Training.Objective, s.Objectives.SmoothedCrossEntropy, s.Training.LearningRate = name, nil, 1e-30
		s.Dataset.Packing, s.Training.LoggingSteps = false, 4
		return s, mustStart(t, s, oneWorker)
	}
	s, got := run("by_sequence")
	plain, want := run(objective.Default)
	trained := linesWith(t, plain.OutputDir, "loss", "tokens/trainable")[0][0]
	const rows = 4 * 4 // of one row each, in four steps
	if sum := want.MeanLoss * trained; math.Abs(got.MeanLoss*rows-sum) > 1e-5*sum {
		t.Errorf("the sums over the run are %v and %v", got.MeanLoss*rows, sum)
	}
	if line := linesWith(t, s.OutputDir, "loss", "loss", "tokens/trainable")[0]; line[0] != got.MeanLoss ||
		line[1] != trained {
		t.Errorf("the line has %v, want the loss %v and %v trained tokens", line, got.MeanLoss, trained)
	}
	if *got.EvalLoss < 2**want.EvalLoss { // a row has many trained tokens
		t.Errorf("the evaluation's loss is %v, by tokens %v", *got.EvalLoss, *want.EvalLoss)
	}
	sameOverRanksAndResume(t, s, 2)
}
