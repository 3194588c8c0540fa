package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/words"
)

// keyDevices is a text that may stand as a number or a list.
const keyDevices = "devices"

// value reads the value of one key into the values of its section.
func (l *layer) value(k *Key, n *yaml.Node, values map[string]any) {
	if k.Path == keyDevices {
		n = asText(n)
	}
	if slices.Contains(k.Choices, dataset.AsChatYes) {
		n = yesOrNo(n)
	}
	switch k.Kind {
	case KindSection:
		if isNull(n) && !l.lenient {
			return // a section whose keys are all commented out
		}
		if n.Kind != yaml.MappingNode {
			l.wrong(k, k.Kind, n)
			return
		}
		inner, ok := values[k.Name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[k.Name] = inner
		}
		l.section(k, n, inner)
	case KindTable:
		l.table(k, n)
	case KindRows:
		l.rows(k, n)
	case KindList:
		if list, ok := l.list(k, n); ok {
			values[k.Name] = list
		}
	default:
		if v, ok := l.scalar(k, k.Kind, n); ok {
			values[k.Name] = v
		}
	}
}

// yesOrNo returns true as the text yes and false as no, for keys whose values are these words; anything else as it is.
func yesOrNo(n *yaml.Node) *yaml.Node {
	word, ok := map[string]string{"true": dataset.AsChatYes, "false": dataset.AsChatNo}[n.Value]
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || !ok {
		return n
	}
	text := *n
	text.Tag, text.Value = "!!str", word
	return &text
}

// asText is a whole number, or a list of them, as the text that stands for it; anything else as it is.
func asText(n *yaml.Node) *yaml.Node {
	text := *n
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!int":
		text.Tag = "!!str"
	case n.Kind == yaml.SequenceNode:
		words := make([]string, len(n.Content))
		for i, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return n
			}
			words[i] = item.Value
		}
		text = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "[" + strings.Join(words, ",") + "]", Line: n.Line,
			Column: n.Column}
	}
	return &text
}

func (l *layer) table(k *Key, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		l.wrong(k, k.Kind, n)
		return
	}
	table, first := map[string]any{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode || isNull(name) {
			l.bad(name, "%s: a key must be a name", k.Path)
			continue
		}
		entry := &Key{Path: k.Path + "." + name.Value, Kind: k.Elem}
		if line, twice := first[name.Value]; twice {
			l.bad(name, "%s: given twice, first in line %d", entry.Path, line)
			continue
		}
		first[name.Value] = name.Line
		l.at[entry.Path] = l.position(value)
		if v, ok := l.scalar(entry, k.Elem, value); ok {
			table[name.Value] = v
		}
	}
	l.tables[k.Path] = table
}

func (l *layer) list(k *Key, n *yaml.Node) ([]string, bool) {
	// A list of numbers is kept as their texts, which need no quotes.
	text := func(n *yaml.Node) *yaml.Node {
		if k.Form != formNumbers || n.Tag != "!!int" && n.Tag != "!!float" {
			return n
		}
		quoted := *n
		quoted.Tag = "!!str"
		return &quoted
	}
	if n.Kind == yaml.ScalarNode {
		v, ok := l.scalar(k, KindList, text(n))
		if !ok {
			return nil, false
		}
		return []string{v.(string)}, true
	}
	if n.Kind != yaml.SequenceNode {
		l.wrong(k, KindList, n)
		return nil, false
	}
	list := []string{}
	for _, item := range n.Content {
		v, ok := l.scalar(&Key{Path: k.Path}, KindText, text(item))
		if !ok {
			return nil, false
		}
		list = append(list, v.(string))
	}
	return list, true
}

// scalar reads one plain value. A number may stand in quotes.
func (l *layer) scalar(k *Key, want Kind, n *yaml.Node) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		l.wrong(k, want, n)
		return nil, false
	}
	if isNull(n) && !(l.lenient && want == KindText) {
		l.bad(n, "%s: has no value; expected %s", k.Path, want)
		return nil, false
	}
	text := n.Value
	quoted := n.Tag == "!!str"
	var v any
	var err error
	switch want {
	case KindText, KindList:
		v = text
		if !quoted && !l.lenient {
			err = errors.New("unquoted")
		}
	case KindWhole:
		v, err = strconv.Atoi(text)
	case KindUnsigned:
		v, err = strconv.ParseUint(text, 10, 64)
	case KindNumber:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		if math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(text, "xX_") {
			err = strconv.ErrRange
		}
		v = f
	case KindTruth:
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
func (l *layer) wrong(k *Key, want Kind, n *yaml.Node) {
	got := ""
	switch {
	case n.Kind == yaml.MappingNode:
		got = "keys and values"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case isNull(n):
		got = "nothing"
	case n.Tag == "!!str":
		got = fmt.Sprintf("the text %q", words.Shorten(n.Value))
	default:
		got = words.Shorten(n.Value)
	}
	hint := ""
	if k.Path == "dataset" && n.Kind != yaml.MappingNode {
		hint = "; write dataset.path and dataset.format"
	}
	if (want == KindText || want == KindList) && n.Kind == yaml.ScalarNode {
		hint = "; put it in quotes"
	}
	if want == KindTruth {
		if near := map[string]string{"yes": "true", "on": "true", "no": "false",
			"off": "false"}[strings.ToLower(n.Value)]; near != "" {
			hint = "; write " + near
		}
	}
	l.bad(n, "%s: expected %s, got %s%s", k.Path, want, got, hint)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
