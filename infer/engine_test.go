package infer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

func engine(t testing.TB, model string, o EngineOptions) *Engine {
	t.Helper()
	return engineOf(t, session.Options{Model: model, Device: "cpu"}, o)
}

func engineOf(t testing.TB, so session.Options, o EngineOptions) *Engine {
	t.Helper()
	e, err := NewEngine(context.Background(), so, o, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// otherAdapter is an adapter of the golden one's shape with other numbers.
func otherAdapter(t testing.TB) string {
	t.Helper()
	from, to := golden.Path(t, "train/lora/final"), t.TempDir()
	f, err := weights.Open(filepath.Join(from, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []weights.Tensor
	values := map[string][]float32{}
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		v := make([]float32, x.Len())
		if err := weights.Float32s(x, v); err != nil {
			t.Fatal(err)
		}
		for i := range v {
			v[i] = -2*v[i] + 0.01*float32(i%7-3)
		}
		all, values[name] = append(all, weights.Tensor{Name: name, DType: weights.F32, Shape: x.Shape}), v
	}
	raw, err := weights.EncodeFloat32s(all, nil, values)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, "adapter_model.safetensors"), string(raw))
	config, err := os.ReadFile(filepath.Join(from, "adapter_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, "adapter_config.json"), string(config))
	return to
}

// request is a sequence that a test starts.
type request struct {
	adapter string
	prompt  []int32
	o       GenerateOptions
}

// answers runs requests: request i is put in slot slots[i] before round at[i]. Log-probabilities are compared bit by
// bit with ids.
func answers(t testing.TB, e *Engine, requests []request, slots, at []int) (ids [][]int32, bits [][]uint64) {
	t.Helper()
	ids, bits = make([][]int32, len(requests)), make([][]uint64, len(requests))
	for round := 0; round <= slices.Max(at) || e.Busy(); round++ {
		for i, r := range requests {
			if at[i] == round {
				if err := e.Start(slots[i], r.adapter, Prompt{IDs: r.prompt}, r.o); err != nil {
					t.Fatal(err)
				}
			}
		}
		tokens, err := e.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			i := slices.Index(slots, token.Slot)
			if token.Part {
				ids[i] = append(ids[i], token.ID)
			}
			bits[i] = append(bits[i], math.Float64bits(token.Logprob))
			for _, top := range token.Top {
				bits[i] = append(bits[i], math.Float64bits(top.Logprob), uint64(top.ID))
			}
		}
	}
	return ids, bits
}

// engineRequests are seven sequences: long and short prompts, greedy and sampled, of the base model and two adapters.
func engineRequests(e *Engine) []request {
	tok := e.Base.Tokenizer
	long := tok.IDs(strings.Repeat("Once upon a time there was a little dog. ", 12), true)
	texts := [][]int32{tok.IDs("Once upon a time", true), tok.IDs("Lily and Tom", true), long, long[:65], long[:64],
		tok.IDs("The end", true), tok.IDs("One day", true)}
	names := []string{"", "a", "b", "a", "", "b", "a"}
	all := make([]request, len(texts))
	for i, ids := range texts {
		o := GenerateOptions{MaxTokens: 8 + 3*i, Logprobs: true, TopLogprobs: 3, Seed: uint64(i)}
		if i%2 == 1 {
			o.Temperature, o.TopP, o.RepetitionPenalty, o.FrequencyPenalty = 0.9, 0.95, 1.1, 0.2
		}
		all[i] = request{names[i], ids, o}
	}
	return all
}

// TestEngineSequencesAreTheirOwn: ids and log-probabilities of a sequence, bit by bit, are those that it has alone,
// whatever slot it is in, whenever it is started and whatever shares its rounds, other adapters among them.
func TestEngineSequencesAreTheirOwn(t *testing.T) { sequencesAreTheirOwn(t, "cpu", nil) }

// In NF4 the GEMMs are others.
func TestEngineSequencesAreTheirOwnInNF4(t *testing.T) {
	nf4 := quant.Default()
	sequencesAreTheirOwn(t, "cpu", &nf4)
}

func sequencesAreTheirOwn(t *testing.T, device string, scheme *quant.Config) {
	t.Helper()
	o := EngineOptions{Slots: 7, MaxLen: 300, Adapters: []NamedAdapter{{"a", golden.Path(t, "train/lora/final")},
		{"b", otherAdapter(t)}}}
	e := engineOf(t, session.Options{Model: golden.StoriesDir(t), Device: device, Quantization: scheme}, o)
	requests := engineRequests(e)
	want, wantBits := make([][]int32, len(requests)), make([][]uint64, len(requests))
	for i := range requests {
		ids, bits := answers(t, e, requests[i:i+1], []int{0}, []int{0})
		want[i], wantBits[i] = ids[0], bits[0]
	}
	if slices.Equal(want[1], want[3]) || slices.Equal(wantBits[0], wantBits[1]) {
		t.Fatal("the sequences are alike: nothing is tested")
	}
	for name, c := range map[string]struct{ slots, at []int }{
		"together":              {[]int{0, 1, 2, 3, 4, 5, 6}, []int{0, 0, 0, 0, 0, 0, 0}},
		"in other slots":        {[]int{6, 5, 4, 3, 2, 1, 0}, []int{0, 0, 0, 0, 0, 0, 0}},
		"one after the other":   {[]int{2, 4, 6, 1, 3, 5, 0}, []int{0, 3, 5, 5, 9, 14, 20}},
		"the last ones earlier": {[]int{3, 0, 1, 6, 5, 4, 2}, []int{12, 11, 9, 4, 4, 1, 0}},
	} {
		ids, bits := answers(t, e, requests, c.slots, c.at)
		for i := range requests {
			if !slices.Equal(ids[i], want[i]) || !slices.Equal(bits[i], wantBits[i]) {
				t.Errorf("%s: sequence %d: %v, alone %v; or its log-probabilities differ", name, i, ids[i], want[i])
			}
		}
	}
}

// TestEngineAdapters: a sequence has the numbers of its adapter alone in the model: what the generator of one adapter
// says.
func TestEngineAdapters(t *testing.T) {
	dirs := map[string]string{"": "", "a": golden.Path(t, "train/lora/final"), "b": otherAdapter(t)}
	e := engine(t, golden.StoriesDir(t), EngineOptions{Slots: 3, MaxLen: 200, Adapters: []NamedAdapter{{"a", dirs["a"]},
		{"b", dirs["b"]}}})
	if got := e.Adapters(); !slices.Equal(got, []string{"", "a", "b"}) {
		t.Errorf("adapters %q", got)
	}
	prompt := e.Text("Once upon a time").IDs
	var requests []request
	names := []string{"", "a", "b"}
	for _, name := range names {
		requests = append(requests, request{name, prompt, GenerateOptions{MaxTokens: 100}})
	}
	got, _ := answers(t, e, requests, []int{2, 0, 1}, []int{0, 0, 0})
	for i, name := range names {
		g := generator(t, golden.StoriesDir(t), dirs[name])
		want, err := g.Continue(context.Background(), Prompt{IDs: prompt}, GenerateOptions{MaxTokens: 100}, nil)
		if err != nil || !slices.Equal(got[i], want.IDs) {
			t.Errorf("adapter %q: %v, alone in a generator %v, %v", name, got[i], want.IDs, err)
		}
	}
	only := engine(t, golden.StoriesDir(t), EngineOptions{Slots: 1, MaxLen: 200,
		Adapters: []NamedAdapter{{"b", dirs["b"]}}, Only: true})
	if ids, _ := answers(t, only, requests[2:], []int{0}, []int{0}); !slices.Equal(ids[0], got[2]) {
		t.Errorf("the only adapter: %v, one of two %v", ids[0], got[2])
	}
	if err := only.Start(0, "", Prompt{IDs: prompt}, GenerateOptions{MaxTokens: 1}); !errors.Is(err,
		ErrUnknownAdapter) {
		t.Errorf("the base model of an engine whose every sequence has an adapter: %v", err)
	}
}

// TestAdaptersOwnEnds: an answer ends at the token that the generation_config.json in its adapter's folder names, and
// those of the base model and of other adapters do not.
func TestAdaptersOwnEnds(t *testing.T) {
	plain := golden.Path(t, "train/lora/final")
	ending := t.TempDir()
	if err := os.CopyFS(ending, os.DirFS(plain)); err != nil {
		t.Fatal(err)
	}
	prompt := Prompt{IDs: generator(t, golden.StoriesDir(t), plain).Text("Once upon a time").IDs}
	o := GenerateOptions{MaxTokens: 24}
	whole, err := generator(t, golden.StoriesDir(t), plain).Continue(t.Context(), prompt, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := whole.IDs[9]
	want := whole.IDs[:slices.Index(whole.IDs, end)]
	config := fmt.Sprintf(`{"eos_token_id": [%d]}`, end)
	if err := os.WriteFile(filepath.Join(ending, "generation_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := generator(t, golden.StoriesDir(t), ending).Continue(t.Context(), prompt, o, nil)
	if err != nil || !slices.Equal(got.IDs, want) || got.Stopped != StoppedEnd {
		t.Errorf("%v, stopped at %s, error %v; expected %v", got.IDs, got.Stopped, err, want)
	}
	e := engine(t, golden.StoriesDir(t), EngineOptions{Slots: 2, MaxLen: 100, Adapters: []NamedAdapter{{"plain", plain},
		{"ending", ending}}})
	ids, _ := answers(t, e, []request{{"plain", prompt.IDs, o}, {"ending", prompt.IDs, o}}, []int{0, 1}, []int{0, 0})
	if !slices.Equal(ids[0], whole.IDs) || !slices.Equal(ids[1], want) {
		t.Errorf("side by side: %v and %v, expected %v and %v", ids[0], ids[1], whole.IDs, want)
	}
	if err := os.WriteFile(filepath.Join(ending, "generation_config.json"), []byte(`{"eos_token_id": "x"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewEngine(t.Context(), session.Options{Model: golden.StoriesDir(t), Device: "cpu"},
		EngineOptions{Slots: 1, MaxLen: 64, Adapters: []NamedAdapter{{"ending", ending}}}, session.Env{}); err == nil {
		t.Error("a generation_config.json with a text as id was read")
	}
}

// TestEngineFamilies: sequences of every family side by side have transformers' tokens.
func TestEngineFamilies(t *testing.T) {
	for _, m := range golden.FamilyModels(t) {
		texts := m.Runs(t).Texts
		longest := 0
		for _, w := range texts {
			longest = max(longest, len(w.Prompt)+len(w.New))
		}
		e := engine(t, m.Dir(t), EngineOptions{Slots: len(texts), MaxLen: longest})
		got := make([][]int32, len(texts))
		for i, w := range texts {
			if err := e.start(i, -1, w.Prompt, nil, &stopper{}, GenerateOptions{MaxTokens: len(w.New)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.each(context.Background(), func(token Token) {
			got[token.Slot] = append(got[token.Slot], token.ID)
		}); err != nil {
			t.Fatal(err)
		}
		for i, w := range texts {
			if !slices.Equal(got[i], w.New) {
				t.Errorf("%s: after %v ids %v, transformers %v", m.Name, w.Prompt, got[i], w.New)
			}
		}
	}
}

// TestEngineRefuses: what cannot be is said before anything is computed, and leaves the engine as it is.
func TestEngineRefuses(t *testing.T) {
	e := engine(t, golden.StoriesDir(t), EngineOptions{Slots: 2, MaxLen: 40})
	ids := e.Text("Once upon a time").IDs
	ok := GenerateOptions{MaxTokens: 4}
	if err := e.Start(1, "", Prompt{IDs: ids}, ok); err != nil {
		t.Fatal(err)
	}
	long := make([]int32, 600)
	for _, c := range []struct {
		slot    int
		adapter string
		prompt  []int32
		o       GenerateOptions
		kind    error
		want    string
	}{
		{1, "", ids, ok, ErrSlot, "generate: slot 1 is in use"},
		{2, "", ids, ok, ErrSlot, "generate: slot 2 of 2"},
		{-1, "", ids, ok, ErrSlot, "generate: slot -1 of 2"},
		{0, "x", ids, ok, ErrUnknownAdapter, `generate: there is no adapter "x": there are [""]`},
		{0, "", nil, ok, nil, "generate: the prompt has no token"},
		{0, "", ids, GenerateOptions{}, nil, "generate: max tokens is 0, want at least 1"},
		{0, "", long[:39], ok, ErrTooLong,
			"generate: 39 prompt tokens and 4 more exceed the 40 tokens that a cache slot holds"},
		{0, "", long, ok, ErrTooLong,
			"generate: 600 prompt tokens and 4 more exceed the model's 512 positions"},
		{0, "", []int32{1, 512}, ok, nil,
			"generate: prompt token 1 is 512, outside the model's vocabulary of 0 to 511"},
		{0, "", ids, GenerateOptions{MaxTokens: 1, Temperature: -1}, nil,
			"generate: temperature is -1: must lie in 0 to 100"},
		{0, "", ids, GenerateOptions{MaxTokens: 1, MinP: math.NaN(), TopK: -1}, nil,
			"generate: min-p is NaN: must lie in 0 to 1\ntop-k is -1: must be 0 or more"},
		{0, "", ids, GenerateOptions{MaxTokens: 1, Bias: map[int32]float64{5: 1, 600: 1, 700: 2}}, nil,
			"generate: the bias of token 600 is 1: biases must be finite, and tokens from 0 to 511"},
		{0, "", ids, GenerateOptions{MaxTokens: 1, Stop: []string{""}}, nil,
			"generate: a stop text is empty: it would end every answer before its first character"},
	} {
		err := e.Start(c.slot, c.adapter, Prompt{IDs: c.prompt}, c.o)
		if err == nil || err.Error() != c.want || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if e.Free() != 0 || !e.Busy() {
		t.Errorf("slot %d is free, busy %v", e.Free(), e.Busy())
	}
	e.Stop(1)
	if tokens, err := e.Step(context.Background()); err != nil || tokens != nil || e.Busy() {
		t.Errorf("after a stop: %v, %v", tokens, err)
	}
	for _, o := range []EngineOptions{{Slots: -1}, {Slots: 1000}, {MaxLen: -1}, {Only: true},
		{Adapters: []NamedAdapter{{"", "x"}}}, {Adapters: []NamedAdapter{{"a", "x"}, {"a", "y"}}}} {
		if _, err := NewEngine(context.Background(), session.Options{Model: golden.StoriesDir(t), Device: "cpu"}, o,
			session.Env{}); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
