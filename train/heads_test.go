package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/train/objective"
)

// headSpec is a run of steps of a task on rows of a file, accumulated, that evaluates.
func headSpec(t testing.TB, steps int, task, objective string, row func(i int) string) Spec {
	t.Helper()
	var text strings.Builder
	for i := range 40 {
		text.WriteString(row(i) + "\n")
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s := testSpec(t, steps)
	s.Dataset.Path, s.Dataset.Format, s.Dataset.Fields, s.Dataset.ValSplit = path, "", nil, 0.2
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps, c.EvalOnStart = 2, 4, 2, 3, true
	s.Task, c.Objective, c.LearningRate = task, objective, 5e-3
	return s
}

// rewardRow is a pair of texts whose chosen answer is the longer one.
func rewardRow(i int) string {
	const row = `{"prompt": "Once upon a time, number %d", "chosen": " there was a %s dog.", "rejected": ` +
		`" it was cold%s", "margin": %d}`
	return fmt.Sprintf(row, i, strings.Repeat("very ", 1+i%4), strings.Repeat("!", i%3), i%2)
}

// headRun checks a run of a head: named numbers, an evaluation that gets better, and the same numbers to the last bit
// over ranks and after an interrupt between two lines, packed or not.
func headRun(t *testing.T, spec func() Spec, numbers ...string) {
	names, held := []string{"loss"}, []string{"eval_loss"}
	for _, name := range numbers {
		if held = append(held, "eval_"+name); !slices.Contains([]string{"f1_macro", "spearman", "recall@5"}, name) {
			names = append(names, name)
		}
	}
	for _, packed := range []bool{false, true} {
		whole := spec()
		whole.Dataset.Packing = packed
		mustStart(t, whole, oneWorker)
		steps, evals := linesWith(t, whole.OutputDir, "loss", names...), linesWith(t, whole.OutputDir, "eval_loss",
			held...)
		if len(steps) != 3 || len(evals) != 3 {
			t.Fatalf("%d lines of steps and %d of evaluations, want 3 and 3", len(steps), len(evals))
		}
		if first, last := evals[0], evals[2]; !(last[0] < first[0]) {
			t.Errorf("the evaluations have %v, want a smaller loss after training", evals)
		}
		sameOverRanksAndResume(t, whole, 3)
	}
}

func TestRewardRun(t *testing.T) {
	t.Parallel()
	headRun(t, func() Spec { return headSpec(t, 6, "sequence_classification", "reward", rewardRow) },
		"mean_reward", "accuracy", "margin", "min_reward", "max_reward")
}

func TestClassificationRun(t *testing.T) {
	t.Parallel()
	words := []string{"happy", "sad", "angry"}
	for kind, row := range map[string]func(i int) string{
		"single_label": func(i int) string {
			return fmt.Sprintf(`{"text": "The %s dog number %d was there.", "label": %q}`, words[i%3], i, words[i%3])
		},
		"multi_label": func(i int) string {
			return fmt.Sprintf(`{"text": "The %s and %s dog number %d.", "label": [%q, %q]}`, words[i%3],
				words[(i+1)%3], i,
				words[i%3], words[(i+1)%3])
		},
	} {
		headRun(t, func() Spec {
			s := headSpec(t, 6, "sequence_classification", "classification", row)
			s.Objectives.Classification = &objective.ClassificationConfig{ProblemType: kind, Labels: words}
			return s
		}, "accuracy", "f1_macro")
	}
}

func TestRegressionRun(t *testing.T) {
	t.Parallel()
	headRun(t, func() Spec {
		s := headSpec(t, 6, "sequence_classification", "classification", func(i int) string {
			return fmt.Sprintf(`{"text": "The %sdog.", "score": %v}`, strings.Repeat("very ", i%5), float64(i%5)/4)
		})
		s.Objectives.Classification = &objective.ClassificationConfig{ProblemType: "regression"}
		return s
	}, "mae", "spearman")
}

func TestTokenClassificationRun(t *testing.T) {
	t.Parallel()
	headRun(t, func() Spec {
		s := headSpec(t, 6, "token_classification", "token_classification", func(i int) string {
			return fmt.Sprintf(`{"tokens": ["Tom", "saw", "%s", "dog"], "ner_tags": [1, 0, -100, 2]}`,
				strings.Repeat("very", 1+i%3))
		})
		s.Objectives.Classification = &objective.ClassificationConfig{NumLabels: 3}
		return s
	}, "accuracy", "f1_macro")
}

func TestRerankRun(t *testing.T) {
	t.Parallel()
	headRun(t, func() Spec {
		return headSpec(t, 6, "reranker", "rerank", func(i int) string {
			return fmt.Sprintf(`{"query": "a dog %d", "document": "There was %s.", "label": %d}`, i,
				[]string{"a cat", "a dog"}[i%2], i%2)
		})
	}, "accuracy")
}

// pairRow is two texts that belong together, every third row with hard negatives.
func pairRow(i int) string {
	names := []string{"dog", "cat", "tree", "house", "ball"}
	row := fmt.Sprintf(`{"anchor": "The big %s %d", "positive": "There was a %s, number %d."`, names[i%5], i, names[i%5], i)
	if i%3 == 0 {
		row += fmt.Sprintf(`, "negative": ["A %s was there.", "No."]`, names[(i+1)%5])
	}
	return row + "}"
}

func TestEmbeddingRun(t *testing.T) {
	t.Parallel()
	for _, pooling := range []string{"mean", "last"} {
		headRun(t, func() Spec {
			s := headSpec(t, 6, "embedding", "contrastive", pairRow)
			s.Objectives.Embedding = &objective.EmbeddingConfig{Pooling: pooling, Normalize: true, Temperature: 0.1}
			return s
		}, "accuracy", "similarity", "similarity_others", "recall@5")
	}
}

// TestHeadsAreEvaluated checks that an evaluation of the finished adapter has the run's last numbers, and that what
// writes text refuses it.
func TestHeadsAreEvaluated(t *testing.T) {
	s := headSpec(t, 6, "sequence_classification", "reward", rewardRow)
	mustStart(t, s, oneWorker)
	evals := linesWith(t, s.OutputDir, "eval_loss", "eval_loss", "eval_accuracy", "eval_margin")
	last := evals[len(evals)-1]
	report, err := infer.Evaluate(t.Context(), s.Evaluation(s.OutputDir), oneWorker.Env)
	if err != nil {
		t.Fatal(err)
	}
	got := []float64{report.Loss, report.Numbers["accuracy"], report.Numbers["margin"]}
	for i := range got {
		if math.Abs(got[i]-last[i]) > 1e-6 {
			t.Errorf("the evaluation has %v, the run had %v", got, last)
			break
		}
	}
	for adapter, want := range map[string]string{
		"": "evaluate: the base model has no head for the task: name the run's adapter with --adapter",
	} {
		if _, err := infer.Evaluate(t.Context(), s.Evaluation(adapter), oneWorker.Env); err == nil ||
			err.Error() != want {
			t.Errorf("%q: %v, want %s", adapter, err, want)
		}
	}
	causal := s
	causal.Task, causal.Training.Objective = TaskCausal, "cross_entropy"
	causal.Dataset.Format, causal.Dataset.Fields = "completion", map[string]string{"prompt": "prompt",
		"completion": "chosen"}
	_, err = infer.Evaluate(t.Context(), causal.Evaluation(s.OutputDir), oneWorker.Env)
	if want := "the adapter has task_type SEQ_CLS: it gives scores or vectors of texts, and no tokens"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
