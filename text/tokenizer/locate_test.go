package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/golden"
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

// TestPlain: special tokens that are read as text give the ids of tokenizers' encode_special_tokens.
func TestPlain(t *testing.T) {
	var ref struct {
		Texts []string             `json:"texts"`
		IDs   map[string][][]int32 `json:"ids"`
	}
	golden.JSON(t, golden.Path(t, "chat/plain.json"), &ref)
	for name, want := range ref.IDs {
		t.Run(name, func(t *testing.T) {
			var tok *Tokenizer
			if name == "smollm" || name == "stories260K" {
				tok = embedded(t, name)
			} else {
				var err error
				if tok, err = Load(filepath.Join(shared(t), sharedFolders[name])); err != nil {
					t.Fatal(err)
				}
			}
			for i, text := range ref.Texts {
				got := tok.Locate(text, LocateOptions{Plain: [][2]int{{0, len(text)}}})
				if !slices.Equal(got.IDs, want[i]) {
					t.Errorf("%q: ids %v, want %v", text, got.IDs, want[i])
				}
				if found := len(tok.Locate(text, LocateOptions{}).Specials); got.Plain != found || len(got.Specials) > 0 {
					t.Errorf("%q: %d read as text, %d noted as special; there are %d", text, got.Plain, len(got.Specials), found)
				}
			}
		})
	}
}

// TestPlainRanges: only what touches the ranges is read as text, and allowed tokens are not.
func TestPlainRanges(t *testing.T) {
	tok := embedded(t, "stories260K")
	text := "a</s>b</s>c</s>"
	eos, _ := tok.ID("</s>")
	count := func(o LocateOptions) (n int) {
		for _, id := range tok.Locate(text, o).IDs {
			if id == eos {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		plain [][2]int
		allow map[int32]bool
		want  int
	}{
		{nil, nil, 3}, {[][2]int{{0, 1}}, nil, 3}, {[][2]int{{0, 2}}, nil, 2}, {[][2]int{{4, 5}, {9, 10}}, nil, 1},
		{[][2]int{{0, 15}}, nil, 0}, {[][2]int{{0, 15}}, map[int32]bool{eos: true}, 3}, {[][2]int{{5, 6}, {10, 11}}, nil, 3},
	} {
		if got := count(LocateOptions{Plain: c.plain, Allow: c.allow}); got != c.want {
			t.Errorf("%v: %d end tokens, want %d", c.plain, got, c.want)
		}
	}
}

// FuzzLocate: Locate gives the ids of IDs and the borders of Encode's offsets, and with everything plain no special
// token.
func FuzzLocate(f *testing.F) {
	for _, text := range borderTexts {
		f.Add(text)
	}
	toks := []*Tokenizer{embedded(f, "stories260K"), embedded(f, "smollm")}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		for _, tok := range toks {
			checkLocate(t, tok, text)
			got := tok.Locate(text, LocateOptions{Borders: everyBorder(text), Plain: [][2]int{{0, len(text)}}})
			if len(got.Specials) > 0 || len(got.Borders) != len(everyBorder(text)) {
				t.Fatalf("%q: %+v", text, got)
			}
		}
	})
}
