package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sugarme "github.com/sugarme/tokenizer"
)

// TestSugarmeModel: in sugarme's interface the model gives the ids of a word, and what it saves loads again.
func TestSugarmeModel(t *testing.T) {
	tok := embedded(t, "smollm")
	var m sugarme.Model = tok.Model()
	tokens, err := m.Tokenize("Ġtokenizers")
	if err != nil {
		t.Fatal(err)
	}
	want := tok.Encode(" tokenizers", false)
	if len(tokens) != len(want.IDs) || len(tokens) < 2 {
		t.Fatalf("got %v, want %v", tokens, want)
	}
	for i, token := range tokens {
		if token.Id != int(want.IDs[i]) || token.Value != want.Tokens[i] {
			t.Errorf("token %d: got %v, want %d %s", i, token, want.IDs[i], want.Tokens[i])
		}
	}
	if id, ok := m.TokenToId("Ġthe"); !ok || m.GetVocab()["Ġthe"] != id || m.GetVocabSize() != 49152 {
		t.Errorf("id of Ġthe: %d, %v; %d tokens", id, ok, m.GetVocabSize())
	}
	if _, ok := m.IdToToken(-1); ok {
		t.Error("-1 is a token")
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"tokenizer_class":"GPT2Tokenizer"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	const text = "It's what one saves, isn't it?"
	if a, b := tok.Encode(text, false).Tokens, again.Encode(text, false).Tokens; strings.Join(a, "|") != strings.Join(b, "|") {
		t.Errorf("got %v, want %v", b, a)
	}
}
