package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxConfigBytes bounds a configuration file; real ones have two thousand.
const maxConfigBytes = 1 << 20

// position is where a value was given.
type position struct {
	source    string // file name, "--set" or an environment variable
	order     int    // of the sources, for sorting
	line, col int    // 0 outside of files
}

func (p position) String() string {
	if p.line == 0 {
		return p.source
	}
	if p.col == 0 {
		return fmt.Sprintf("%s:%d", p.source, p.line)
	}
	return fmt.Sprintf("%s:%d:%d", p.source, p.line, p.col)
}

// problem is something wrong with the configuration.
type problem struct {
	at   position
	text string
}

func (p problem) Error() string { return p.at.String() + ": " + p.text }

// layer is what one source sets.
type layer struct {
	source   string
	order    int
	lenient  bool                      // a text may be given without the quotes that YAML asks for
	values   map[string]any            // nested by section, as viper merges it
	tables   map[string]map[string]any // by path: keys with dots or capitals, which viper would change
	at       map[string]position       // of every key given
	problems []problem
}

func newLayer(source string, order int) *layer {
	return &layer{source: source, order: order, values: map[string]any{}, tables: map[string]map[string]any{}, at: map[string]position{}}
}

func (l *layer) position(n *yaml.Node) position {
	if n == nil {
		return position{source: l.source, order: l.order}
	}
	return position{l.source, l.order, n.Line, n.Column}
}

func (l *layer) bad(n *yaml.Node, format string, args ...any) {
	l.problems = append(l.problems, problem{l.position(n), fmt.Sprintf(format, args...)})
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parseNode parses one YAML document without building values from it, so that aliases expand to nothing.
func (l *layer) parseNode(text []byte) (root *yaml.Node) {
	if len(text) > maxConfigBytes {
		l.bad(nil, "larger than %d bytes: this is no configuration", maxConfigBytes)
		return nil
	}
	if !utf8.Valid(text) {
		l.bad(nil, "not valid YAML: the file is not UTF-8 text")
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // the parser's own invariants on hostile text
			l.bad(nil, "not valid YAML: %v", r)
			root = nil
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		l.bad(nil, "empty: give at least base_model, dataset.path and output_dir")
		return nil
	} else if err != nil {
		l.badSyntax(err)
		return nil
	}
	var more yaml.Node
	if err := dec.Decode(&more); err == nil {
		l.bad(&more, "a second document begins here: a configuration is one document")
		return nil
	} else if !errors.Is(err, io.EOF) {
		l.badSyntax(err)
		return nil
	}
	before := len(l.problems)
	l.refuseIndirection(&doc)
	if len(l.problems) > before {
		return nil
	}
	return doc.Content[0]
}

func (l *layer) badSyntax(err error) {
	at := position{source: l.source, order: l.order}
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		at.line, _ = strconv.Atoi(m[1]) // digits only, or empty
		text = text[len(m[0]):]
	}
	l.problems = append(l.problems, problem{at, "not valid YAML: " + text})
}

// refuseIndirection reports anchors, aliases, merge keys and tags: a configuration says everything where it stands.
func (l *layer) refuseIndirection(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		l.bad(n, "an alias (*%s): write the value out", n.Value)
		return
	case n.Anchor != "":
		l.bad(n, "an anchor (&%s): write the value out where it is used", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		l.bad(n, "a tag (%s): write the plain value", n.Tag)
	}
	for _, c := range n.Content {
		l.refuseIndirection(c)
	}
}

// parse reads a whole file; false says that it is no configuration at all.
func (l *layer) parse(text []byte) bool {
	root := l.parseNode(text)
	if root == nil {
		return false
	}
	if root.Kind != yaml.MappingNode {
		l.bad(root, "not a configuration: expected keys and values such as \"seed: 42\"")
		return false
	}
	l.section(schema, root, l.values)
	return true
}

// section reads the keys of a mapping into values.
func (l *layer) section(section *key, n *yaml.Node, values map[string]any) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			l.bad(name, "%sa key must be a name", prefix(section.path))
			continue
		}
		path := strings.TrimPrefix(section.path+"."+name.Value, ".")
		if line, twice := first[name.Value]; twice {
			l.bad(name, "%s: given twice, first in line %d", path, line)
			continue
		}
		first[name.Value] = name.Line
		k := section.child(name.Value)
		if k == nil {
			l.bad(name, "%s: %s", path, unknownKey(section, name.Value))
			continue
		}
		l.at[k.path] = l.position(value)
		l.value(k, value, values)
	}
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// value reads the value of one key into the values of its section.
func (l *layer) value(k *key, n *yaml.Node, values map[string]any) {
	switch k.kind {
	case kindSection:
		if isNull(n) && !l.lenient {
			return // a section whose keys are all commented out
		}
		if n.Kind != yaml.MappingNode {
			l.wrong(k, k.kind, n)
			return
		}
		inner, ok := values[k.name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[k.name] = inner
		}
		l.section(k, n, inner)
	case kindTable:
		l.table(k, n)
	case kindList:
		if list, ok := l.list(k, n); ok {
			values[k.name] = list
		}
	default:
		if v, ok := l.scalar(k, k.kind, n); ok {
			values[k.name] = v
		}
	}
}

func (l *layer) table(k *key, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		l.wrong(k, k.kind, n)
		return
	}
	table, first := map[string]any{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode || isNull(name) {
			l.bad(name, "%s: a key must be a name", k.path)
			continue
		}
		entry := &key{path: k.path + "." + name.Value, kind: k.elem}
		if line, twice := first[name.Value]; twice {
			l.bad(name, "%s: given twice, first in line %d", entry.path, line)
			continue
		}
		first[name.Value] = name.Line
		l.at[entry.path] = l.position(value)
		if v, ok := l.scalar(entry, k.elem, value); ok {
			table[name.Value] = v
		}
	}
	l.tables[k.path] = table
}

func (l *layer) list(k *key, n *yaml.Node) ([]string, bool) {
	if n.Kind == yaml.ScalarNode {
		v, ok := l.scalar(k, kindList, n)
		if !ok {
			return nil, false
		}
		return []string{v.(string)}, true
	}
	if n.Kind != yaml.SequenceNode {
		l.wrong(k, kindList, n)
		return nil, false
	}
	list := []string{}
	for _, item := range n.Content {
		v, ok := l.scalar(&key{path: k.path}, kindText, item)
		if !ok {
			return nil, false
		}
		list = append(list, v.(string))
	}
	return list, true
}

// scalar reads one plain value. A number may stand in quotes.
func (l *layer) scalar(k *key, want kind, n *yaml.Node) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		l.wrong(k, want, n)
		return nil, false
	}
	if isNull(n) && !(l.lenient && want == kindText) {
		l.bad(n, "%s: has no value; expected %s", k.path, want)
		return nil, false
	}
	text := n.Value
	quoted := n.Tag == "!!str"
	var v any
	var err error
	switch want {
	case kindText, kindList:
		v = text
		if !quoted && !l.lenient {
			err = errors.New("unquoted")
		}
	case kindWhole:
		v, err = strconv.Atoi(text)
	case kindUnsigned:
		v, err = strconv.ParseUint(text, 10, 64)
	case kindNumber:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		if math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(text, "xX_") {
			err = strconv.ErrRange
		}
		v = f
	case kindTruth:
		v = text == "true"
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	}
	if err != nil {
		l.wrong(k, want, n)
		return nil, false
	}
	return v, true
}

// wrong reports a value of the wrong kind.
func (l *layer) wrong(k *key, want kind, n *yaml.Node) {
	got := ""
	switch {
	case n.Kind == yaml.MappingNode:
		got = "keys and values"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case isNull(n):
		got = "nothing"
	case n.Tag == "!!str":
		got = fmt.Sprintf("the text %q", shorten(n.Value))
	default:
		got = shorten(n.Value)
	}
	hint := ""
	if (want == kindText || want == kindList) && n.Kind == yaml.ScalarNode {
		hint = "; put it in quotes"
	}
	if want == kindTruth {
		if near := map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}[strings.ToLower(n.Value)]; near != "" {
			hint = "; write " + near
		}
	}
	l.bad(n, "%s: expected %s, got %s%s", k.path, want, got, hint)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// assign reads one value for a dotted path, as --set and the environment give it.
func (l *layer) assign(path, text string) {
	k, rest := schema.find(path)
	switch {
	case rest != "" && k.kind == kindSection:
		name, _, _ := strings.Cut(rest, ".")
		l.bad(nil, "%s: %s", path, unknownKey(k, name))
		return
	case rest != "" && k.kind != kindTable:
		l.bad(nil, "%s: %s has no keys of its own", path, k.path)
		return
	case k == schema:
		l.bad(nil, "a key is missing before the =")
		return
	}
	l.at[path] = l.position(nil)
	values := l.values
	for section := schema; ; {
		name, _, deeper := strings.Cut(strings.TrimPrefix(k.path, prefixOf(section)), ".")
		if !deeper {
			break
		}
		section = section.child(name)
		inner, ok := values[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[name] = inner
		}
		values = inner
	}
	if k.kind == kindText {
		values[k.name] = text
		return
	}
	one := newLayer(l.source, l.order)
	one.lenient = true
	n := one.parseNode([]byte(text))
	switch {
	case n == nil && len(strings.TrimSpace(text)) == 0:
		one.problems = nil
		one.bad(nil, "%s: has no value; expected %s", path, k.kind)
	case n == nil:
	case rest != "":
		if v, ok := one.scalar(&key{path: path}, k.elem, n); ok {
			if l.tables[k.path] == nil {
				l.tables[k.path] = map[string]any{}
			}
			l.tables[k.path][rest] = v
		}
	default:
		one.value(k, n, values)
		for path, table := range one.tables {
			l.tables[path] = table
		}
		for path := range one.at {
			l.at[path] = l.position(nil)
		}
	}
	for _, p := range one.problems {
		l.problems = append(l.problems, problem{l.position(nil), p.text}) // lines within a value say nothing
	}
}

func prefixOf(section *key) string {
	if section.path == "" {
		return ""
	}
	return section.path + "."
}

// sortProblems orders problems by source, line and column.
func sortProblems(ps []problem) {
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i].at, ps[j].at
		if a.order != b.order {
			return a.order < b.order
		}
		if a.line != b.line {
			return a.line != 0 && (b.line == 0 || a.line < b.line) // what is missing comes last
		}
		return a.col < b.col
	})
}
