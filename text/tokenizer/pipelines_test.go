package tokenizer

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// pipelines is pipelines.json.
type pipelines struct {
	Texts []string `json:"texts"`
	Cases map[string]struct {
		reference
		File json.RawMessage `json:"file"`
	} `json:"cases"`
	Splits map[string][][]int `json:"splits"`
}

// TestGoldenPipelines runs every pipeline part against Hugging Face tokenizers on small vocabularies and awkward texts.
func TestGoldenPipelines(t *testing.T) {
	var f pipelines
	parse(t, referenceFile(t, "pipelines.json"), &f)
	for name, c := range f.Cases {
		t.Run(name, func(t *testing.T) {
			tok, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: c.File}}, ".")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, f.Texts, c.reference)
		})
	}
}

// TestGoldenSplits compares the words of the look-ahead patterns, those written by hand and one that Go's regexp runs.
func TestGoldenSplits(t *testing.T) {
	var f pipelines
	parse(t, referenceFile(t, "pipelines.json"), &f)
	byHand := 0
	for pattern, want := range f.Splits {
		general, err := compileExpression(pattern)
		if err != nil {
			t.Fatal(err)
		}
		matchers := map[string]matcher{"regexp": general}
		if w, ok := handWritten(pattern); ok {
			matchers["by hand"] = words{w}
			byHand++
		}
		for i, text := range f.Texts {
			for name, m := range matchers {
				_, cuts := splitBy{m, isolated, false}.split(piece{s: text}, nil)
				var ends []int
				for _, c := range cuts {
					ends = append(ends, utf8.RuneCountInString(text[:c.end]))
				}
				if !slices.Equal(ends, want[i]) {
					t.Errorf("%s, %s, text %d %q:\n got %v\nwant %v", name, pattern, i, text, clip(ends), clip(want[i]))
				}
			}
		}
	}
	if len(f.Splits) != 4 || byHand != 4 {
		t.Errorf("%d patterns, %d by hand", len(f.Splits), byHand)
	}
}
