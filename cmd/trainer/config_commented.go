package main

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/importer"
)

// commented is a value of a configuration that is written for people, with what is said of it.
type commented struct {
	path  string
	value any      // a basic value, a []any, or an importer.Map
	above []string // lines of comment above the key
	after string   // a comment behind the value
}

// commentedYAML writes values in the order of the keys' reference, with head and tail as comments around them.
func commentedYAML(head []string, values []commented, tail []string) []byte {
	byPath := map[string]commented{}
	for _, v := range values {
		byPath[v.path] = v
	}
	var b bytes.Buffer
	comment(&b, "", head)
	writeCommented(&b, schema, byPath, "")
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
		b.WriteString(indent + "# " + oneLine(line) + "\n")
	}
}

// oneLine escapes what would end a comment.
func oneLine(s string) string {
	return strings.ReplaceAll(visible(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\n", " ")), "\n", " ")
}

func writeCommented(b *bytes.Buffer, section *key, values map[string]commented, indent string) {
	for _, k := range section.keys {
		if k.kind == kindSection {
			var inner bytes.Buffer
			writeCommented(&inner, k, values, indent+"  ")
			v := values[k.path]
			if inner.Len() > 0 {
				comment(b, indent, v.above)
				b.WriteString(indent + k.name + ":\n")
				b.Write(inner.Bytes())
			}
			continue
		}
		v, ok := values[k.path]
		if !ok {
			continue
		}
		comment(b, indent, v.above)
		line := indent + k.name + ":"
		rows, list := v.value.([]any)
		if k.kind != kindRows || !list {
			line += " " + flowYAML(v.value)
			rows = nil
		}
		if v.after != "" {
			line += strings.Repeat(" ", max(2, 40-utf8.RuneCountInString(line))) + "# " + oneLine(v.after)
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
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x85 || r == 0x2028 || r == 0x2029 }) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}
