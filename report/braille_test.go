package report

import (
	"math"
	"strings"
	"testing"
)

// TestBraille draws a line down and one that is measured now and then.
func TestBraille(t *testing.T) {
	p := Plot{XLabel: "step"}
	s := Series{Name: "loss"}
	for i := range 1000 {
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, float64(1000-i))
	}
	s.Y[500] = math.NaN()
	p.Series = []Series{s}
	got := strings.Join(p.Braille(40, 7, false), "\n")
	want := `1,000 ⠒⠤⢄⣀             !
          ⠉⠑⠒⠤⢄⣀
                ⠉⠉⠒⠢⠤⣀⡀
  500                 ⠉⠑⠒⠤⢄⣀
                            ⠉⠑⠒⠤⠤⣀⡀
                                  ⠈⠉⠒⠢⠤⣀
      0              500            step`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, size := range [][2]int{{0, 0}, {1, 1}, {5, 2}, {10, 3}, {40, 10}, {500, 200}} {
		for _, colour := range []bool{false, true} {
			for _, q := range []Plot{{}, p, {Series: []Series{{X: []float64{1}, Y: []float64{math.Inf(1)}}}}, {YLog: true, Series: []Series{{X: []float64{1, 2}, Y: []float64{-1, 3}, Style: Points}}}} {
				lines := q.Braille(size[0], size[1], colour)
				if len(lines) != max(0, size[1]) {
					t.Errorf("%v: %d lines", size, len(lines))
				}
				for _, l := range lines {
					if n := len([]rune(strings.ReplaceAll(l, "\x1b[0m", ""))); !colour && n > size[0] {
						t.Errorf("%v: a line of %d: %q", size, n, l)
					}
					if colour && strings.Contains(l, "\x1b") && !strings.HasSuffix(l, "\x1b[0m") {
						t.Errorf("%q does not end in a reset", l)
					}
				}
			}
		}
	}
}

// TestKeyFits: the key of a bar is as wide as the terminal at most; of parts without room the smallest are counted.
func TestKeyFits(t *testing.T) {
	b := Bar{Parts: []Part{{"frozen weights", 5 << 30}, {"activations", 3 << 30}, {"adapter", 10 << 20}, {"gradients", 11 << 20}, {"optimizer states", 20 << 20}}}
	for columns, want := range map[int]string{
		200: "█ frozen weights 5.0 GiB  ▓ activations 3.0 GiB  ▒ adapter 10.0 MiB  ░ gradients 11.0 MiB  ▞ optimizer states 20.0 MiB",
		92:  "█ frozen weights 5.0 GiB  ▓ activations 3.0 GiB  ▞ optimizer states 20.0 MiB  and 2 smaller",
		10:  "█ frozen weights 5.0 GiB  and 4 smaller",
	} {
		if _, key := b.Terminal(columns, false); key != want {
			t.Errorf("%d columns: %q, want %q", columns, key, want)
		}
	}
}
