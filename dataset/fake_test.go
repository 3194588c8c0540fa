package dataset

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// bytesTokenizer has a token for each byte, behind four special ones.
type bytesTokenizer struct {
	noBOS, noEOS bool
	print        string
}

const (
	fakePAD, fakeBOS, fakeEOS = 0, 1, 2
	fakeFirst                 = 4
)

func (b bytesTokenizer) IDs(s string, addSpecial bool) []int32 {
	var ids []int32
	if addSpecial && !b.noBOS {
		ids = append(ids, fakeBOS)
	}
	for len(s) > 0 {
		if rest, ok := strings.CutPrefix(s, "</s>"); ok {
			ids, s = append(ids, fakeEOS), rest
		} else if rest, ok := strings.CutPrefix(s, "<s>"); ok {
			ids, s = append(ids, fakeBOS), rest
		} else {
			ids, s = append(ids, fakeFirst+int32(s[0])), s[1:]
		}
	}
	return ids
}

func (b bytesTokenizer) BOS() (int32, bool) { return fakeBOS, true }
func (b bytesTokenizer) EOS() (int32, bool) { return fakeEOS, !b.noEOS }
func (b bytesTokenizer) PAD() (int32, bool) { return fakePAD, true }
func (b bytesTokenizer) AddsBOS() bool      { return !b.noBOS }
func (b bytesTokenizer) Files() map[string][]byte {
	return map[string][]byte{"bytes": []byte(b.print)}
}

func (b bytesTokenizer) Decode(ids []int32, skipSpecial bool) string {
	var s strings.Builder
	var raw []byte
	flush := func() { s.WriteString(strings.ToValidUTF8(string(raw), "\ufffd")); raw = nil }
	for _, id := range ids {
		if id >= fakeFirst {
			raw = append(raw, byte(id-fakeFirst))
			continue
		}
		flush()
		if piece, _ := b.Token(id); !skipSpecial {
			s.WriteString(piece)
		}
	}
	flush()
	return s.String()
}

func (b bytesTokenizer) Token(id int32) (string, bool) {
	switch {
	case id < 0 || id >= fakeFirst+256:
		return "", false
	case id < fakeFirst:
		return []string{"<pad>", "<s>", "</s>", "<unk>"}[id], true
	}
	return string([]byte{byte(id - fakeFirst)}), true
}

// loadText loads a file given as text.
func loadText(t testing.TB, name, content string, change func(*Config)) (*Set, *Report, error) {
	t.Helper()
	cfg := Default()
	cfg.Path = name
	if change != nil {
		change(&cfg)
	}
	return LoadFS(context.Background(), fstest.MapFS{name: {Data: []byte(content)}}, cfg, bytesTokenizer{})
}

// all is rows as a list.
func all(rows Rows) []Row {
	list := make([]Row, rows.Len())
	for i := range list {
		list[i] = rows.Row(i)
	}
	return list
}

func (b bytesTokenizer) IsSpecial(id int32) bool { return id < fakeFirst }

func (b bytesTokenizer) ID(token string) (int32, bool) {
	for id := range int32(fakeFirst) {
		if piece, _ := b.Token(id); piece == token {
			return id, true
		}
	}
	return 0, false
}

func (b bytesTokenizer) Locate(text string, o tokenizer.LocateOptions) (l tokenizer.Located) {
	for at := 0; at < len(text); {
		n, id := 1, fakeFirst+int32(text[at])
		for _, special := range []string{"</s>", "<s>"} {
			if !strings.HasPrefix(text[at:], special) {
				continue
			}
			plain := false
			for _, p := range o.Plain {
				plain = plain || p[0] < at+len(special) && p[1] > at
			}
			found, _ := b.ID(special)
			if plain && !o.Allow[found] {
				l.Plain++
				continue
			}
			n, id = len(special), found
			l.Specials = append(l.Specials, tokenizer.Special{ID: id, Start: at, End: at + n})
		}
		for k := len(l.Borders); k < len(o.Borders) && at+n > o.Borders[k]; k++ {
			l.Borders = append(l.Borders, tokenizer.Border{Token: len(l.IDs), Across: at < o.Borders[k]})
		}
		l.IDs = append(l.IDs, id)
		at += n
	}
	for len(l.Borders) < len(o.Borders) {
		l.Borders = append(l.Borders, tokenizer.Border{Token: len(l.IDs)})
	}
	return l
}
