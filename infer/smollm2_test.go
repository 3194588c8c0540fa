package infer

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
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
	on := graph.NewCPU(0)
	step, err := PlanEval(network(t, b, kernel.F32), session.Shape{Tokens: longest, Sequences: 1, MaxLen: longest}, on)
	if err != nil {
		t.Fatal(err)
	}
	m, err := session.Hold(on, func(m graph.Store) error { return b.Load(context.Background(), step.Net, m, on.Workers()) }, &step.Program)
	if err != nil {
		t.Fatal(err)
	}
	v, err := step.Bind(m, m.Runs[0])
	if err != nil {
		t.Fatal(err)
	}
	var nll float64
	trained := 0
	for i, r := range want.Rows {
		ids, labels, positions := make([]int32, longest), make([]int32, longest), make([]int32, longest)
		for k := range labels {
			labels[k] = -100
			if k < len(r.IDs) {
				ids[k] = r.IDs[k]
				if k >= r.Prompt {
					labels[k] = r.IDs[k]
				}
			}
			positions[k] = int32(k)
		}
		batch := dataset.Batch{IDs: ids, Labels: labels, Positions: positions, CuSeqlens: []int32{0, int32(longest)}}
		v.batch.Fill(batch)
		v.data.Scale(1)
		n := v.data.Fill(batch)
		if n != r.Trained {
			t.Fatalf("row %d: %d trained tokens, want %d", i, n, r.Trained)
		}
		got, err := v.batchLoss()
		if err != nil {
			t.Fatal(err)
		}
		golden.Near(t, "row's NLL", got/float64(n), r.NLL/float64(n), 1e-3)
		nll, trained = nll+got, trained+n
	}
	golden.Near(t, "mean NLL", nll/float64(trained), want.Mean, 1e-3)
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
		ids, _, err := g.generateIDs(context.Background(), w.PromptIDs, GenerateOptions{MaxTokens: len(w.NewIDs)}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, w.NewIDs) {
			t.Errorf("%q: %v, want %v", w.Prompt, ids, w.NewIDs)
		}
	}
}
