package infer

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// evaluation is what transformers computes in float32 over chat rows.
type evaluation struct {
	Mean float64 `json:"mean_nll"`
	Rows []struct {
		IDs     []int32 `json:"ids"`
		Prompt  int     `json:"prompt_tokens"`
		Trained int     `json:"trained_tokens"`
		NLL     float64 `json:"nll_sum"`
	} `json:"rows"`
}

func smolLM2Evaluation(t testing.TB) (want evaluation) {
	t.Helper()
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/evaluation.json"), &want)
	return want
}

func TestSmolLM2EvaluatesAsTransformers(t *testing.T) {
	dir := golden.SmolLM2(t)
	want := smolLM2Evaluation(t)
	b, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	longest := 0
	for _, r := range want.Rows {
		longest = max(longest, len(r.IDs))
	}
	v := evaluatorOf(t, b, longest)
	for i, r := range want.Rows[:5] { // TestSmolLM2LossByGroupAsTransformers has the mean of ten
		labels := slices.Clone(r.IDs)
		for k := range r.Prompt {
			labels[k] = dataset.Ignore
		}
		got, n := rowLoss(t, v, longest, r.IDs, labels)
		if n != r.Trained {
			t.Fatalf("row %d: %d trained tokens, want %d", i, n, r.Trained)
		}
		golden.Near(t, "row's NLL", got/float64(n), r.NLL/float64(n), 1e-3)
	}
}

func TestSmolLM2GeneratesAsTransformers(t *testing.T) {
	dir := golden.SmolLM2(t)
	var want []struct {
		Prompt    string  `json:"prompt"`
		PromptIDs []int32 `json:"prompt_ids"`
		NewIDs    []int32 `json:"new_ids"`
	}
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/generate.json"), &want)
	g, err := NewGenerator(context.Background(), session.Options{Model: dir, Device: "cpu"}, "", session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, w := range want {
		if ids := g.Base.Tokenizer.IDs(w.Prompt, true); !slices.Equal(ids, w.PromptIDs) {
			t.Errorf("%q: prompt ids %v, want %v", w.Prompt, ids, w.PromptIDs)
		}
		ids, err := g.generateIDs(context.Background(), w.PromptIDs, GenerateOptions{MaxTokens: len(w.NewIDs)})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, w.NewIDs) {
			t.Errorf("%q: %v, want %v", w.Prompt, ids, w.NewIDs)
		}
	}
}
