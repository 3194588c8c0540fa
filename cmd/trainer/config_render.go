package main

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/train"
)

// Render writes a configuration out as YAML, every value included. Loaded again it is the same configuration.
func Render(s train.Spec) []byte {
	var doc yaml.Node
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := doc.Encode(s)
	if err == nil {
		quoteLines(&doc)
		err = enc.Encode(&doc)
	}
	if err != nil {
		panic(err) // a Spec holds nothing that YAML can't
	}
	return b.Bytes()
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
