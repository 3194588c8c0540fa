package train

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/objective"
)

// TestEveryTaskIsPlannedForAGPU checks heads over sequences and tokens in each precision: a plan needs no device.
func TestEveryTaskIsPlannedForAGPU(t *testing.T) {
	t.Parallel()
	chip, err := graph.FindChip("h100")
	if err != nil {
		t.Fatal(err)
	}
	labelled := func(i int) string { return fmt.Sprintf(`{"text": "A dog, number %d.", "label": %d}`, i, i%3) }
	tagged := func(int) string { return `{"tokens": ["Tom", "saw"], "ner_tags": [1, 2]}` }
	scored := func(i int) string { return fmt.Sprintf(`{"query": "a", "document": "b %d", "label": %d}`, i, i%2) }
	for _, c := range []struct {
		task, objective string
		row             func(i int) string
		labels          int
	}{
		{"sequence_classification", "classification", labelled, 3},
		{"sequence_classification", "reward", rewardRow, 0},
		{"token_classification", "token_classification", tagged, 3},
		{"reranker", "rerank", scored, 0},
		{"embedding", "contrastive", pairRow, 0},
	} {
		for _, precision := range []string{"bf16", "fp16", "tf32", "fp32"} {
			s := headSpec(t, 2, c.task, c.objective, c.row)
			s.Device, s.Training.Precision = "cuda", precision
			if c.labels > 0 {
				s.Objectives.Classification = &objective.ClassificationConfig{NumLabels: c.labels}
			}
			if _, err := PlanFor(t.Context(), s, Env{}, chip); err != nil {
				t.Errorf("%s, %s: %v", c.objective, precision, err)
			}
		}
	}
}
