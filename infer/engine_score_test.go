package infer

import (
	"context"
	"math"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestScoresOfPrompt: the log-probabilities of a prompt are those with which its tokens were generated, adapters
// included, over more than one piece and beside other sequences.
func TestScoresOfPrompt(t *testing.T) {
	e := engine(t, golden.StoriesDir(t), EngineOptions{Slots: 3, MaxLen: 256,
		Adapters: []NamedAdapter{{Name: "a", Dir: golden.Path(t, "train/lora/final")}}, Score: true})
	ctx := context.Background()
	for _, adapter := range []string{"", "a"} {
		prompt := e.Text("Once upon a time")
		if err := e.Start(1, adapter, prompt, GenerateOptions{MaxTokens: 150, Logprobs: true, TopLogprobs: 2,
			Temperature: 1, Seed: 3}); err != nil {
			t.Fatal(err)
		}
		ids, want := prompt.IDs, []Token(nil)
		for e.Busy() {
			tokens, err := e.Step(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range tokens {
				if token.Part {
					ids, want = append(ids, token.ID), append(want, token)
				}
			}
		}
		if len(want) < 70 {
			t.Fatalf("only %d tokens", len(want))
		}
		for slot, which := range []string{"", "a"} {
			if err := e.Start(2*slot, which, Prompt{IDs: ids}, GenerateOptions{MaxTokens: 1, Logprobs: true,
				TopLogprobs: 2, PromptLogprobs: true}); err != nil {
				t.Fatal(err)
			}
		}
		for e.Busy() {
			tokens, err := e.Step(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range tokens {
				if (token.Slot == 2) != (adapter == "a") {
					continue
				}
				if len(token.Prompt) != len(ids)-1 {
					t.Fatalf("%d scores of %d tokens", len(token.Prompt), len(ids))
				}
				for i, w := range want {
					got := token.Prompt[len(prompt.IDs)-1+i]
					if got.ID != w.ID || math.Abs(got.Logprob-w.Logprob) > 1e-4 ||
						math.Abs(got.Top[0].Logprob-w.Top[0].Logprob) > 1e-4 || len(got.Top) != 2 {
						t.Errorf("adapter %q, token %d: %+v, generated with %v, %+v", adapter, i, got, w.Logprob, w.Top)
					}
				}
			}
		}
	}
	plain := engine(t, golden.StoriesDir(t), EngineOptions{Slots: 1, MaxLen: 64})
	if err := plain.Start(0, "", plain.Text("a"), GenerateOptions{MaxTokens: 1, PromptLogprobs: true}); err == nil {
		t.Error("an engine without scores takes a request for them")
	}
}
