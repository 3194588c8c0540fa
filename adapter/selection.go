package adapter

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// selection is what PEFT's exclude_modules, layers_to_transform and layers_pattern leave of the targets of an adapter's file. Runs of
// this program have none: their target_modules name layers one by one or by an expression.
type selection struct {
	not      *pattern   // exclude_modules as a text: it must match the whole path
	without  []string   // exclude_modules as a list: names, or ends of paths
	only     []int      // layers_to_transform; nil = all
	patterns []*pattern // how a path names its layer's number
	// noExperts leaves the linear layers of experts out: the file was written where they are parameters. See tensorNames.
	noExperts bool
}

// anyNumber finds the number of a layer where no layers_pattern says what stands before it: the path's last, as PEFT has it.
var anyNumber = &pattern{linear: regexp.MustCompile(`^.*\.[^.]*\.(\d+)\.`)}

// selectionKeys are the keys of adapter_config.json that readSelection reads.
var selectionKeys = []string{"exclude_modules", "layers_to_transform", "layers_pattern"}

func readSelection(keys map[string]json.RawMessage, expression bool, bad func(format string, args ...any)) (s selection) {
	var err error
	for _, key := range selectionKeys {
		raw, given := keys[key]
		if !given || isOff(raw) {
			continue
		}
		var text string
		var texts []string
		var number int
		switch isText := json.Unmarshal(raw, &text) == nil; key {
		case "exclude_modules":
			if isText {
				if s.not, err = whole(text); err != nil {
					bad("exclude_modules: %q is no regular expression: %v", text, err)
				}
			} else if json.Unmarshal(raw, &s.without) != nil {
				bad("exclude_modules is %s: no expression and no list of names", bytes.TrimSpace(raw))
			}
		case "layers_to_transform":
			if json.Unmarshal(raw, &number) == nil {
				s.only = []int{number}
			} else if json.Unmarshal(raw, &s.only) != nil {
				bad("layers_to_transform is %s: no number of a layer and no list of them", bytes.TrimSpace(raw))
			}
			if expression {
				bad("layers_to_transform does not go with target_modules that are one expression, as PEFT refuses it too")
			}
		case "layers_pattern":
			if isText {
				texts = []string{text}
			} else if json.Unmarshal(raw, &texts) != nil {
				bad("layers_pattern is %s: no name and no list of names", bytes.TrimSpace(raw))
			}
			for _, text := range texts {
				p, err := numbering(text)
				if err != nil {
					bad("layers_pattern: %q is no regular expression: %v", text, err)
					continue
				}
				s.patterns = append(s.patterns, p)
			}
		}
	}
	return s
}

func (s selection) narrows() bool { return s.not != nil || s.without != nil || s.only != nil }

// keeps tells whether a target stays one; whole = a target is its whole path, which layers_to_transform lets be.
func (s selection) keeps(path string, whole bool) bool {
	if s.not != nil && s.not.match(path) || slices.ContainsFunc(s.without, func(name string) bool { return path == name || strings.HasSuffix(path, "."+name) }) {
		return false
	}
	if s.only == nil || whole {
		return true
	}
	patterns := s.patterns
	if len(patterns) == 0 {
		patterns = []*pattern{anyNumber}
	}
	for _, p := range patterns {
		if text, ok := p.group(path); ok {
			number, err := strconv.Atoi(text)
			return err == nil && slices.Contains(s.only, number)
		}
	}
	return false
}

// Adapts tells whether a linear layer is adapted: a target that the file's other keys do not leave out, or one whose weight
// TargetParameters name.
func (c Config) Adapts(path string) bool {
	if c.parameterMatches(path + weightSuffix) {
		return true
	}
	if c.Saved().exclude(path) {
		return false
	}
	if _, _, _, ok := ExpertLayer(path); ok && c.selection.noExperts {
		return false
	}
	return c.TargetModules.Match(path) && c.selection.keeps(path, slices.Contains(c.TargetModules, path))
}

// ByName tells whether what is adapted goes by the layers' own names alone, wherever in the model they are.
func (c Config) ByName() bool {
	_, expression := c.TargetModules.expression()
	return !expression && !c.selection.narrows() && !slices.ContainsFunc(c.TargetModules, func(t string) bool { return strings.Contains(t, ".") })
}
