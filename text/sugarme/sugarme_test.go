package sugarme

import (
	"fmt"
	"slices"
	"testing"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/tokenizer"
)

func load(t *testing.T, name string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(golden.Path(t, "tokenizers/"+name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestAgainstTokenizer compares ids, tokens, offsets and text through sugarme's types with the tokenizer's own, over the
// reference texts.
func TestAgainstTokenizer(t *testing.T) {
	var corpus []string
	golden.JSON(t, golden.Path(t, "tokenizers/corpus.json"), &corpus)
	for _, name := range []string{"smollm", "stories260K"} {
		tok := load(t, name)
		s := New(tok)
		for _, text := range corpus {
			if text == "" {
				continue // sugarme has no encoding of an empty text
			}
			tokens, err := Model(tok).Tokenize(text)
			want := tok.Encode(text, false)
			if err != nil || !slices.EqualFunc(tokens, want.Offsets, func(a sugar.Token, b [2]int) bool {
				return utf8.RuneCountInString(text[:a.Offsets[0]]) == b[0] && utf8.RuneCountInString(text[:a.Offsets[1]]) == b[1]
			}) {
				t.Errorf("%s, %q: %v, %v, want the offsets %v", name, text, tokens, err, want.Offsets)
			}
			for _, special := range []bool{false, true} {
				want := tok.Encode(text, special)
				got, err := s.Encode(sugar.NewSingleEncodeInput(sugar.NewInputSequence(text)), special)
				if err != nil {
					t.Fatalf("%s, %q: %v", name, text, err)
				}
				if !slices.EqualFunc(got.Ids, want.IDs, func(a int, b int32) bool { return a == int(b) }) || !slices.Equal(got.Tokens, want.Tokens) {
					t.Errorf("%s, %q: %v, want %v", name, text, got.Tokens, want.Tokens)
				}
				if a, b := s.Decode(got.Ids, false), tok.Decode(want.IDs, false); a != b {
					t.Errorf("%s: the text is %q, want %q", name, a, b)
				}
			}
		}
	}
}

// TestModel holds the rest of sugarme's interface: look-ups, and files that load again.
func TestModel(t *testing.T) {
	tok := load(t, "smollm")
	m := Model(tok)
	if id, ok := m.TokenToId("Ġthe"); !ok || m.GetVocab()["Ġthe"] != id || m.GetVocabSize() != 49153 {
		t.Errorf("id of Ġthe: %d, %v; %d tokens", id, ok, m.GetVocabSize())
	}
	for _, id := range []int{-1, 49153} {
		if _, ok := m.IdToToken(id); ok {
			t.Errorf("%d is a token", id)
		}
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	const text = "It's what one saves, isn't it?"
	if a, b := tok.IDs(text, true), again.IDs(text, true); !slices.Equal(a, b) {
		t.Errorf("got %v, want %v", b, a)
	}
	if n := newSpecials(load(t, "stories260K")).AddedTokens(true); n != 2 {
		t.Errorf("a pair gets %d special tokens, want 2", n)
	}
}

// A program that is written against sugarme's types encodes and decodes with a model's own tokenizer.
func ExampleNew() {
	folder, err := configs.Model("stories260K") // a model that the module carries
	if err != nil {
		fmt.Println(err)
		return
	}
	own, err := tokenizer.LoadFS(folder, ".") // tokenizer.Load reads a folder on the disk
	if err != nil {
		fmt.Println(err)
		return
	}
	tok := New(own)
	encoding, err := tok.EncodeSingle("Fine-tuning in Go")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(encoding.Ids)
	fmt.Println(tok.Decode(encoding.Ids, false))
	// Output:
	// [410 453 271 411 464 413 379 299 322 410 463 414]
	// Fine-tuning in Go
}
