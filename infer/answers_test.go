package infer

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// answersOn opens the stories model in a session of its own and plans answers with a number of slots.
func answersOn(t *testing.T, device string, scheme *quant.Config, slots int) (*session.Session, *Answerer) {
	t.Helper()
	s, err := session.Open(t.Context(), session.Options{Model: golden.StoriesDir(t), Device: device,
		Quantization: scheme}, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	plan, err := PlanAnswers(s.Net, slots, 96, 96, s.On)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Hold(t.Context(), plan.Programs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	a, err := plan.BindAnswers(s, m, m.Runs)
	if err != nil {
		t.Fatal(err)
	}
	poisonCache(t, s, m)
	return s, a
}

// sampledOn answers questions with as many slots, in a session of its own.
func sampledOn(
	t *testing.T, device string, scheme *quant.Config, slots int, ask func(*session.Session) []Question,
) []Answer {
	t.Helper()
	s, a := answersOn(t, device, scheme, slots)
	all, err := a.Answer(t.Context(), ask(s), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// poisonCache writes NaN to the cache, such as a training step may leave where it lies.
func poisonCache(t *testing.T, s *session.Session, m *session.Memory) {
	t.Helper()
	for layer := range s.Base.Config.NumLayers {
		for _, what := range []string{"key", "value"} {
			name := fmt.Sprintf(answersOwner+"model.layers.%d.self_attn.%s_cache", layer, what)
			cache, err := m.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range cache.F32() {
				cache.F32()[i] = float32(math.NaN())
			}
			if err := m.Put(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answersAreTheirOwn checks that an answer and its log-probabilities are the same bits alone and beside others, with
// any number of slots, and that temperature 0 gives the likeliest tokens.
func answersAreTheirOwn(t *testing.T, device string, scheme *quant.Config, slots []int) {
	t.Helper()
	ask := func(s *session.Session) (all []Question) {
		for i := range max(24, slices.Max(slots)) {
			who := []string{"dog", "little cat who was very sad", "girl"}[i%3]
			text := "Once upon a time, there was a " + who
			o := GenerateOptions{MaxTokens: 5 + i%30, Temperature: []float64{1, 0.7, 0}[i/3%3], Seed: uint64(i)}
			all = append(all, Question{textPrompt(s, text), o})
		}
		return all
	}
	want := sampledOn(t, device, scheme, 1, ask)
	for _, n := range slots {
		got := sampledOn(t, device, scheme, n, ask)
		for i := range want {
			if !slices.Equal(got[i].IDs, want[i].IDs) || !slices.Equal(got[i].Logprobs, want[i].Logprobs) {
				t.Errorf("%d slots: answer %d is %v %v, with one slot %v %v", n, i, got[i].IDs, got[i].Logprobs,
					want[i].IDs, want[i].Logprobs)
			}
		}
	}
	for i, a := range want {
		if len(a.IDs) == 0 || len(a.Logprobs) != len(a.IDs) {
			t.Errorf("answer %d has %d tokens and %d log-probabilities", i, len(a.IDs), len(a.Logprobs))
		}
		greedy := i / 3 % 3 // of temperature 0 each has all the weight
		for _, l := range a.Logprobs {
			if (l == 0) != (greedy == 2) || l > 0 || math.IsNaN(float64(l)) {
				t.Errorf("answer %d: log-probabilities %v", i, a.Logprobs)
				break
			}
		}
	}
	if slices.Equal(want[0].IDs, want[9].IDs) {
		t.Error("two seeds give the same answer")
	}
}

// TestPromptsAreReadOnce: sequences with equal prompts get their first tokens in one round, in which the prompt is
// read. A sequence with another prompt does not.
func TestPromptsAreReadOnce(t *testing.T) {
	s, a := answersOn(t, "cpu", nil, 4)
	for slot, text := range []string{"Once upon a time", "One day", "Once upon a time", "Once upon a time"} {
		if err := a.engine.Start(slot, "", textPrompt(s, text), GenerateOptions{MaxTokens: 4, Temperature: 1,
			Seed: uint64(slot)}); err != nil {
			t.Fatal(err)
		}
	}
	for round, want := range [][]int{{0, 2, 3}, {0, 2, 3, 1}} {
		tokens, err := a.engine.drawTokens(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, token := range tokens {
			got = append(got, token.Slot)
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: tokens of slots %v, want %v", round, got, want)
		}
	}
}

// TestAnswersAreTheirOwn checks sampled answers on a CPU.
func TestAnswersAreTheirOwn(t *testing.T) { answersAreTheirOwn(t, "cpu", nil, []int{2, 3, 8}) }
