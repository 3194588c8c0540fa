package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// reference is what Hugging Face tokenizers gives for every text of a corpus.
type reference struct {
	VocabSize int `json:"vocab_size"`
	Rows      []struct {
		IDs        []int32 `json:"ids"`
		IDsSpecial []int32 `json:"ids_special"`
		Offsets    []int   `json:"offsets"`
		Decode     string  `json:"decode"`
		DecodeSkip string  `json:"decode_skip"`
	} `json:"rows"`
}

// referenceFile reads a file of the reference data.
func referenceFile(t testing.TB, name string) []byte {
	t.Helper()
	return golden.ReadFile(t, golden.Path(t, "tokenizers/"+name))
}

// embedded loads a tokenizer of the reference data in the repository.
func embedded(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(golden.Path(t, "tokenizers/"+name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func parse(t testing.TB, b []byte, v any) {
	t.Helper()
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// compare checks every number of a golden and returns how many texts it compared.
func compare(t *testing.T, tok *Tokenizer, corpus []string, g reference) {
	t.Helper()
	if len(corpus) != len(g.Rows) || len(corpus) == 0 {
		t.Fatalf("%d texts, %d golden rows", len(corpus), len(g.Rows))
	}
	if tok.VocabSize() != g.VocabSize {
		t.Errorf("vocabulary: got %d, want %d", tok.VocabSize(), g.VocabSize)
	}
	tokens := 0
	for i, text := range corpus {
		row := g.Rows[i]
		plain, special := tok.Encode(text, false), tok.Encode(text, true)
		var offsets []int
		for _, o := range plain.Offsets {
			offsets = append(offsets, o[0], o[1])
		}
		show := text[:min(len(text), 80)]
		if !slices.Equal(plain.IDs, row.IDs) {
			t.Errorf("text %d %q: ids\n got %v\nwant %v", i, show, clip(plain.IDs), clip(row.IDs))
			continue
		}
		if !slices.Equal(offsets, row.Offsets) {
			t.Errorf("text %d %q: offsets\n got %v\nwant %v", i, show, clip(offsets), clip(row.Offsets))
		}
		if !slices.Equal(special.IDs, row.IDsSpecial) || len(special.Offsets) != len(special.IDs) || len(special.Tokens) != len(special.IDs) {
			t.Errorf("text %d %q: with special tokens\n got %v\nwant %v", i, show, clip(special.IDs), clip(row.IDsSpecial))
		}
		for _, add := range []bool{false, true} {
			if fast, slow := tok.IDs(text, add), tok.Encode(text, add).IDs; !slices.Equal(fast, slow) {
				t.Errorf("text %d %q: IDs gives %v, Encode %v", i, show, clip(fast), clip(slow))
			}
		}
		if got := tok.Decode(row.IDsSpecial, false); got != row.Decode {
			t.Errorf("text %d %q: decode\n got %q\nwant %q", i, show, got, row.Decode)
		}
		if got := tok.Decode(row.IDsSpecial, true); got != row.DecodeSkip {
			t.Errorf("text %d %q: decode without special tokens\n got %q\nwant %q", i, show, got, row.DecodeSkip)
		}
		tokens += len(row.IDs)
	}
	t.Logf("%d texts, %d ids", len(corpus), tokens)
}

func clip[T any](s []T) []T { return s[:min(len(s), 60)] }

func TestGoldenEmbedded(t *testing.T) {
	var corpus []string
	parse(t, referenceFile(t, "corpus.json"), &corpus)
	for _, name := range []string{"stories260K", "smollm"} {
		t.Run(name, func(t *testing.T) {
			var g reference
			parse(t, referenceFile(t, name+".golden.json"), &g)
			compare(t, embedded(t, name), corpus, g)
		})
	}
}

// shared is the folder with the data that may not be in the repository.
func shared(t testing.TB) string {
	t.Helper()
	return filepath.Dir(golden.Outside(t, "data"))
}

// sharedFolders are the tokenizers of the shared data by the name of their golden.
var sharedFolders = map[string]string{
	"mistral-v0.3":     "data/tokenizers/mistral-7b-instruct-v0.3",
	"qwen2.5":          "data/tokenizers/qwen2.5",
	"smollm":           "data/tokenizers/smollm-135m",
	"smollm-newformat": "data/tokenizers/smollm-135m-newformat",
	"stories260K":      "data/models/stories260K-hf",
	"tinyllama":        "data/tokenizers/tinyllama-1.1b-chat",
}

func TestGoldenShared(t *testing.T) {
	dir := shared(t)
	b, err := os.ReadFile(filepath.Join(dir, "goldens/tokenizers/corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	var corpus []string
	parse(t, b, &corpus)
	for name, folder := range sharedFolders {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(dir, "goldens/tokenizers", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var g reference
			parse(t, b, &g)
			tok, err := Load(filepath.Join(dir, folder))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, corpus, g)
		})
	}
}
