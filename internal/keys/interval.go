package keys

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Interval is a range of numbers. An infinite end is no bound; infinities and NaN are in no interval.
type Interval struct {
	Low, High         float64
	LowOpen, HighOpen bool // LowOpen and HighOpen exclude the bound itself.
}

// named are bounds that have a short name, of the largest whole number and the largest loss scale.
var named = map[string]float64{"inf": math.Inf(1), "2^64-1": math.MaxUint64, "2^127": 0x1p127}

// ParseInterval reads an interval as mathematics writes it: [0,1), (0,inf), [1,4096].
func ParseInterval(text string) (i Interval, err error) {
	if len(text) < 5 || !strings.ContainsAny(text[:1], "[(") || !strings.ContainsAny(text[len(text)-1:], "])") {
		return i, fmt.Errorf("%q is no interval such as [0,1)", text)
	}
	i.LowOpen, i.HighOpen = text[0] == '(', text[len(text)-1] == ')'
	low, high, ok := strings.Cut(text[1:len(text)-1], ",")
	if !ok {
		return i, fmt.Errorf("%q has no comma between its bounds", text)
	}
	if i.Low, err = strconv.ParseFloat(low, 64); err != nil {
		return i, fmt.Errorf("%q: the lower bound is no number", text)
	}
	if i.High, ok = named[high]; !ok {
		if i.High, err = strconv.ParseFloat(high, 64); err != nil {
			return i, fmt.Errorf("%q: the upper bound is no number", text)
		}
	}
	if i.Low > i.High {
		return i, fmt.Errorf("%q is empty", text)
	}
	return i, nil
}

// Holds reports whether a number lies in the interval.
func (i Interval) Holds(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	return (v > i.Low || v == i.Low && !i.LowOpen) && (v < i.High || v == i.High && !i.HighOpen)
}

// unbounded tells that the interval holds all finite numbers.
func (i Interval) unbounded() bool { return math.IsInf(i.Low, -1) && math.IsInf(i.High, 1) }

// String is the interval as the reference of keys says it: "above 0", "1 or more", "0 to 1", "0 or more, below 1".
func (i Interval) String() string {
	low, high := number(i.Low), number(i.High)
	switch {
	case i.unbounded():
		return "any number"
	case !i.LowOpen && !i.HighOpen && !math.IsInf(i.High, 0):
		return low + " to " + high
	case i.LowOpen:
		low = "above " + low
	default:
		low += " or more"
	}
	switch {
	case math.IsInf(i.High, 0):
		return low
	case i.HighOpen:
		return low + ", below " + high
	}
	return low + ", at most " + high
}

// Bounds is the interval behind "must be": "above 0", "at least 1", "from 0 to 1", "at least 0 and below 1".
func (i Interval) Bounds() string {
	low, high := number(i.Low), number(i.High)
	switch {
	case i.unbounded():
		return "a finite number"
	case !i.LowOpen && !i.HighOpen && !math.IsInf(i.High, 0):
		return "from " + low + " to " + high
	case i.LowOpen:
		low = "above " + low
	default:
		low = "at least " + low
	}
	switch {
	case math.IsInf(i.High, 0):
		return low
	case i.HighOpen:
		return low + " and below " + high
	}
	return low + " and at most " + high
}

func number(f float64) string {
	for name, v := range named {
		if v == f {
			return name
		}
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
