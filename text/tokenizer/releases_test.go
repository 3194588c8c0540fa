package tokenizer

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/golden"
)

// casesEnv names a file that internal/golden/make_tokenizers.py --out wrote: other texts for the same tokenizers.
const casesEnv = "TRAINER_TOKENIZER_CASES"

// releases reads the tokenizers of the releases' kinds.
func releases(t testing.TB) pipelines {
	t.Helper()
	raw := referenceFile(t, "releases.json")
	if path := os.Getenv(casesEnv); path != "" {
		raw = golden.Unpacked(t, path)
	}
	var f pipelines
	parse(t, raw, &f)
	return f
}

// TestGoldenReleases runs small tokenizers with the pipelines of the releases' tokenizer.json against Hugging Face
// tokenizers.
func TestGoldenReleases(t *testing.T) {
	f := releases(t)
	for name, c := range f.Cases {
		t.Run(name, func(t *testing.T) {
			tok, err := LoadFS(fstest.MapFS{"tokenizer.json": {Data: c.File}}, ".")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, f.Texts, c.reference)
			for _, text := range f.Texts {
				checkLocated(t, tok, text)
			}
		})
	}
	if len(f.Cases) < 26 {
		t.Errorf("%d tokenizers", len(f.Cases))
	}
}

// checkLocated: with places asked for the ids stay those of IDs.
func checkLocated(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	var borders []int
	for i := range text {
		if i%3 == 0 {
			borders = append(borders, i)
		}
	}
	located := tok.Locate(text, LocateOptions{Borders: borders})
	if want := tok.IDs(text, false); !slices.Equal(located.IDs, want) {
		t.Errorf("%q: Locate gives %v, IDs %v", text, clip(located.IDs), clip(want))
	}
	if len(located.Borders) != len(borders) {
		t.Errorf("%q: %d borders, want %d", text, len(located.Borders), len(borders))
	}
}

// TestGoldenReleaseSplits compares the words of split patterns, those written by hand and all as expressions.
func TestGoldenReleaseSplits(t *testing.T) {
	f := releases(t)
	byHand := 0
	for pattern, want := range f.Splits {
		general, err := compileExpression(pattern)
		if err != nil {
			t.Error(err)
			continue
		}
		matchers := map[string]matcher{"expression": general}
		if w, ok := handWritten(pattern); ok {
			matchers["by hand"] = words{w}
			byHand++
		}
		wrong := 0
		for i, text := range f.Texts {
			for name, m := range matchers {
				_, cuts := splitBy{m, isolated, false}.split(piece{s: text}, nil)
				var places []int
				for _, c := range cuts {
					places = append(places, utf8.RuneCountInString(text[:c.start]), utf8.RuneCountInString(text[:c.end]))
				}
				if !slices.Equal(places, want[i]) && wrong < 5 {
					wrong++
					t.Errorf("%s, %s, text %d %q:\n got %v\nwant %v", name, pattern, i, text, clip(places), clip(want[i]))
				}
			}
		}
	}
	if len(f.Splits) < 20 || byHand != 5 {
		t.Errorf("%d patterns, %d by hand", len(f.Splits), byHand)
	}
}

// TestExpressionEnds: a pattern with nested repeats ends in time that does not grow exponentially with the text.
func TestExpressionEnds(t *testing.T) {
	for _, pattern := range []string{`(?:a*)*b`, `(?:a|aa)+\z`, `(?:a|a?)+b`, `(?:(?:a+)+)+c`, `(?=(?:a*)*b)x|(?>(?:a|a)*)b`, `(?:){3}*a?b`} {
		m, err := compileExpression(pattern)
		if err != nil {
			t.Error(err)
			continue
		}
		text := string(bytes.Repeat([]byte("a"), 3000)) + "!"
		if got := m.matches(text, nil, nil); len(got) != 0 {
			t.Errorf("%s: %v", pattern, clip(got))
		}
	}
}

// FuzzExpression: no pattern and no text make it panic, and matches ascend without overlap.
func FuzzExpression(f *testing.F) {
	for pattern := range releases(f).Splits {
		f.Add(pattern, "Hello don't 123  \n\n漢字é")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		m, err := compileExpression(pattern)
		if err != nil || len(text) > 300 {
			return
		}
		last := 0
		for _, c := range m.matches(text, nil, nil) {
			if c.start < last || c.end < c.start || c.end > len(text) {
				t.Fatalf("%q on %q: %v behind %d", pattern, text, c, last)
			}
			last = c.end
		}
	})
}
