package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Comparison is two reports of the same work side by side.
type Comparison struct {
	Differ []string       `json:"different"` // reasons why the two are not comparable; empty = they are
	Made   []string       `json:"made_by"`   // differences of program, driver and libraries
	Lines  []ComparedLine `json:"lines"`
}

// Verdicts of a line.
const (
	VerdictSlower = "slower"
	VerdictFaster = "faster"
	VerdictSame   = "within the spread"
	VerdictSmall  = "too small to judge"
	VerdictNew    = "new"
	VerdictGone   = "gone"
)

// ComparedLine is a time of both reports, in milliseconds: the medians and the ranges that they are judged by.
type ComparedLine struct {
	What    string     `json:"what"`
	Old     float64    `json:"old_ms"`
	New     float64    `json:"new_ms"`
	Ratio   float64    `json:"ratio"` // new / old; 0 if one of them is missing
	OldFrom [2]float64 `json:"old_spread_ms"`
	NewFrom [2]float64 `json:"new_spread_ms"`
	Verdict string     `json:"verdict"`
}

// Limits of verdicts: medians that are closer count as the same, and an operation with a smaller share of the step is
// not judged.
const (
	leastChange = 0.02
	leastShare  = 0.01
)

// Compare judges every time of two reports. A time is slower or faster if it lies beyond the spread: the middle halves
// of the steps' times, or the ranges of an operation's rounds, do not overlap, and the medians differ by 2 %. An
// operation is judged if it takes 1 % of the step.
func Compare(old, now Report) Comparison {
	c := Comparison{Differ: []string{}, Made: []string{}}
	differ := func(to *[]string, what string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			*to = append(*to, fmt.Sprintf("%s: %s, was %s", what, orNone(y), orNone(x)))
		}
	}
	differ(&c.Differ, "model", old.Shape, now.Shape)
	differ(&c.Differ, "sizes or configuration (SHA-256)", old.Work, now.Work)
	differ(&c.Differ, "tokens of the median step", old.Tokens, now.Tokens)
	differ(&c.Differ, "device", old.Device, now.Device)
	differ(&c.Differ, "precision", old.Precision, now.Precision)
	differ(&c.Differ, "layout", old.Layout, now.Layout)
	differ(&c.Differ, "CPU threads", old.Workers, now.Workers)
	differ(&c.Differ, "system", old.By.System, now.By.System)
	a, b := old.By, now.By
	differ(&c.Made, "program", a.Program, b.Program)
	differ(&c.Made, "commit", a.Commit, b.Commit)
	differ(&c.Made, "files beside the commit", a.Dirty, b.Dirty)
	differ(&c.Made, "Go", a.Go, b.Go)
	differ(&c.Made, "kernels", a.Kernels, b.Kernels)
	differ(&c.Made, "driver", a.Driver, b.Driver)
	differ(&c.Made, "libraries", strings.Join(a.Libraries, ", "), strings.Join(b.Libraries, ", "))
	differ(&c.Made, "algorithms", a.Algorithms, b.Algorithms)

	c.Lines = append(c.Lines, compare("step", old.Median, now.Median, middle(old.Times), middle(now.Times), 0))
	for _, l := range now.Ops {
		i := slices.IndexFunc(old.Ops, func(o ProfileLine) bool { return o.Kernel == l.Kernel })
		if i < 0 {
			c.Lines = append(c.Lines, ComparedLine{What: l.Kernel, New: l.Ms, NewFrom: [2]float64{l.Fastest, l.Slowest}, Verdict: VerdictNew})
			continue
		}
		o := old.Ops[i]
		c.Lines = append(c.Lines, compare(l.Kernel, o.Ms, l.Ms, [2]float64{o.Fastest, o.Slowest}, [2]float64{l.Fastest, l.Slowest}, leastShare*now.Median))
	}
	for _, o := range old.Ops {
		if !slices.ContainsFunc(now.Ops, func(l ProfileLine) bool { return o.Kernel == l.Kernel }) {
			c.Lines = append(c.Lines, ComparedLine{What: o.Kernel, Old: o.Ms, OldFrom: [2]float64{o.Fastest, o.Slowest}, Verdict: VerdictGone})
		}
	}
	return c
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// middle returns the middle half of times in ascending order.
func middle(times []float64) [2]float64 {
	n := len(times)
	if n == 0 {
		return [2]float64{}
	}
	return [2]float64{times[n/4], times[n-1-n/4]}
}

func compare(what string, old, now float64, oldFrom, newFrom [2]float64, judged float64) ComparedLine {
	l := ComparedLine{What: what, Old: old, New: now, OldFrom: oldFrom, NewFrom: newFrom, Verdict: VerdictSame}
	if old > 0 {
		l.Ratio = now / old
	}
	switch {
	case max(old, now) < judged:
		l.Verdict = VerdictSmall
	case newFrom[0] > oldFrom[1] && now > old*(1+leastChange):
		l.Verdict = VerdictSlower
	case newFrom[1] < oldFrom[0] && now < old*(1-leastChange):
		l.Verdict = VerdictFaster
	}
	return l
}

// Slower reports whether the step got slower beyond the spread. The operations only show where: they are timed too
// briefly to be judged alone.
func (c Comparison) Slower() bool { return c.Lines[0].Verdict == VerdictSlower }
