package dataset

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// AimKind is what an objective wants of rows beside their tokens. The zero value wants nothing.
type AimKind string

// The kinds of an Aim. Each but AimMargin has formats of its own, which are detected for it alone.
const (
	AimMargin  AimKind = "margin"  // the margin of a preference pair, where it has one
	AimClass   AimKind = "class"   // the class of a text
	AimLabels  AimKind = "labels"  // the labels of a text, any number of them
	AimNumbers AimKind = "numbers" // numbers for a text
	AimTokens  AimKind = "tokens"  // the class of each token
	AimPairs   AimKind = "pairs"   // texts that belong together
)

// Aim is what an objective wants of rows beside their tokens. It becomes Row.Targets.
type Aim struct {
	Kind AimKind
	// Names are the names of classes or labels, by their numbers; nil = rows have numbers.
	Names []string
	// Count is the number of classes, of labels, or of numbers for a text.
	Count int
}

// readMargin reads the margin of a preference pair for an objective that uses it. For others the key counts as unread.
func readMargin(f Fields, ex *Example, cfg Config) error {
	key := f.keys["margin"]
	if !f.row.filled(key) {
		return nil
	}
	if cfg.Aim.Kind != AimMargin {
		ex.Unused = append(ex.Unused, key)
		return nil
	}
	raw, _ := f.row.lookup(key)
	x, err := parseNumber(raw)
	if err != nil {
		return fmt.Errorf("field %q %w", key, err)
	}
	ex.Targets = []float32{x}
	return nil
}

// maxTarget bounds the numbers of targets, so that a squared error is finite.
const maxTarget = 1e9

// parseNumber reads a number, or a text of one as CSV files have it.
func parseNumber(raw []byte) (float32, error) {
	text := string(raw)
	switch kind := kindOf(raw); {
	case kind == "a string":
		text = textOf(raw)
	case kind != "a number":
		return 0, fmt.Errorf("is %s, want a number", kind)
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || x != x {
		return 0, fmt.Errorf("is %s, want a number", words.Clip(string(raw), 40))
	}
	if math.Abs(x) > maxTarget {
		return 0, fmt.Errorf("is %s, want a number between -1e9 and 1e9", words.Clip(string(raw), 40))
	}
	return float32(x), nil
}

// label reads a class: its name, or its number from 0. where names the value in errors.
func (a Aim) label(raw []byte, where string) (int, error) {
	if raw = []byte(strings.TrimSpace(string(raw))); kindOf(raw) == "a string" {
		name := textOf(raw)
		if i := slices.Index(a.Names, name); i >= 0 {
			return i, nil
		}
		if n, err := strconv.Atoi(strings.TrimSpace(name)); err == nil { // CSV files have only strings
			return a.number(n, where)
		}
		if a.Names == nil {
			return 0, fmt.Errorf("%s is %s, and the labels have no names: list them in classification.labels", where,
				words.Clip(string(raw), 40))
		}
		return 0, fmt.Errorf("%s is %s, which is not one of the labels %s%s", where, words.Clip(string(raw), 40),
			words.Clip(strings.Join(a.Names, ", "), 200), didYouMean(name, a.Names))
	}
	switch string(raw) {
	case "true":
		return a.number(1, where)
	case "false":
		return a.number(0, where)
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, fmt.Errorf("%s is %s, want a label: its name, or its number from 0", where,
			words.Clip(string(raw), 40))
	}
	return a.number(n, where)
}

// number checks the number of a class.
func (a Aim) number(n int, where string) (int, error) {
	if n < 0 || n >= a.Count {
		return 0, fmt.Errorf("%s is %d, and there are the labels 0 to %d: set classification.labels or "+
			"classification.num_labels to all that the data has", where, n, a.Count-1)
	}
	return n, nil
}

// targets reads the label or the labels of a text.
func (a Aim) targets(f Fields) ([]float32, error) {
	key := f.keys["label"]
	raw, _ := f.row.lookup(key)
	where := fmt.Sprintf("field %q", key)
	switch a.Kind {
	case AimClass:
		n, err := a.label(raw, where)
		return []float32{float32(n)}, err
	case AimLabels:
		return a.several(raw, where, key)
	}
	list := []json.RawMessage{raw}
	if kindOf(raw) == "a list" {
		list = splitList(raw)
	}
	if len(list) != a.Count {
		return nil, fmt.Errorf("%s has %s, want %d", where, words.Counted(len(list), "number"), a.Count)
	}
	all := make([]float32, len(list))
	for i, raw := range list {
		x, err := parseNumber(raw)
		if err != nil {
			return nil, fmt.Errorf("%s %w", where, err)
		}
		all[i] = x
	}
	return all, nil
}

// several reads labels: a list of names or numbers of those that the text has, a list of a 0 or 1 for each label if it
// has floats or as many elements as there are labels and only zeros and ones, or the name of one label. A single label
// may have a degree from 0 to 1.
func (a Aim) several(raw []byte, where, key string) ([]float32, error) {
	all := make([]float32, a.Count)
	if a.Count == 1 {
		x, err := parseNumber(raw)
		switch {
		case string(raw) == "true":
			x = 1
		case string(raw) == "false":
		case err != nil:
			return nil, fmt.Errorf("%s %w", where, err)
		case x < 0 || x > 1:
			return nil, fmt.Errorf("%s is %v, want 0 to 1", where, x)
		}
		all[0] = x
		return all, nil
	}
	if kindOf(raw) != "a list" {
		n, err := a.label(raw, where)
		all[n] = 1
		return all, err
	}
	list := splitList(raw)
	if len(list) == a.Count && !slices.ContainsFunc(list,
		func(raw json.RawMessage) bool { return !isFlag(string(raw)) }) {
		for i, flag := range list {
			if all[i] = 0; strings.HasPrefix(string(flag), "1") || string(flag) == "true" {
				all[i] = 1
			}
		}
		return all, nil
	}
	for i, raw := range list {
		n, err := a.label(raw, fmt.Sprintf("%s[%d]", key, i))
		if err != nil {
			return nil, err
		}
		if all[n] != 0 {
			return nil, fmt.Errorf("%s has the label %d twice", where, n)
		}
		all[n] = 1
	}
	return all, nil
}

// describe returns the targets of a row for people: the names of its labels, or its numbers. It is "" for the labels of
// tokens, which are too many.
func (a Aim) describe(targets []float32) string {
	name := func(i int) string {
		if i < len(a.Names) {
			return a.Names[i]
		}
		return strconv.Itoa(i)
	}
	var all []string
	switch {
	case a.Kind == AimClass && len(targets) == 1:
		return "label " + name(int(targets[0]))
	case a.Kind == AimLabels && a.Count > 1:
		for i, x := range targets {
			if x != 0 {
				all = append(all, name(i))
			}
		}
		if all == nil {
			return "no label"
		}
		return "labels " + strings.Join(all, ", ")
	case a.Kind == AimLabels || a.Kind == AimNumbers:
		for _, x := range targets {
			all = append(all, strconv.FormatFloat(float64(x), 'g', -1, 32))
		}
		return "label " + strings.Join(all, ", ")
	}
	return ""
}

// isFlag reports whether JSON is a 0 or a 1 of a list with one for each label.
func isFlag(text string) bool {
	return slices.Contains([]string{"0", "1", "0.0", "1.0", "true", "false"}, text)
}
