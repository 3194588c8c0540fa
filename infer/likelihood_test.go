package infer

import (
	"context"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestLikelihoodsBothWays: token by token over the cache, and by the evaluation's plan.
func TestLikelihoodsBothWays(t *testing.T) {
	g := generator(t, golden.StoriesDir(t), "")
	var rows []dataset.Row
	for i, text := range []string{"Once upon a time there was a cat.", "The dog", "They went to the park and played " +
		"with a ball until it was dark and mum called them home. Then they had a bath and a story, and they slept " +
		"until the sun was up again."} {
		ids := g.Base.Tokenizer.IDs(text, true)
		labels := append([]int32(nil), ids...)
		for k := range min(len(ids)-1, 1+40*i) {
			labels[k] = dataset.Ignore
		}
		rows = append(rows, dataset.Row{IDs: ids, Labels: labels})
	}
	together, err := g.LogLikelihoods(context.Background(), rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.prepare(context.Background(), 256); err != nil {
		t.Fatal(err)
	}
	single, err := g.oneByOne(context.Background(), rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if together[i] >= 0 {
			t.Errorf("row %d: log-likelihood %v", i, together[i])
		}
		golden.Near(t, "log-likelihood", single[i], together[i], 1e-4)
	}
}
