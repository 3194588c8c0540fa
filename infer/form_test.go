package infer

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/infer/jsonform"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// TestFormedAnswers: a model that knows no JSON writes what the schema asks for, whatever the sampling, penalties and
// bias; side by side in slots what each writes alone; cut by the number of tokens it says so.
func TestFormedAnswers(t *testing.T) {
	e, err := NewEngine(context.Background(), session.Options{Model: golden.StoriesDir(t), Device: "cpu"},
		EngineOptions{Slots: 3, MaxLen: 400}, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	schema, err := jsonform.Parse(
		[]byte(`{"type":"object","properties":{"ok":{"type":"boolean"},"n":{"type":"integer"},"who":{"enum":["Tim","the cat","é"]}},
		"required":["ok","n","who"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	form := &jsonform.Form{Schema: schema, Vocabulary: Vocabulary(e.Base.Tokenizer)}
	prompt := textPrompt(e.Session, "Once upon a time")
	var all []GenerateOptions
	for seed := range uint64(6) {
		o := GenerateOptions{MaxTokens: 380, Form: form, Seed: seed, Temperature: float64(seed) / 3, TopP: 0.9}
		if seed == 4 {
			o.TopP, o.TopK, o.RepetitionPenalty, o.Bias = 1, 3, 1.3, map[int32]float64{5: 100}
		}
		if seed == 5 {
			o.MaxTokens = 4
		}
		all = append(all, o)
	}
	answer := func(which ...int) map[int]string {
		t.Helper()
		texts, ended := map[int]string{}, map[int]string{}
		for slot, i := range which {
			if err := e.Start(slot, "", prompt, all[i]); err != nil {
				t.Fatal(err)
			}
		}
		for len(ended) < len(which) {
			tokens, err := e.Step(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range tokens {
				i := which[token.Slot]
				texts[i] += token.Text
				if token.Ended != "" {
					if ended[i] = token.Ended; token.Err != nil {
						t.Fatal(token.Err)
					}
				}
			}
		}
		for i, how := range ended {
			var got struct {
				OK  *bool
				N   *json.Number
				Who string
			}
			err := json.Unmarshal([]byte(texts[i]), &got)
			if i == 5 {
				if how != StoppedLength || err == nil {
					t.Errorf("cut: %s, %q", how, texts[i])
				}
			} else if how != StoppedEnd || err != nil || got.OK == nil || got.N == nil ||
				!slices.Contains([]string{"Tim", "the cat", "é"}, got.Who) {
				t.Errorf("answer %d: %s, %q: %v", i, how, texts[i], err)
			}
		}
		return texts
	}
	together := answer(0, 1, 2)
	for i, text := range answer(3, 4, 5) {
		together[i] = text
	}
	for i, text := range together {
		if alone := answer(i)[i]; alone != text {
			t.Errorf("answer %d: %q beside others, %q alone", i, text, alone)
		}
	}
	none := &jsonform.Form{Schema: jsonform.Object(), Vocabulary: jsonform.NewVocabulary(make([][]byte, 512))}
	if err := e.Start(0, "", prompt, GenerateOptions{MaxTokens: 5, Form: none}); err != nil {
		t.Fatal(err)
	}
	tokens, err := e.Step(context.Background())
	if err != nil || len(tokens) != 1 || tokens[0].Ended != StoppedError || tokens[0].Err == nil {
		t.Errorf("a vocabulary without braces: %+v, %v", tokens, err)
	}
}
