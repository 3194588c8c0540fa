package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is the largest configuration that is read; real ones have two thousand bytes.
const MaxBytes = 1 << 20

// Position is where a value was given.
type Position struct {
	Source    string // Source is a file name, a flag as it was given, or an environment variable.
	key       string // that a flag sets
	order     int    // of the sources, for sorting
	Line, Col int    // Line and Col count from 1; 0 outside of files.
}

func (p Position) String() string {
	if p.Line == 0 {
		return p.Source
	}
	if p.Col == 0 {
		return fmt.Sprintf("%s:%d", p.Source, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Col)
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	At   Position
	Text string // Text begins with the key.
	guess
	left int // of a problem that stands for others: how many
}

// Error says where and what. A flag names its key already.
func (p Problem) Error() string {
	text := p.Text
	if p.left > 0 {
		return fmt.Sprintf("%s: %s", p.At.Source, text)
	}
	if p.At.key != "" {
		text = strings.TrimPrefix(text, p.At.key+": ")
	}
	return p.At.String() + ": " + text
}

// layer is what one source sets.
type layer struct {
	source   string
	key      string // that a flag sets
	order    int
	lenient  bool                        // a text may be given without the quotes that YAML asks for
	values   map[string]any              // nested by section, as viper merges it
	tables   map[string]map[string]any   // by path: keys with dots or capitals, which viper would change
	lists    map[string][]map[string]any // by path: lists of sections
	rowSets  []rowSet
	at       map[string]Position // of every key given
	problems []Problem
	left     int      // problems beyond mostProblems, which are counted only
	notes    []string // what was understood though it is written otherwise now
	tabbed   bool     // a line begins with a tab
}

func newLayer(source string, order int) *layer {
	return &layer{source: source, order: order, values: map[string]any{}, tables: map[string]map[string]any{},
		lists: map[string][]map[string]any{}, at: map[string]Position{}}
}

func (l *layer) position(n *yaml.Node) Position {
	if n == nil {
		return Position{Source: l.source, key: l.key, order: l.order}
	}
	return Position{l.source, l.key, l.order, n.Line, n.Column}
}

// mostProblems are the problems and the notes of a source that are told: who has more reads the first and starts over,
// and a file of many thousand unknown keys is compared with the known ones no more often.
const mostProblems = 100

// full tells whether a further problem is only counted, and counts it.
func (l *layer) full() bool {
	if len(l.problems) < mostProblems {
		return false
	}
	l.left++
	return true
}

func (l *layer) bad(n *yaml.Node, format string, args ...any) {
	if l.full() {
		return
	}
	l.problems = append(l.problems, Problem{At: l.position(n), Text: fmt.Sprintf(format, args...)})
}

// unknown reports a key that the section does not have.
func (l *layer) unknown(n *yaml.Node, section *Key, path, name string) {
	if l.full() {
		return
	}
	g := unknownKey(section, name)
	l.problems = append(l.problems, Problem{At: l.position(n), Text: path + ": " + g.text, guess: g})
}

var tabIndent = regexp.MustCompile(`(?m)^ *\t`)

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parseNode parses one YAML document without building values from it, so that aliases expand to nothing.
func (l *layer) parseNode(text []byte) (root *yaml.Node) {
	if len(text) > MaxBytes {
		l.bad(nil, "larger than %d bytes: this is no configuration", MaxBytes)
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
	l.tabbed = tabIndent.Match(text)
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

// asPath says how a path of Windows is written in YAML.
const asPath = `write a Windows path in single quotes ('C:\new\data') or with slashes (C:/new/data)`

func (l *layer) badSyntax(err error) {
	at := l.position(nil)
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		at.Line, _ = strconv.Atoi(m[1]) // digits only, or empty
		text = text[len(m[0]):]
	}
	if strings.Contains(text, "character that cannot start any token") && l.tabbed {
		text += ": a tab stands in the indentation, which is made of spaces in YAML"
	}
	// the parser's spelling
	if strings.Contains(text, "unknown escape character") || strings.Contains(text, "hexdecimal number") {
		if l.key == "" {
			at.Line = max(at.Line, 1) // the parser leaves the first line out
		}
		text = "a backslash in double quotes begins an escape such as \\n or \\u00e9, and this one is none: " + asPath
	}
	l.problems = append(l.problems, Problem{At: at, Text: "not valid YAML: " + text})
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
	l.section(Root, root, l.values)
	return true
}

// section reads the keys of a mapping into values.
func (l *layer) section(section *Key, n *yaml.Node, values map[string]any) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			l.bad(name, "%sa key must be a name", prefix(section.Path))
			continue
		}
		path := strings.TrimPrefix(section.Path+"."+name.Value, ".")
		if line, twice := first[name.Value]; twice {
			l.bad(name, "%s: given twice, first in line %d", path, line)
			continue
		}
		first[name.Value] = name.Line
		k := l.known(section, n, name, value, path)
		if k == nil {
			continue
		}
		l.at[k.Path] = l.position(value)
		l.value(k, value, values)
	}
}

// known is the key of a name, an old name included; nil where there is nothing to read.
func (l *layer) known(section *Key, n, name, value *yaml.Node, path string) *Key {
	if k := section.Child(name.Value); k != nil {
		return k
	}
	if k := newName(path); k != nil {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == k.Name {
				l.bad(name, "%s: is the old name of %s, which line %d gives too; remove one", path, k.Path,
					n.Content[i].Line)
				return nil
			}
		}
		l.note(name, path, "is %s now; the old name still works", k.Path)
		return k
	}
	if why, ok := removed[path]; ok && value.Kind == yaml.ScalarNode && value.Value == "" {
		l.note(name, path, "is ignored: %s; remove it", why)
		return nil
	}
	l.unknown(name, section, path, name.Value)
	return nil
}

func (l *layer) note(n *yaml.Node, path, format string, args ...any) {
	if l.lenient {
		n = nil // lines within a value say nothing
	}
	if len(l.notes) >= mostProblems {
		return
	}
	l.notes = append(l.notes, fmt.Sprintf("%s: %s %s", l.position(n), path, fmt.Sprintf(format, args...)))
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// assign reads one value for a dotted path, as --set and the environment give it.
func (l *layer) assign(path, text string) {
	if l.assignRow(path, text) {
		return
	}
	k, rest := Root.Find(path)
	if to := newName(path); rest != "" && to != nil {
		l.notes = append(l.notes, fmt.Sprintf("%s: %s is %s now; the old name still works", l.source, path, to.Path))
		k, rest, path = to, "", to.Path
	}
	switch {
	case rest != "" && k.Kind == KindSection:
		name, _, _ := strings.Cut(rest, ".")
		l.unknown(nil, k, path, name)
		return
	case rest != "" && k.Kind != KindTable:
		l.bad(nil, "%s: %s has no keys of its own", path, k.Path)
		return
	case k == Root:
		l.bad(nil, "a key is missing before the =")
		return
	}
	l.at[path] = l.position(nil)
	values := l.values
	for section := Root; ; {
		name, _, deeper := strings.Cut(strings.TrimPrefix(k.Path, prefixOf(section)), ".")
		if !deeper {
			break
		}
		section = section.Child(name)
		inner, ok := values[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[name] = inner
		}
		values = inner
	}
	if k.Kind == KindText {
		values[k.Name] = text
		return
	}
	one := newLayer(l.source, l.order)
	one.lenient = true
	n := one.parseNode([]byte(text))
	switch {
	case n == nil && len(strings.TrimSpace(text)) == 0:
		one.problems = nil
		one.bad(nil, "%s: has no value; expected %s", path, k.Kind)
	case n == nil:
	case rest != "":
		if v, ok := one.scalar(&Key{Path: path}, k.Elem, n); ok {
			if l.tables[k.Path] == nil {
				l.tables[k.Path] = map[string]any{}
			}
			l.tables[k.Path][rest] = v
		}
	default:
		one.value(k, n, values)
		for path, table := range one.tables {
			l.tables[path] = table
		}
		for path, list := range one.lists {
			l.lists[path] = list
		}
		for path := range one.at {
			l.at[path] = l.position(nil)
		}
	}
	for _, p := range one.problems {
		// lines within a value say nothing
		l.problems = append(l.problems, Problem{At: l.position(nil), Text: p.Text, guess: p.guess})
	}
	l.notes = append(l.notes, one.notes...)
}

func prefixOf(section *Key) string {
	if section.Path == "" {
		return ""
	}
	return section.Path + "."
}

// sortProblems orders problems by source, line and column. The first that lacks a guess lists the section's keys.
func sortProblems(ps []Problem) {
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i].At, ps[j].At
		if a.order != b.order {
			return a.order < b.order
		}
		if a.Line != b.Line {
			return a.Line != 0 && (b.Line == 0 || a.Line < b.Line) // what is missing comes last
		}
		return a.Col < b.Col
	})
	listed := map[string]bool{}
	for i := range ps {
		if list := ps[i].list; list != "" && !listed[list] {
			listed[list] = true
			ps[i].Text += "; " + list
		}
		ps[i].list = ""
	}
}
