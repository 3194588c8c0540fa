package config

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/safetext"
)

// Commented is a value of a configuration that is written for people, with its comments.
type Commented struct {
	Path  string   // Path is the key, such as training.batch_size.
	Value any      // Value is a basic value, a []any, or an importer.Map.
	Above []string // Above are lines of comment above the key.
	After string   // After is a comment behind the value; "" = none.
}

// CommentedYAML writes values in the order of docs/CONFIG.md, with head and tail as comments around them.
func CommentedYAML(head []string, values []Commented, tail []string) []byte {
	byPath := map[string]Commented{}
	for _, v := range values {
		byPath[v.Path] = v
	}
	var b bytes.Buffer
	comment(&b, "", head)
	writeCommented(&b, Root, byPath, "")
	if len(tail) > 0 {
		b.WriteByte('\n')
	}
	comment(&b, "", tail)
	return b.Bytes()
}

func comment(b *bytes.Buffer, indent string, lines []string) {
	for _, line := range lines {
		if line == "" {
			b.WriteByte('\n')
			continue
		}
		b.WriteString(indent + "# " + safetext.OneLine(line) + "\n")
	}
}

func writeCommented(b *bytes.Buffer, section *Key, values map[string]Commented, indent string) {
	for _, k := range section.Keys {
		if k.Kind == KindSection {
			var inner bytes.Buffer
			writeCommented(&inner, k, values, indent+"  ")
			v := values[k.Path]
			if inner.Len() > 0 {
				comment(b, indent, v.Above)
				b.WriteString(indent + k.Name + ":\n")
				b.Write(inner.Bytes())
			}
			continue
		}
		v, ok := values[k.Path]
		if !ok {
			continue
		}
		comment(b, indent, v.Above)
		line := indent + k.Name + ":"
		rows, list := v.Value.([]any)
		if k.Kind != KindRows || !list {
			line += " " + flowYAML(v.Value)
			rows = nil
		}
		if v.After != "" {
			line += strings.Repeat(" ", max(2, 40-utf8.RuneCountInString(line))) + "# " + safetext.OneLine(v.After)
		}
		b.WriteString(line + "\n")
		for _, row := range rows {
			b.WriteString(indent + "  - " + flowYAML(row) + "\n")
		}
	}
}

// flowYAML writes a value on one line.
func flowYAML(v any) string {
	n := yamlNode(v)
	text, err := yaml.Marshal(n)
	if err != nil {
		panic(err) // numbers, texts, lists and tables of them
	}
	return strings.TrimSuffix(string(text), "\n")
}

func yamlNode(v any) *yaml.Node {
	n := &yaml.Node{}
	switch v := v.(type) {
	case []any:
		n.Kind, n.Style = yaml.SequenceNode, yaml.FlowStyle
		for _, e := range v {
			n.Content = append(n.Content, yamlNode(e))
		}
	case importer.Map:
		n.Kind, n.Style = yaml.MappingNode, yaml.FlowStyle
		for _, p := range v {
			n.Content = append(n.Content, yamlNode(p.Key), yamlNode(p.Value))
		}
	default:
		if err := n.Encode(v); err != nil {
			panic(err) // basic values alone are set
		}
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool {
			return r < ' ' || r == 0x85 || r == 0x2028 || r == 0x2029
		}) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}
