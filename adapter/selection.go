package adapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// selection is what PEFT's exclude_modules, layers_to_transform and layers_pattern leave of the targets, of a run or of an
// adapter's file.
type selection struct {
	not      *pattern   // exclude_modules as a text: it must match the whole path
	without  []string   // exclude_modules as a list: names, or ends of paths
	only     []int      // layers_to_transform; nil = all
	patterns []*pattern // how a path names its layer's number; nil = the first number, or the last
	last     bool       // a path's last number counts, as in PEFT 0.18
	// noExperts leaves the linear layers of experts out: the file was written where they are parameters. See tensorNames.
	noExperts bool
}

// firstNumber and lastNumber find the number of a layer where no layers_pattern says what stands before it. A path of an
// expert has two numbers: PEFT 0.21 takes the first, PEFT 0.18 the last.
var (
	firstNumber = &pattern{linear: regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)}
	lastNumber  = &pattern{linear: regexp.MustCompile(`^.*\.[^.]*\.(\d+)\.`)}
)

// layerOf finds the number of a layer behind a name or an expression for it: PEFT 0.21's rule of layers_pattern if first
// is set, else PEFT 0.18's.
func layerOf(text string, first bool) (*pattern, error) {
	if first {
		return numbering(`^(?:|.*?\.)`, text)
	}
	return numbering(`^.*\.`, text)
}

// selectionKeys are the keys of adapter_config.json that readSelection reads.
var selectionKeys = []string{"exclude_modules", "layers_to_transform", "layers_pattern"}

func readSelection(keys map[string]json.RawMessage, expression bool, bad func(format string, args ...any)) (s selection) {
	var err error
	s.last = !countsFirst(keys["peft_version"])
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
				p, err := layerOf(text, !s.last)
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

// countsFirst reports whether a file's peft_version is 0.21 or later, by which the first number of a path is its layer's.
func countsFirst(version json.RawMessage) bool {
	var text string
	if json.Unmarshal(version, &text) != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	return major > 0 || minor >= 21
}

// selectionOf returns the selection of an adapter's file, or that of the section's keys.
func selectionOf(c Config) selection {
	if c.selection.narrows() || c.selection.noExperts {
		return c.selection
	}
	return c.lora().selection()
}

// selection returns what exclude_modules, layers_to_transform and layers_pattern leave, by PEFT 0.21's rules. Keys that
// do not validate select nothing.
func (s LoRASettings) selection() (all selection) {
	if re, ok := s.ExcludeModules.expression(); ok {
		all.not, _ = whole(re)
	} else {
		all.without = s.ExcludeModules
	}
	for _, text := range s.LayersToTransform {
		if number, err := strconv.Atoi(text); err == nil {
			all.only = append(all.only, number)
		}
	}
	for _, text := range s.LayersPattern {
		if p, err := layerOf(text, true); err == nil {
			all.patterns = append(all.patterns, p)
		}
	}
	return all
}

// written returns the values of exclude_modules, layers_to_transform and layers_pattern in adapter_config.json; nil = it
// lacks the key. They stand beside target_modules that are the adapted layers' paths, so that every version of PEFT
// adapts the same layers.
func (s LoRASettings) written() (excluded, numbers, patterns any) {
	if re, ok := s.ExcludeModules.expression(); ok {
		excluded = re
	} else if len(s.ExcludeModules) > 0 {
		excluded = s.ExcludeModules
	}
	if only := s.selection().only; len(only) > 0 {
		numbers = only
	}
	if len(s.LayersPattern) > 0 {
		patterns = s.LayersPattern
	}
	return excluded, numbers, patterns
}

// checkSelection returns what is wrong with exclude_modules, layers_to_transform and layers_pattern.
func (s LoRASettings) checkSelection(c Config) (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf("lora."+format, args...)) }
	if re, ok := s.ExcludeModules.expression(); ok {
		if _, err := whole(re); err != nil {
			bad("exclude_modules: %q is no regular expression: %v", re, err)
		}
	}
	for i, name := range s.ExcludeModules {
		if name == "" || name == AllLinear || slices.Contains(s.ExcludeModules[:i], name) {
			bad("exclude_modules: %q is no name of a module, or stands there twice", name)
		}
	}
	for i, text := range s.LayersToTransform {
		if n, err := strconv.Atoi(text); err != nil || n < 0 || slices.Contains(s.LayersToTransform[:i], text) {
			bad("layers_to_transform: %q is no number of a layer, counted from 0, or stands there twice", text)
		}
	}
	for _, text := range s.LayersPattern {
		if _, err := layerOf(text, true); err != nil {
			bad("layers_pattern: %q is no regular expression: %v", text, err)
		}
	}
	_, expression := c.TargetModules.expression()
	switch {
	case len(s.LayersToTransform) > 0 && expression:
		bad("layers_to_transform: it does not go with lora.target_modules that are one regular expression, which "+
			"PEFT refuses too: write the numbers into the expression %q", c.TargetModules[0])
	case len(s.LayersPattern) > 0 && len(s.LayersToTransform) == 0:
		bad("layers_pattern: it says where the numbers of lora.layers_to_transform stand, which is not set")
	}
	return problems
}

// checkSelected refuses numbers of layers of which none is adapted, and exclude_modules that exclude nothing.
func (t *Trained) checkSelected(c Config) error {
	s := c.lora()
	if len(s.ExcludeModules) > 0 && !slices.ContainsFunc(sortedKeys(t.linears), func(weight string) bool {
		return s.selection().excludes(strings.TrimSuffix(weight, weightSuffix))
	}) {
		return fmt.Errorf("lora.exclude_modules: %v matches no linear layer of the model; it has %s",
			[]string(s.ExcludeModules), strings.Join(sortedKeys(t.modules), ", "))
	}
	for _, number := range s.LayersToTransform {
		one := s
		one.LayersToTransform = []string{number}
		if !slices.ContainsFunc(t.Layers, func(path string) bool { return one.selection().keeps(path, false) }) {
			return fmt.Errorf("lora.layers_to_transform: %s is the number of no layer that lora.target_modules %v adapt",
				number, []string(c.TargetModules))
		}
	}
	return nil
}

func (s selection) narrows() bool { return s.not != nil || len(s.without) > 0 || s.only != nil }

// excludes reports whether exclude_modules name a path.
func (s selection) excludes(path string) bool {
	return s.not != nil && s.not.match(path) || slices.ContainsFunc(s.without, func(name string) bool {
		return path == name || strings.HasSuffix(path, "."+name)
	})
}

// keeps reports whether a target stays one. whole says that a target is its whole path, which layers_to_transform does
// not narrow.
func (s selection) keeps(path string, whole bool) bool {
	if s.excludes(path) {
		return false
	}
	if s.only == nil || whole {
		return true
	}
	patterns := s.patterns
	switch {
	case len(patterns) > 0:
	case s.last:
		patterns = []*pattern{lastNumber}
	default:
		patterns = []*pattern{firstNumber}
	}
	for _, p := range patterns {
		if text, ok := p.group(path); ok {
			number, err := strconv.Atoi(text)
			return err == nil && slices.Contains(s.only, number)
		}
	}
	return false
}

// Adapts reports whether a linear layer is adapted: a target that the other keys do not leave out, or one whose weight
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
	return c.TargetModules.Match(path) && selectionOf(c).keeps(path, slices.Contains(c.TargetModules, path))
}

// ByName reports whether what is adapted goes by the layers' own names alone, wherever in the model they are.
func (c Config) ByName() bool {
	_, expression := c.TargetModules.expression()
	return !expression && !selectionOf(c).narrows() &&
		!slices.ContainsFunc(c.TargetModules, func(t string) bool { return strings.Contains(t, ".") })
}
