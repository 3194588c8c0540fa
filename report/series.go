package report

import (
	"fmt"
	"strings"
)

// points is a series' values, without what has no partner.
func (s Series) points() (x, y []float64) {
	n := min(len(s.X), len(s.Y))
	return s.X[:n], s.Y[:n]
}

// notes says what a plot cannot draw.
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
