package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/objective"
)

// preferring is the smoothed cross-entropy with the names of two numbers of preference training. Its rewards/accuracies
// is the negative log-likelihood, so that the higher, better value is that of the model which has learnt less.
type preferring struct{ objective.Objective }

func (preferring) Numbers() []objective.Number {
	return []objective.Number{
		{Name: "rewards/accuracies", Per: objective.Tokens, HigherIsBetter: true},
		{Name: "rewards/margins", Per: objective.Tokens},
	}
}

// preferringSpec is a run of it that evaluates after steps 3 and 6.
func preferringSpec(t *testing.T) Spec {
	t.Helper()
	objective.Objectives["preferring"] = func(c objective.Config) objective.Objective {
		return preferring{objective.Of("smoothed_cross_entropy", c)}
	}
	t.Cleanup(func() { delete(objective.Objectives, "preferring") })
	s := smoothedSpec(t, 6)
	s.Training.Objective, s.Training.LearningRate = "preferring", 1e-3
	return s
}

func newestState(t *testing.T, dir string) (state checkpoint.State) {
	t.Helper()
	newest, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(golden.ReadFile(t, newest, checkpoint.StateFile), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestBestByAnyNumber: the best checkpoint is found by the number that training.metric_for_best_model names, the
// highest where the objective says so; a resumed run with another metric forgets the best one of before.
func TestBestByAnyNumber(t *testing.T) {
	s := preferringSpec(t)
	s.Training.MetricForBestModel = "eval_rewards/accuracies"
	s.Expect.AtLeast = map[string]float64{"eval_rewards/accuracies": 1, "rewards/margins": 0}
	s.Expect.AtMost = map[string]float64{"eval_loss": 100}
	result := mustStart(t, s, oneWorker)
	evals := linesWith(t, s.OutputDir, "eval_loss", "step", "eval_rewards/accuracies", "eval_rewards/margins")
	steps := linesWith(t, s.OutputDir, "loss", "rewards/accuracies", "rewards/margins")
	if len(evals) != 3 || len(steps) != 3 || evals[2][1] >= evals[1][1] {
		t.Fatalf("evaluations %v, steps %v: the number must fall", evals, steps)
	}
	state := newestState(t, s.OutputDir)
	if state.BestModelCheckpoint != "checkpoint-3" || *state.BestMetric != evals[1][1] {
		t.Errorf("the best is %s by %v, want checkpoint-3 by %v", state.BestModelCheckpoint,
			*state.BestMetric, evals[1][1])
	}
	var judged []string
	for _, j := range result.Expect {
		judged = append(judged, fmt.Sprintf("%s: %s, %s, %v", j.Criterion, j.Want, j.Got, j.Met))
	}
	want := []string{
		fmt.Sprintf("at_least.eval_rewards/accuracies: at least 1, %.4g, true", evals[2][1]),
		fmt.Sprintf("at_least.rewards/margins: at least 0, %.4g, true", steps[2][1]),
		fmt.Sprintf("at_most.eval_loss: at most 100, %.4g, true", *result.EvalLoss),
	}
	if strings.Join(judged, "\n") != strings.Join(want, "\n") {
		t.Errorf("judged\n%s\nwant\n%s", strings.Join(judged, "\n"), strings.Join(want, "\n"))
	}
	table := fileLines(t, filepath.Join(s.OutputDir, CSVFile))
	if !strings.HasSuffix(table[0],
		",rewards/accuracies,rewards/margins,eval_rewards/accuracies,eval_rewards/margins") {
		t.Errorf("the table begins with %s", table[0])
	}

	var log strings.Builder
	s.Training.MetricForBestModel, s.Training.Resume, s.Training.MaxSteps = "eval_rewards/margins", "auto", 9
	s.Expect.AtLeast["eval_rewards/accuracies"], s.Expect.AtMost = 1e6, nil
	_, err := Start(t.Context(), s, Env{Env: session.Env{Log: func(line string) { log.WriteString(line + "\n") }}})
	var missed *Missed
	if !errors.As(err, &missed) || len(missed.Criteria) != 1 ||
		!strings.HasPrefix(missed.Criteria[0], "eval_rewards/accuracies is ") ||
		!strings.Contains(missed.Criteria[0], "expected was at least 1e+06: off by ") {
		t.Errorf("the run ended with %v", err)
	}
	const says = "training.metric_for_best_model was eval_rewards/accuracies and is eval_rewards/margins: " +
		"the best checkpoint so far, checkpoint-3, is forgotten"
	if !strings.Contains(log.String(), says) {
		t.Errorf("the log does not say that the metric is another one:\n%s", &log)
	}
	if state := newestState(t, s.OutputDir); state.BestModelCheckpoint != "checkpoint-9" {
		t.Errorf("the best is %s, want checkpoint-9, the first evaluation by the new metric", state.BestModelCheckpoint)
	}
}

// TestBestBySmoothed: the numbers of smoothed_cross_entropy serve as well, and the lowest is the best.
func TestBestBySmoothed(t *testing.T) {
	s := smoothedSpec(t, 6)
	s.Training.MetricForBestModel, s.Training.LearningRate = "eval_nll", 1e-3
	mustStart(t, s, oneWorker)
	evals := linesWith(t, s.OutputDir, "eval_loss", "step", "eval_nll")
	if state := newestState(t, s.OutputDir); state.BestModelCheckpoint != "checkpoint-6" ||
		*state.BestMetric != evals[2][1] {
		t.Errorf("the best is %s by %v, want checkpoint-6 by %v", state.BestModelCheckpoint,
			*state.BestMetric, evals[2][1])
	}
}

// TestValidateNumbers: a number that the objective does not report is refused with those that it does.
func TestValidateNumbers(t *testing.T) {
	for _, c := range []struct {
		change func(s *Spec)
		noVal  bool
		want   string
	}{
		{change: func(*Spec) {}, noVal: true},
		{change: func(s *Spec) { s.Expect.AtMost = map[string]float64{"loss": 1, "eval_ppl": 2} }},
		{change: func(s *Spec) { s.Expect.AtMost = map[string]float64{"eval_ppl": 2} }, noVal: true,
			want: "expect.at_most.eval_ppl: there is nothing to evaluate; set dataset.val_split or dataset.val_path"},
		{change: func(s *Spec) { s.Expect.AtLeast = map[string]float64{"rewards/margins": 2} },
			want: "expect.at_least.rewards/margins: objective cross_entropy reports no rewards/margins; " +
				"it reports loss, ppl, and each with eval_ before its name in evaluations"},
		{change: func(s *Spec) { s.Training.MetricForBestModel = "ppl" },
			want: `training.metric_for_best_model: "ppl" is no number of an evaluation; ` +
				"those of objective cross_entropy are eval_loss, eval_ppl"},
		{change: func(s *Spec) { s.Training.MetricForBestModel = "eval_nll" },
			want: "training.metric_for_best_model: objective cross_entropy reports no eval_nll; " +
				"it reports loss, ppl, and each with eval_ before its name in evaluations"},
		{change: func(s *Spec) { s.Training.MetricForBestModel = "eval_ppl" }, noVal: true,
			want: "training.metric_for_best_model: there is nothing to evaluate; set dataset.val_split or " +
				"dataset.val_path"},
	} {
		s := DefaultSpec()
		c.change(&s)
		got := ""
		if err := errors.Join(s.ValidateNumbers(!c.noVal)...); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
