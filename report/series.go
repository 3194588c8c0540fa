package report

import (
	"fmt"
	"math"
	"strings"
)

// BesideReference returns the series of a run's losses, each the mean of window steps, and of a reference's mean over
// seeds with the bounds that the run must not leave. The first value belongs to step 1.
func BesideReference(window int, run []float64, seeds int, mean, low, high []float64) []Series {
	name := "training"
	if window > 1 {
		name = fmt.Sprintf("training, mean of %d steps", window)
	}
	steps := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i + 1)
		}
		return x
	}
	return []Series{{Name: name, X: steps(len(run)), Y: run, Colour: 1},
		{Name: "reference, " + count(seeds, "seed", "seeds"), X: steps(len(mean)), Y: mean, Lower: low, Upper: high, Style: Dashed, Colour: 3}}
}

// points returns a series' values, without values that have no partner.
func (s Series) points() (x, y []float64) {
	n := min(len(s.X), len(s.Y))
	return s.X[:n], s.Y[:n]
}

// band returns the bounds of a series' spread; nil if it has none.
func (s Series) band() (x, lower, upper []float64) {
	n := min(len(s.X), len(s.Lower), len(s.Upper))
	return s.X[:n], s.Lower[:n], s.Upper[:n]
}

// last returns the last finite point.
func (s Series) last() (x, y float64, ok bool) {
	xs, ys := s.points()
	for i := len(ys) - 1; i >= 0; i-- {
		if finite(ys[i]) && finite(xs[i]) {
			return xs[i], ys[i], true
		}
	}
	return 0, 0, false
}

// notes returns what a plot cannot draw, in words.
func (p Plot) notes() []string {
	var notes []string
	if p.Note != "" {
		notes = append(notes, p.Note)
	}
	for _, s := range p.Series {
		x, y := s.points()
		var where []string
		bad, low := 0, 0
		for i, v := range y {
			switch {
			case !finite(v) || !finite(x[i]):
				if bad++; bad <= 5 {
					where = append(where, Number(x[i]))
				}
			case p.YLog && v <= 0:
				low++
			}
		}
		if bad > 0 {
			more := ""
			if bad > len(where) {
				more = ", …"
			}
			notes = append(notes, fmt.Sprintf("%s: %s not finite, at %s %s%s", s.Name, count(bad, "value is", "values are"),
				orText(p.XLabel, "x"), strings.Join(where, ", "), more))
		}
		if low > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s not above 0 and not on the logarithmic scale", s.Name, count(low, "value is", "values are")))
		}
	}
	return notes
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Whole(int64(n)) + " " + many
}

// envelope picks the points of a curve that draw it: the lowest, the highest and one that is not finite of each of n
// intervals of equal counts, in their order, and the first and last point. A short curve keeps every point.
func envelope(y []float64, n int) []int {
	if len(y) <= 3*n {
		all := make([]int, len(y))
		for i := range all {
			all[i] = i
		}
		return all
	}
	picked := make([]int, 0, 3*n+2)
	add := func(i int) {
		if i >= 0 && (len(picked) == 0 || picked[len(picked)-1] < i) {
			picked = append(picked, i)
		}
	}
	add(0)
	for k := range n {
		lo, hi, bad := -1, -1, -1
		for i := k * len(y) / n; i < (k+1)*len(y)/n; i++ {
			switch v := y[i]; {
			case !finite(v):
				bad = i
			case lo < 0:
				lo, hi = i, i
			case v < y[lo]:
				lo = i
			case v > y[hi]:
				hi = i
			}
		}
		a, b, c := sort3(lo, hi, bad)
		add(a)
		add(b)
		add(c)
	}
	add(len(y) - 1)
	return picked
}

func sort3(a, b, c int) (int, int, int) {
	if a > b {
		a, b = b, a
	}
	if b > c {
		b, c = c, b
	}
	if a > b {
		a, b = b, a
	}
	return a, b, c
}

// pick returns the values at the given indices.
func pick(v []float64, at []int) []float64 {
	out := make([]float64, len(at))
	for i, k := range at {
		out[i] = v[k]
	}
	return out
}

// Thinned returns a curve with at most three points in each of n parts: the lowest, the highest and one that is not
// finite.
func Thinned(x, y []float64, n int) (xs, ys []float64) {
	at := envelope(y, n)
	return pick(x, at), pick(y, at)
}

// bandEnvelope returns a band over at most n intervals, with the lowest lower and the highest upper bound of each.
func bandEnvelope(x, lower, upper []float64, n int) (xs, lo, hi []float64) {
	n = min(n, len(x))
	for k := range n {
		from, to := k*len(x)/n, (k+1)*len(x)/n
		l, h := math.Inf(1), math.Inf(-1)
		for i := from; i < to; i++ {
			if finite(lower[i]) && finite(upper[i]) {
				l, h = min(l, lower[i]), max(h, upper[i])
			}
		}
		if at := (from + to - 1) / 2; l <= h && finite(x[at]) {
			xs, lo, hi = append(xs, x[at]), append(lo, l), append(hi, h)
		}
	}
	return xs, lo, hi
}
