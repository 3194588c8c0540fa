package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// A value is nil, bool, int64, float64, string, []any, Map or Code.

// Pair is one key with its value and its line; line 0 is unknown.
type Pair struct {
	Key   string
	Value any
	Line  int
}

// Map is a table in file order.
type Map []Pair

// Code is an expression of a program that is not evaluated.
type Code string

const (
	maxValues = 100_000 // values of a file, with aliases expanded
	maxDepth  = 64
)

var (
	errMany = fmt.Errorf("it holds more than %d values: this is no configuration", maxValues)
	errDeep = fmt.Errorf("values are nested deeper than %d: this is no configuration", maxDepth)
)

// Get returns the value of a key, nil if there is none.
func (m Map) Get(key string) any {
	for _, p := range m {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// reading counts the values that were read, so that aliases of aliases cannot grow without bound.
type reading struct{ values int }

func (r *reading) count(depth int) error {
	if r.values++; r.values > maxValues {
		return errMany
	}
	if depth > maxDepth {
		return errDeep
	}
	return nil
}

// parseYAML reads a single YAML document whose top level is a table. Anchors, aliases and merge keys are resolved.
func parseYAML(text []byte) (m Map, err error) {
	defer func() {
		if r := recover(); r != nil { // hostile text can violate the parser's own invariants
			m, err = nil, fmt.Errorf("it is not valid YAML: %v", r)
		}
	}()
	if err := shallow(text); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty")
	case err != nil:
		return nil, fmt.Errorf("it is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if dec.Decode(&more) == nil {
		return nil, fmt.Errorf("a second document begins in line %d: a configuration is one document", more.Line)
	}
	v, err := new(reading).node(doc.Content[0], 0)
	if err != nil {
		return nil, err
	}
	m, ok := v.(Map)
	if !ok {
		return nil, errors.New("it is no configuration: expected keys and values such as \"learning_rate: 2e-4\"")
	}
	return m, nil
}

// shallow rejects deeply nested brackets before the YAML parser reads them: its time grows with their depth.
func shallow(text []byte) error {
	depth := 0
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		}
		if depth > 1000 {
			return errDeep
		}
	}
	return nil
}

func (r *reading) node(n *yaml.Node, depth int) (any, error) {
	if err := r.count(depth); err != nil {
		return nil, err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.node(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, 0, min(len(n.Content), 16))
		for _, c := range n.Content {
			v, err := r.node(c, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		return r.mapping(n, depth)
	}
	return scalar(n), nil
}

func (r *reading) mapping(n *yaml.Node, depth int) (any, error) {
	var m, merged Map
	given := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		v, err := r.node(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if k.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key must be a name", k.Line)
		}
		if k.Tag == "!!merge" {
			from, ok := v.(Map)
			if !ok {
				return nil, fmt.Errorf("line %d: << must name a table", k.Line)
			}
			merged = append(merged, from...)
			continue
		}
		if given[k.Value] {
			return nil, fmt.Errorf("line %d: %s is given twice", k.Line, shorten(k.Value))
		}
		given[k.Value] = true
		m = append(m, Pair{k.Value, v, k.Line})
	}
	for _, p := range merged {
		if !given[p.Key] {
			given[p.Key] = true
			m = append(m, p)
		}
	}
	return m, nil
}

func scalar(n *yaml.Node) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return i
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			return f
		}
	}
	return n.Value
}

// parseJSON reads a JSON object.
func parseJSON(text []byte) (Map, error) {
	if e := jsonerr.Check(text); e != nil {
		return nil, fmt.Errorf("it is not valid JSON: %w", e)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	v, err := new(reading).json(dec, 0)
	if err != nil {
		return nil, err
	}
	m, ok := v.(Map)
	if !ok {
		return nil, errors.New("it is no configuration: expected a JSON object")
	}
	return m, nil
}

func (r *reading) json(dec *json.Decoder, depth int) (any, error) {
	if err := r.count(depth); err != nil {
		return nil, err
	}
	t, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("it is not valid JSON: %w", err)
	}
	switch t := t.(type) {
	case json.Delim:
		var list []any
		var m Map
		for dec.More() {
			key := ""
			if t == '{' {
				k, err := dec.Token()
				if err != nil {
					return nil, fmt.Errorf("it is not valid JSON: %w", err)
				}
				key, _ = k.(string)
			}
			v, err := r.json(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list, m = append(list, v), append(m, Pair{Key: key, Value: v})
		}
		if _, err := dec.Token(); err != nil {
			return nil, fmt.Errorf("it is not valid JSON: %w", err)
		}
		if t == '{' {
			return m, nil
		}
		return list, nil
	case json.Number:
		return number(t.String()), nil
	}
	return t, nil
}

var numeric = regexp.MustCompile(`^[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?$`)

// number parses a number as YAML, JSON and Python write it. Other text stays a string.
func number(s string) any {
	if !numeric.MatchString(s) {
		return s
	}
	plain := strings.ReplaceAll(s, "_", "")
	if i, err := strconv.ParseInt(plain, 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(plain, 64); err == nil {
		return f
	}
	return s
}

// Text returns a value on one line, shortened to a readable length.
func Text(v any) string { return shorten(text(v)) }

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		if v == "" || strings.ContainsAny(v, "\n\r\t") || !strconv.CanBackquote(v) {
			return strconv.Quote(v)
		}
		return v
	case Code:
		return string(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		parts := make([]string, 0, min(len(v), 20))
		for _, e := range v[:min(len(v), 20)] {
			parts = append(parts, Text(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case Map:
		parts := make([]string, 0, min(len(v), 20))
		for _, p := range v[:min(len(v), 20)] {
			parts = append(parts, shorten(p.Key)+": "+Text(p.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// shorten cuts a text, and escapes what steers a terminal.
func shorten(s string) string {
	const most = 80
	s = strings.ToValidUTF8(s, "\uFFFD")
	if q := strconv.QuoteToGraphic(s); strings.ContainsFunc(s,
		func(r rune) bool { return r < ' ' || r == 0x7f || !strconv.IsGraphic(r) }) {
		s = q[1 : len(q)-1]
	}
	if r := []rune(s); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return s
}
