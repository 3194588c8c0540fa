package infer

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// cutAt is what a stopper does, without a stream: the text before the stop text that begins first.
func cutAt(text string, stops []string) (string, string) {
	at, found := len(text), ""
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && i < at {
			at, found = i, s
		}
	}
	return text[:at], found
}

// TestStopAcrossPieces: however a text comes in pieces, what is shown is the text before the stop, and no part of a
// stop was ever shown.
func TestStopAcrossPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		letters := func(n int) string {
			var b strings.Builder
			for range n {
				b.WriteString([]string{"a", "b", "é", "\n"}[random.IntN(4)])
			}
			return b.String()
		}
		stops := []string{letters(1+random.IntN(4)) + "c", letters(2 + random.IntN(3))}
		text := letters(random.IntN(40))
		if random.IntN(2) == 0 {
			text += stops[0] + letters(3)
		}
		s := &stopper{texts: stops}
		var shown strings.Builder
		for rest := text; rest != "" && s.found == ""; {
			n := min(len(rest), 1+random.IntN(6))
			shown.WriteString(s.push(rest[:n]))
			rest = rest[n:]
		}
		if s.found == "" {
			shown.WriteString(s.rest())
		}
		want, found := cutAt(text, stops)
		// A stop text that is complete counts at once, though a longer one that begins earlier may still come.
		if s.found != found && strings.Contains(want+found, s.found) {
			continue
		}
		if shown.String() != want || s.found != found {
			t.Fatalf("%q, stops %q: %q by %q, want %q by %q", text, stops, shown.String(), s.found, want, found)
		}
	}
}

func TestStopHoldsBack(t *testing.T) {
	s := &stopper{texts: []string{"\n\nUser:", "###"}}
	for _, c := range []struct{ piece, shown string }{
		{"Hi", "Hi"}, {" #", " "}, {"#a", "##a"}, {"\n", ""}, {"\nUse", ""}, {"d", "\n\nUsed"},
		{"\n\nUser", ""}, {": x", ""},
	} {
		if got := s.push(c.piece); got != c.shown {
			t.Errorf("%q: %q, want %q", c.piece, got, c.shown)
		}
	}
	if s.found != "\n\nUser:" {
		t.Errorf("found %q", s.found)
	}
	s = &stopper{texts: []string{"<end>"}}
	if got := s.push("a<en") + s.rest(); got != "a<en" {
		t.Errorf("a text that ends in the beginning of a stop: %q", got)
	}
}

func TestCheckStops(t *testing.T) {
	for _, c := range []struct {
		stops []string
		want  string
	}{
		{nil, ""}, {[]string{"a"}, ""},
		{[]string{"a", ""}, "a stop text is empty: it would end every answer before its first character"},
		{[]string{strings.Repeat("a", 1025)}, "a stop text has 1025 bytes, more than the limit of 1024"},
	} {
		got := ""
		if err := CheckStops(c.stops); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%.20q: %q, want %q", c.stops, got, c.want)
		}
	}
}
