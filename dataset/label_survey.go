package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// LabelSurvey says what the labels of a data set are.
type LabelSurvey struct {
	// Kind is AimClass for one label of several, AimLabels for any number of labels, AimNumbers for numbers, and
	// AimTokens for a label of each word.
	Kind AimKind
	// Names are the names of the labels in alphabetical order; nil = rows have numbers.
	Names []string
	// Count is the number of labels: of Names, or one more than the largest number. For AimNumbers it is the number of
	// numbers of a row.
	Count int
	// Key is the key of the first file that holds the labels.
	Key string
}

// MaxSurveyed is the most labels that SurveyLabels finds. Integers of that size and more are numbers to be predicted.
const MaxSurveyed = 1000

// SurveyLabels reads all rows of the training sources and finds out what their labels are. each says that each word has
// a label. fsys nil means the disk.
func SurveyLabels(ctx context.Context, fsys fs.FS, c Config, each bool) (LabelSurvey, error) {
	s := &survey{names: map[string]bool{}}
	c.Aim = Aim{Kind: AimClass}
	if each {
		c.Aim.Kind = AimTokens
	}
	file, role, keys := "", "", map[string]string(nil)
	err := EachRow(ctx, fsys, c, func(item Item) error {
		if file != item.Source {
			name := c.Format
			if name == "" || name == FormatAuto {
				name = c.detectPreference(item.object)
			}
			f := Formats[name]
			if !slices.Contains(f.Aims, c.Aim.Kind) {
				return fmt.Errorf("%s: the keys %s hold no text with a label", item.Where(), item.object.keyList())
			}
			file, role = item.Source, f.labelRole()
			if keys, _ = f.bind(item.object, c.Fields); s.key == "" {
				s.key = keys[role]
			}
		}
		raw, _ := item.object.lookup(keys[role])
		if err := s.see(raw, each); err != nil {
			return fmt.Errorf("%s: field %q %w", item.Where(), keys[role], err)
		}
		return nil
	})
	if err != nil {
		return LabelSurvey{}, err
	}
	return s.result(each)
}

// labelRole returns the role of a labelled format that has the label.
func (f Format) labelRole() string {
	for _, name := range []string{"label", "tags", "labels"} {
		if f.hasRoles([]string{name}) {
			return name
		}
	}
	return ""
}

// survey collects the labels of rows.
type survey struct {
	key         string
	names       map[string]bool // texts of labels that are strings
	most, least float64         // of the labels that are numbers
	numbers     int             // labels that are JSON numbers or booleans
	fractions   bool            // one of the numbers, or of the strings that are numbers, is no integer
	texts       bool            // one of the strings is no number
	lists, rows int             // rows whose label is a list, and all rows
	flags       bool            // all lists have zeros and ones alone
	width       int             // length of all lists; -1 = they differ
}

// see adds the label of a row.
func (s *survey) see(raw json.RawMessage, each bool) error {
	if s.rows++; kindOf(raw) != "a list" {
		if each {
			return fmt.Errorf("is %s, want a list of labels", kindOf(raw))
		}
		return s.one(raw)
	}
	list := splitList(raw)
	if s.lists++; s.lists == 1 {
		s.flags, s.width = true, len(list)
	}
	if s.width != len(list) {
		s.width = -1
	}
	for _, raw := range list {
		s.flags = s.flags && isFlag(string(raw))
		if string(raw) == "-100" && each {
			continue
		}
		if err := s.one(raw); err != nil {
			return err
		}
	}
	return nil
}

// one adds a label: a name or a number.
func (s *survey) one(raw json.RawMessage) error {
	text := strings.TrimSpace(string(raw))
	switch kindOf(raw) {
	case "a string":
		name := textOf([]byte(text))
		if s.names[name] = true; len(s.names) > MaxSurveyed && s.texts {
			return fmt.Errorf("is %s, and there are more than %d different labels", words.Clip(text, 40), MaxSurveyed)
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(name), 64)
		if s.texts = s.texts || err != nil; err == nil {
			s.number(x)
		}
	case "a boolean":
		s.numbers++
		s.number(map[string]float64{"true": 1}[text])
	case "a number":
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("is %s, want a number", words.Clip(text, 40))
		}
		s.numbers++
		s.number(x)
	default:
		return fmt.Errorf("is %s, want a label: a name or a number", kindOf(raw))
	}
	if s.texts && s.numbers > 0 {
		return fmt.Errorf("is %s, and other rows have labels of another kind: names and numbers cannot be mixed",
			words.Clip(text, 40))
	}
	return nil
}

func (s *survey) number(x float64) {
	s.most, s.least = max(s.most, x), min(s.least, x)
	s.fractions = s.fractions || x != math.Trunc(x)
}

// result decides what the labels are.
func (s *survey) result(each bool) (LabelSurvey, error) {
	out := LabelSurvey{Kind: AimClass, Key: s.key}
	switch {
	case each:
		out.Kind = AimTokens
	case s.lists > 0 && s.lists < s.rows:
		return out, fmt.Errorf("field %q is a list in %d of %d rows: write lists in all of them, or in none", s.key,
			s.lists, s.rows)
	case s.lists > 0:
		out.Kind = AimLabels
	}
	numeric := s.fractions || s.least < 0 || s.most >= MaxSurveyed
	switch {
	case s.texts:
		for name := range s.names {
			out.Names = append(out.Names, name)
		}
		slices.Sort(out.Names)
		out.Count = len(out.Names)
	case numeric && each:
		return out, fmt.Errorf("field %q has numbers from %v to %v, want labels: names, or numbers from 0 to %d", s.key,
			s.least, s.most, MaxSurveyed-1)
	case out.Kind == AimLabels && s.flags && s.width > 1:
		out.Count = s.width
	case numeric && out.Kind == AimLabels && s.width < 1:
		return out, fmt.Errorf("field %q has lists of numbers of different lengths", s.key)
	case numeric:
		if out.Count = 1; out.Kind == AimLabels {
			out.Count = s.width
		}
		out.Kind = AimNumbers
	default:
		out.Count = int(s.most) + 1
	}
	if out.Kind != AimNumbers && out.Count < 2 {
		return out, fmt.Errorf("field %q has one label alone in all %d rows: there is nothing to tell apart", s.key,
			s.rows)
	}
	return out, nil
}
