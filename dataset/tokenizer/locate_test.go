package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// borderTexts are texts with special tokens, characters of several bytes and such as normalisers change.
var borderTexts = []string{
	"", "a", " a", "\n\nHello  world\n", "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n 4 <|im_end|>\n",
	"<s>[INST] Grüße, 東京 \U0001f469\u200d\U0001f4bb[/INST] naïve ﬁancées e\u0301</s>", "<s></s>x</s>\n</s>", "tab\tand \u00a0 and \u2028 </s> <unk>  .",
	strings.Repeat("ab 漢字 ", 40) + "</s>" + strings.Repeat("x", 300),
}

// everyBorder lists the places between the code points of a text.
func everyBorder(text string) []int {
	var all []int
	for i := range text {
		all = append(all, i)
	}
	return append(all, len(text))
}

// checkLocate compares Locate with the offsets of Encode at every border.
func checkLocate(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	tok.post.trims = nil // white space is a part of its token here
	want := tok.Encode(text, false)
	borders := everyBorder(text)
	got := tok.Locate(text, LocateOptions{Borders: borders})
	if !slices.Equal(got.IDs, want.IDs) || len(got.Borders) != len(borders) {
		t.Fatalf("%q: ids %v, want %v", text, got.IDs, want.IDs)
	}
	for k, at := range borders {
		point := utf8.RuneCountInString(text[:at])
		i := slices.IndexFunc(want.Offsets, func(o [2]int) bool { return o[1] > point })
		expected := Border{Token: len(want.IDs)}
		if i >= 0 {
			expected = Border{i, want.Offsets[i][0] < point}
		}
		if got.Borders[k] != expected {
			t.Fatalf("%q: border %d (code point %d): %+v, want %+v; offsets %v", text, at, point, got.Borders[k], expected, want.Offsets)
		}
	}
	special := 0
	for _, id := range got.IDs {
		if tok.IsSpecial(id) {
			special++
		}
	}
	if special != len(got.Specials) && !strings.Contains(text, "<unk>") {
		t.Errorf("%q: %d special tokens, %d noted", text, special, len(got.Specials))
	}
}

// TestLocate: the places of borders are those that the offsets of Encode give.
func TestLocate(t *testing.T) {
	for _, name := range []string{"stories260K", "smollm"} {
		tok := embedded(t, name)
		for _, text := range borderTexts {
			checkLocate(t, tok, text)
		}
	}
}

// TestLocateShared is TestLocate with the shared tokenizers on the shared corpus.
func TestLocateShared(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(shared(t), "goldens/tokenizers/corpus.json"))
	if err != nil {
		t.Fatal(err)
	}
	var corpus []string
	parse(t, b, &corpus)
	for name, folder := range sharedFolders {
		tok, err := Load(filepath.Join(shared(t), folder))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			for _, text := range corpus {
				if utf8.ValidString(text) && len(text) < 2000 {
					checkLocate(t, tok, text)
				}
			}
		})
	}
}

// BenchmarkLocate is the rate with a border in every line.
func BenchmarkLocate(b *testing.B) {
	lines := strings.Split(mixedText(b), "\n")
	for _, name := range []string{"tinyllama", "smollm", "qwen2.5"} {
		tok, err := Load(filepath.Join(shared(b), sharedFolders[name]))
		if err != nil {
			b.Fatal(err)
		}
		size := 0
		for _, line := range lines {
			size += len(line)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				for _, line := range lines {
					tok.Locate(line, LocateOptions{Borders: []int{0, len(line)}})
				}
			}
		})
	}
}
