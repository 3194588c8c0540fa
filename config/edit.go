package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Edit sets a key in the text of a configuration, or removes it where value is empty. Comments stay; where a value on
// one line is replaced, all else does.
func Edit(text []byte, path, value string) ([]byte, error) {
	k, rest := Root.Find(path)
	if rest != "" || k.Kind == KindSection || k.Kind == KindTable || k.Kind == KindRows {
		return nil, fmt.Errorf("%s is no key with one value: change the text", path)
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a configuration has at most %d bytes", MaxBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: the text is no YAML, mend it first: %w", path, err)
	}
	if doc.Kind == 0 || len(doc.Content) == 0 {
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	at := doc.Content[0]
	names := strings.Split(path, ".")
	for i, name := range names {
		if at.Kind == yaml.ScalarNode && at.Tag == "!!null" {
			*at = yaml.Node{Kind: yaml.MappingNode}
		}
		if at.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("%s: the text has no section there, mend it first", path)
		}
		j := 0
		for j < len(at.Content) && at.Content[j].Value != name {
			j += 2
		}
		if i == len(names)-1 {
			if value == "" {
				if j < len(at.Content) {
					at.Content = append(at.Content[:j], at.Content[j+2:]...)
				}
				break
			}
			node := valueNode(k, value)
			if j < len(at.Content) {
				if out, ok := replaced(text, at.Content[j+1], node); ok {
					return out, nil
				}
				node.LineComment = at.Content[j+1].LineComment
				at.Content[j+1] = node
				break
			}
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, node)
			break
		}
		if j >= len(at.Content) {
			if value == "" {
				return text, nil
			}
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name},
				&yaml.Node{Kind: yaml.MappingNode})
		}
		at = at.Content[j+1]
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b.Bytes(), nil
}

// valueNode is a value as a field gives it. Members of a list have semicolons between them.
func valueNode(k *Key, value string) *yaml.Node {
	if k.Kind == KindList && strings.Contains(value, ";") {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, v := range strings.Split(value, ";") {
			list.Content = append(list.Content, textNode(strings.TrimSpace(v)))
		}
		return list
	}
	switch k.Kind {
	case KindText, KindList:
		return textNode(value)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(value)} // what is no number the check refuses
}

func textNode(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)
	quoteLines(n)
	return n
}

// replaced puts a value in the place of another one where both are a word on one line.
func replaced(text []byte, old, value *yaml.Node) ([]byte, bool) {
	if old.Kind != yaml.ScalarNode || old.Style != 0 || old.Line < 1 || old.Value == "" || old.Anchor != "" {
		return nil, false
	}
	word, err := yaml.Marshal(value)
	if err != nil || bytes.Count(word, []byte("\n")) != 1 {
		return nil, false
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if old.Line > len(lines) {
		return nil, false
	}
	line := lines[old.Line-1]
	runes := []rune(string(line))
	if old.Column < 1 || old.Column > len(runes) {
		return nil, false
	}
	before, after := string(runes[:old.Column-1]), string(runes[old.Column-1:])
	if !strings.HasPrefix(after, old.Value) {
		return nil, false
	}
	lines[old.Line-1] = []byte(before + strings.TrimSuffix(string(word), "\n") + after[len(old.Value):])
	out := bytes.Join(lines, nil)
	var check yaml.Node // in {a: b} a word may not have a comma
	return out, yaml.Unmarshal(out, &check) == nil && !strings.ContainsAny(string(word), ",[]{}#")
}
