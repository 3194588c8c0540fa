package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report/live"
	"github.com/tierlora/tierlora/train"
)

// checkedText checks a configuration as a run would read it.
func checkedText(text []byte) live.Checked {
	config, problems := mergeConfig("configuration", text, os.Environ(), nil)
	sortProblems(problems)
	checked := live.Checked{Notes: config.Notes, OutputDir: config.Spec.OutputDir, Values: map[string]string{}}
	if hint := otherProgram("FILE", text); len(problems) > 0 && hint != "" {
		checked.Problems = append(checked.Problems, live.Problem{Message: strings.TrimPrefix(hint, "; ")})
	}
	for _, p := range problems {
		key := pathOf(p.text)
		if found, _ := schema.find(key); found == schema {
			key = ""
		}
		checked.Problems = append(checked.Problems, live.Problem{Key: key, Line: p.at.line, Message: p.text})
	}
	if len(problems) == 0 {
		if err := checkDevice(config.Spec); err != nil {
			checked.Problems = append(checked.Problems, live.Problem{Key: "device", Message: err.Error()})
		}
		if err := train.CheckTrackers(config.Spec); errors.Is(err, atomicfile.ErrNotOurs) { // what the environment lacks is not known here
			checked.Problems = append(checked.Problems, live.Problem{Key: "tracking.metrics_file", Message: safetext.Mask(err.Error())})
		}
	}
	if given, err := settingsOf(text); err == nil {
		for _, s := range given {
			checked.Values[s.Key] = s.Value
		}
	}
	return checked
}

// fields are the keys that a form has: all whose value is one line.
func fields() []live.Field {
	defaults, required := defaultValues(), requiredKeys()
	var all []live.Field
	for _, k := range schema.leaves() {
		if k.kind == kindTable || k.kind == kindRows {
			continue
		}
		f := live.Field{Key: k.path, Kind: "text", About: strings.ReplaceAll(descriptions[k.path], "`", ""), Required: required[k.path] && instead[k.path] == ""}
		switch k.kind {
		case kindWhole, kindUnsigned, kindNumber:
			f.Kind = "number"
		case kindTruth:
			f.Choices = []string{"true", "false"}
		case kindList:
		default:
			for _, c := range choices[k.path] {
				f.Choices = append(f.Choices, fmt.Sprint(c))
			}
		}
		if v, ok := defaults[k.path]; ok {
			f.Default = strings.Trim(fmt.Sprint(v), "[]")
		}
		all = append(all, f)
	}
	return all
}

// templates are the configurations in the program, as a form begins with them: first the one that any machine trains.
func templates() []live.Template {
	names := []string{"cpu_stories_quick"}
	for _, name := range append(configs.Examples(), configs.Names()...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var all []live.Template
	for _, name := range names {
		if text, ok := configs.Read(name); ok {
			all = append(all, live.Template{Name: name, About: headline(text), Text: string(bytes.TrimSpace(withoutSchemaLine(text))) + "\n"})
		}
	}
	return all
}

// editText sets a key of a configuration's text, or takes it out where value is empty. Comments stay; where a value on
// one line is replaced, all else does.
func editText(text []byte, path, value string) ([]byte, error) {
	k, rest := schema.find(path)
	if rest != "" || k.kind == kindSection || k.kind == kindTable || k.kind == kindRows {
		return nil, fmt.Errorf("%s is no key with one value: change the text", path)
	}
	if len(text) > maxConfigBytes {
		return nil, fmt.Errorf("a configuration has at most %d bytes", maxConfigBytes)
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
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &yaml.Node{Kind: yaml.MappingNode})
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
func valueNode(k *key, value string) *yaml.Node {
	if k.kind == kindList && strings.Contains(value, ";") {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, v := range strings.Split(value, ";") {
			list.Content = append(list.Content, textNode(strings.TrimSpace(v)))
		}
		return list
	}
	switch k.kind {
	case kindText, kindList:
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
