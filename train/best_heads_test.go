package train

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/objective"
)

// headMetric is a run of a head or of preferences with a number of its evaluations.
type headMetric struct {
	metric string
	higher bool // the better value is the higher one
	spec   func(t *testing.T, steps int) Spec
}

// headMetrics are numbers of each head and of preferences, of both directions.
func headMetrics() (all []headMetric) {
	add := func(spec func(t *testing.T, steps int) Spec, higher, lower string) {
		for _, name := range strings.Fields(higher) {
			all = append(all, headMetric{name, true, spec})
		}
		for _, name := range strings.Fields(lower) {
			all = append(all, headMetric{name, false, spec})
		}
	}
	head := func(task, name, problem string, row func(i int) string) func(t *testing.T, steps int) Spec {
		return func(t *testing.T, steps int) Spec {
			s := headSpec(t, steps, task, name, row)
			if problem != "" {
				s.Objectives.Classification = &objective.ClassificationConfig{ProblemType: problem, NumLabels: 3}
			}
			return s
		}
	}
	add(head("sequence_classification", "classification", "single_label", func(i int) string {
		return fmt.Sprintf(`{"text": "The dog number %d was there.", "label": %d}`, i, i%3)
	}), "eval_accuracy eval_f1_macro", "eval_loss")
	add(head("sequence_classification", "classification", "regression", func(i int) string {
		return fmt.Sprintf(`{"text": "The dog number %d was there.", "label": [%d, %d, 1]}`, i, i%3, i%5)
	}), "eval_spearman", "eval_mae")
	add(head("token_classification", "token_classification", "single_label", func(i int) string {
		return fmt.Sprintf(`{"tokens": ["dog", "%d"], "ner_tags": [%d, %d]}`, i, i%3, (i+1)%2)
	}), "eval_f1_macro", "")
	add(head("reranker", "rerank", "", func(i int) string {
		return fmt.Sprintf(`{"query": "Who, %d?", "document": "It was dog %d.", "label": %v}`, i, i%7, float64(i%4)/3)
	}), "eval_spearman", "")
	add(head("embedding", "contrastive", "", pairRow), "eval_recall@1 eval_mrr", "eval_similarity_others")
	add(head("sequence_classification", "reward", "", rewardRow), "eval_accuracy eval_margin", "")
	add(func(t *testing.T, steps int) Spec {
		s := dpoSpec(t, steps)
		s.Dataset.ValSplit = 0.2
		return s
	}, "eval_rewards/accuracies", "eval_loss")
	return all
}

// TestBestOfHeads checks early stopping and load_best_model_at_end with the metrics of each head and of preferences: a
// run ends after two evaluations in a row without a better value, in the metric's direction, and its result has the
// weights of the best checkpoint.
func TestBestOfHeads(t *testing.T) {
	t.Parallel()
	for i, c := range headMetrics() {
		t.Run(fmt.Sprintf("%d %s", i, strings.ReplaceAll(c.metric, "/", "-")), func(t *testing.T) {
			s := c.spec(t, 10)
			s.Training.EvalSteps, s.Training.EvalOnStart, s.Training.MetricForBestModel = 1, false, c.metric
			s.Training.LRScheduler, s.Training.LearningRate = "constant", 0.02
			s.Training.EarlyStoppingPatience, s.Training.LoadBestModelAtEnd = 2, true
			r := mustStart(t, s, oneWorker)
			evals := linesWith(t, s.OutputDir, "eval_loss", c.metric)
			best, stale := 0, 0 // index of the best evaluation, and how many came after it
			for k, e := range evals {
				switch {
				case k > 0 && (e[0] > evals[best][0]) == c.higher && e[0] != evals[best][0]:
					best, stale = k, 0
				case k > 0:
					stale++
				}
				if stale == 2 && k < len(evals)-1 {
					t.Fatalf("evaluation %d is the second in a row without a better one, and the run goes on: %v", k+1,
						evals)
				}
			}
			if r.Steps != len(evals) || (stale == 2) != (r.EndedEarly != "") || stale < 2 && r.Steps < 10 {
				t.Errorf("%d steps, ended %q, want after two evaluations that are not better: %v", r.Steps,
					r.EndedEarly, evals)
			}
			if r.EndedEarly != "" && !strings.Contains(r.EndedEarly, "no better "+c.metric+" in 2 evaluations") {
				t.Errorf("ended: %s", r.EndedEarly)
			}
			if r.ResultStep != best+1 {
				t.Errorf("the result is of step %d, want %d: %v", r.ResultStep, best+1, evals)
			}
			if !bytes.Equal(golden.ReadFile(t, s.OutputDir, adapter.WeightsFile), golden.ReadFile(t, s.OutputDir,
				filepath.Base(checkpointAt(s, best+1)), adapter.WeightsFile)) {
				t.Error("the result has not the weights of the best checkpoint")
			}
		})
	}
}

// TestLossWatchdogOfHeads checks that a run of each head and of preferences ends after steps with a high loss.
func TestLossWatchdogOfHeads(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range headMetrics() {
		s := c.spec(t, 6)
		if seen[s.Training.Objective] {
			continue
		}
		seen[s.Training.Objective] = true
		s.Training.LossWatchdogThreshold, s.Training.LossWatchdogPatience, s.Training.LearningRate = 1e-3, 3, 1e-6
		r := mustStart(t, s, oneWorker)
		if r.Steps != 3 || !strings.HasPrefix(r.EndedEarly, "loss watchdog: the loss was above 0.001 in 3 steps in "+
			"a row") {
			t.Errorf("%s: %d steps, %q", s.Training.Objective, r.Steps, r.EndedEarly)
		}
	}
}
