package source

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// Slice is one term of a split expression of the library datasets: rows of a split, by number or by percentage
// ("train[:5%]").
type Slice struct {
	Split    string
	From, To *int // nil = from the first row, or to the last one; negative numbers count from the end
	Percent  bool
}

// AllSplits is the name that means every split.
const AllSplits = "all"

const (
	maxSliceTerms = 64
	maxSliceRow   = 1 << 40
)

var sliceTerm = regexp.MustCompile(
	`^\s*([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)(?:\[(?:(-?[0-9_]+)(%)?)?:(?:(-?[0-9_]+)(%)?)?\])?\s*$`)

// ParseSplit parses "train", "train[:5%]", "train[10:200]", "train[-5%:]", and several of these joined by "+".
func ParseSplit(text string) ([]Slice, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("is empty: write train, train[:5%] or train+test")
	}
	terms := strings.Split(text, "+")
	if len(terms) > maxSliceTerms {
		return nil, fmt.Errorf("has %d terms, at most %d are read", len(terms), maxSliceTerms)
	}
	var slices []Slice
	for _, term := range terms {
		m := sliceTerm.FindStringSubmatch(term)
		if m == nil {
			return nil, fmt.Errorf("has the term %q: write train, train[:5%%], train[10:200] or train[-5%%:]",
				strings.TrimSpace(term))
		}
		s := Slice{Split: m[1], Percent: m[3] != "" || m[5] != ""}
		if m[2] != "" && m[4] != "" && m[3] != m[5] {
			return nil, fmt.Errorf("has the term %q, which counts one end in rows and the other in percent",
				strings.TrimSpace(term))
		}
		for _, end := range []struct {
			text string
			to   **int
		}{{m[2], &s.From}, {m[4], &s.To}} {
			if end.text == "" {
				continue
			}
			n, err := strconv.Atoi(strings.ReplaceAll(end.text, "_", ""))
			switch {
			case err != nil || n > maxSliceRow || n < -maxSliceRow:
				return nil, fmt.Errorf("has the term %q, in which %s is no number of rows", strings.TrimSpace(term),
					end.text)
			case s.Percent && (n > 100 || n < -100):
				return nil, fmt.Errorf("has the term %q: percent lie in -100 to 100", strings.TrimSpace(term))
			}
			*end.to = &n
		}
		slices = append(slices, s)
	}
	return slices, nil
}

// Whole reports whether the slice is all rows of its split, so that the rows need not be counted.
func (s Slice) Whole() bool { return s.From == nil && s.To == nil }

func (s Slice) String() string {
	if s.Whole() {
		return s.Split
	}
	end := func(n *int) string {
		switch {
		case n == nil:
			return ""
		case s.Percent:
			return strconv.Itoa(*n) + "%"
		}
		return strconv.Itoa(*n)
	}
	return s.Split + "[" + end(s.From) + ":" + end(s.To) + "]"
}

// Span returns the range of the slice in a split of n rows. As in the library datasets, percentages are rounded to the
// nearest row, halves to even, and ends beyond the split are its ends. A slice without a row is an error.
func (s Slice) Span(n int) (Span, error) {
	at := func(end *int, open int) int {
		if end == nil {
			return open
		}
		row := *end
		if s.Percent {
			row = int(math.RoundToEven(float64(*end) * float64(n) / 100))
		}
		if row < 0 {
			row = max(n+row, 0)
		}
		return min(row, n)
	}
	span := Span{at(s.From, 0), at(s.To, n)}
	if span.From >= span.To {
		return Span{}, fmt.Errorf("%s has no row: the split has %s", s, words.Counted(n, "row"))
	}
	return span, nil
}
