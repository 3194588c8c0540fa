package words

import "testing"

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
