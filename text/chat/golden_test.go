package chat

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// markTokenizer has a token for each character; what looks like a special token is one.
type markTokenizer struct{}

var markPattern = regexp.MustCompile(`<\|[a-zA-Z_0-9]+\|>|</?s>|<[a-z_]+_of_turn>|<｜[^｜]+｜>|\[/?[A-Z_]+\]|<\|"\|>|<\|[a-z_]+>|<[a-z_]+\|>|\[\|[a-z]+\|\]|<eos>|<bos>|<end_of_utterance>`)

func (markTokenizer) Locate(text string, o tokenizer.LocateOptions) (l tokenizer.Located) {
	at := func(id int32, from, to int) {
		for k := len(l.Borders); k < len(o.Borders) && to > o.Borders[k]; k++ {
			l.Borders = append(l.Borders, tokenizer.Border{Token: len(l.IDs), Across: from < o.Borders[k]})
		}
		l.IDs = append(l.IDs, id)
	}
	done := 0
	letters := func(to int) {
		for i, r := range text[done:to] {
			at(1000+r, done+i, done+i+len(string(r)))
		}
	}
	for _, m := range markPattern.FindAllStringIndex(text, -1) {
		plain := false
		for _, p := range o.Plain {
			plain = plain || p[0] < m[1] && p[1] > m[0]
		}
		id := markID(text[m[0]:m[1]])
		if plain && !o.Allow[id] {
			l.Plain++
			continue
		}
		letters(m[0])
		done = m[1]
		at(id, m[0], m[1])
		l.Specials = append(l.Specials, tokenizer.Special{ID: id, Start: m[0], End: m[1]})
	}
	letters(len(text))
	for len(l.Borders) < len(o.Borders) {
		l.Borders = append(l.Borders, tokenizer.Border{Token: len(l.IDs)})
	}
	return l
}

// markID is below the ids of characters.
func markID(s string) int32 {
	h := int32(0)
	for _, c := range []byte(s) {
		h = (h*31 + int32(c)) % 997
	}
	return h
}

func (markTokenizer) IsSpecial(id int32) bool { return id < 1000 }
func (markTokenizer) ID(token string) (int32, bool) {
	return markID(token), markPattern.MatchString(token)
}
func (markTokenizer) Token(id int32) (string, bool) { return "?", true }

// goldenTemplate is a template of the reference with its renderings.
type goldenTemplate struct {
	Source  string                             `json:"source"`
	Renders map[string]map[string]goldenRender `json:"renders"`
}

// eachTemplate goes through the reference's templates, by name.
func eachTemplate(t *testing.T, see func(name string, g goldenTemplate)) {
	t.Helper()
	files, err := filepath.Glob(golden.Outside(t, "goldens/templates/*.json"))
	if err != nil || len(files) < 46 { // with the conversations
		t.Fatalf("%d files of templates, %v", len(files), err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); name != "conversations" {
			var g goldenTemplate
			golden.JSON(t, file, &g)
			see(name, g)
		}
	}
}
