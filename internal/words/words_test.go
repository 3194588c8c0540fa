package words

import (
	"testing"
	"unicode/utf8"
)

func TestNearest(t *testing.T) {
	names := []string{"training", "tracking", "seed", "r"}
	for word, want := range map[string]string{"trainning": "training", "sead": "seed", "traicking": "tracking", "x": "",
		"xylophone": "", "see": "seed", "esed": "seed"} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%s: the nearest is %q, want %q", word, got, want)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{"a/b.yaml": "a/b.yaml", "": "''", "a b": "'a b'", "it's": `'it'\''s'`,
		"$x": "'$x'"} {
		if got := ShellQuote(word); got != want {
			t.Errorf("%q is quoted as %s, want %s", word, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999",
		69449: "69,449", 1234567: "1,234,567"} {
		if got := Count(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

// A clipped text is whole characters, and a short one stays as it is.
func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"gpu-node", 8, "gpu-node"}, {"gpu-node", 3, "gpu…"}, {"naïve", 3, "na…"}, {"naïve", 4, "naï…"},
		{"東京", 1, "…"}, {"東京", 5, "東…"}, {"東京", 6, "東京"}, {"", 0, ""},
	} {
		if got := Clip(c.text, c.most); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 rows", 1: "1 row", 2: "2 rows"} {
		if got := Counted(n, "row"); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
