package gpu

import "testing"

func TestParseShares(t *testing.T) {
	for text, want := range map[string]int{"": 1, "1": 1, "2": 2, "8": 8, "0": 0, "9": 0, "-1": 0, "two": 0, "2 ": 0} {
		if n, err := parseShares(text); n != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
}
