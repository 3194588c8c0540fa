package report

import (
	"math"
	"strconv"
	"strings"
)

// axis maps values to the range from 0 to 1. page.js has the same; TestBrowser compares the two.
type axis struct {
	lo, hi float64
	log    bool
}

// newAxis returns an axis that spans the drawable values: the finite ones, on a logarithmic scale those above 0. With
// padded, both ends have a margin, and a scale that comes near 0 begins at 0.
func newAxis(log, padded bool, values ...[]float64) axis {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, vs := range values {
		for _, v := range vs {
			if finite(v) && (!log || v > 0) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	switch {
	case lo > hi:
		lo, hi = 0, 1
		if log {
			lo, hi = 0.1, 1
		}
	case lo == hi && log:
		lo, hi = lo/2, hi*2
	case lo == hi:
		d := max(math.Abs(lo)/10, 1e-12)
		if !padded {
			d = 1
		}
		lo, hi = lo-d, hi+d
	case padded && log:
		r := math.Pow(hi/lo, 0.05)
		lo, hi = lo/r, hi*r
	case padded:
		d := (hi - lo) / 20
		if lo >= 0 && lo < hi/4 {
			lo, hi = 0, hi+d
		} else {
			lo, hi = lo-d, hi+d
		}
	}
	return axis{lo, hi, log}
}

func (a axis) place(v float64) float64 {
	if a.log {
		return math.Log(v/a.lo) / math.Log(a.hi/a.lo)
	}
	return (v - a.lo) / (a.hi - a.lo)
}

// drawable reports whether a value has a position on the axis.
func (a axis) drawable(v float64) bool { return finite(v) && (!a.log || v > 0) }

// tick is a labelled position on an axis, from 0 to 1.
type tick struct {
	at    float64
	label string
}

// ticks returns about n round values: multiples of 1, 2 or 5 times a power of ten. A logarithmic scale has the powers
// of ten, and 2 and 5 times them if these are few.
func (a axis) ticks(n int, whole bool) []tick {
	var ticks []tick
	if a.log && a.hi/a.lo >= 3 {
		from, to := math.Floor(math.Log10(a.lo)), math.Floor(math.Log10(a.hi)+1e-9)
		parts := []float64{1}
		if a.hi/a.lo < 200 {
			parts = []float64{1, 2, 5}
		}
		every := math.Max(1, math.Ceil((to-from+1)/float64(n+2)))
		for e := from; e <= to; e += every {
			for _, m := range parts {
				if v := m * math.Pow(10, e); v >= a.lo && v <= a.hi {
					ticks = append(ticks, tick{a.place(v), tickLabel(v, v)})
				}
			}
		}
		return ticks
	}
	step := roundStep((a.hi - a.lo) / float64(n))
	if whole {
		step = max(1, step)
	}
	for k := math.Ceil(a.lo/step - 1e-9); k*step <= a.hi+step*1e-9 && len(ticks) < 4*n; k++ {
		ticks = append(ticks, tick{a.place(k * step), tickLabel(k*step, step)})
	}
	return ticks
}

// roundStep returns the nearest of 1, 2 and 5 times a power of ten that is not below raw/1.5.
func roundStep(raw float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw/power <= m*1.5 {
			return m * power
		}
	}
	return 10 * power
}

// tickLabel formats v with the digits that steps of this size need.
func tickLabel(v, step float64) string {
	e := int(math.Floor(math.Log10(step) + 1e-9))
	switch a := math.Abs(v); {
	case a < step/1e6:
		return "0"
	case step < 0.9999e-5 || a >= 1e9:
		digits := max(0, int(math.Floor(math.Log10(a)+1e-9))-e)
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', digits, 64), "e")
		n, _ := strconv.Atoi(exponent)
		return strings.Replace(mantissa, "-", "−", 1) + "e" + strings.Replace(strconv.Itoa(n), "-", "−", 1)
	case e >= 0:
		return Whole(int64(math.Round(v)))
	default:
		return strings.Replace(strconv.FormatFloat(v, 'f', -e, 64), "-", "−", 1)
	}
}
