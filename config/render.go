package config

import (
	"bytes"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/train"
)

// Render writes a configuration out as YAML with every key; a section that is not there is null. Loaded again it is
// the same configuration.
func Render(s train.Spec) []byte {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(Node(s)); err != nil {
		panic(err) // a Spec holds nothing that YAML can't
	}
	return b.Bytes()
}

// render makes the node of a key from the configuration that holds it.
func render(k *Key, root reflect.Value) *yaml.Node {
	n := &yaml.Node{}
	field, err := root.FieldByIndexErr(k.index)
	switch {
	case k == Root:
	case err != nil || field.Kind() == reflect.Pointer && field.IsNil():
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	if k.Kind != KindSection {
		if err := n.Encode(field.Interface()); err != nil {
			panic(err) // numbers, texts, lists and tables of them
		}
		quoteLines(n)
		return n
	}
	n.Kind = yaml.MappingNode
	for _, child := range k.Keys {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: child.Name}, render(child, root))
	}
	return n
}

// quoteLines writes texts of several lines as "a\nb": a block would hide blanks and ends of line.
func quoteLines(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.ContainsAny(n.Value, "\n\r\t\u0085\u2028\u2029") {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quoteLines(c)
	}
}

// WithoutSecrets returns a configuration as others may see it.
func WithoutSecrets(s train.Spec) train.Spec {
	s.Tracking = s.Tracking.Saved()
	return s
}

// Node returns a configuration as a YAML document that has every key.
func Node(s train.Spec) *yaml.Node { return render(Root, reflect.ValueOf(s)) }
