package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// tuiNumberRows is the largest number of lines of the dashboard that the objective's numbers take.
const tuiNumberRows = 4

// item is a number of the objective with its name, for people.
type item struct {
	name  string
	value float64
}

// items returns the numbers of sampled answers, where there are some, and the objective's numbers that tables list.
// prefix begins the names of the latter in values.
func (p *progress) items(values train.Values, prefix string) (all []item) {
	add := func(name, shown string) {
		i := slices.IndexFunc(values, func(v objective.Value) bool { return v.Name == name })
		if i >= 0 {
			all = append(all, item{shown, values[i].Value})
		}
	}
	if prefix == "" {
		for _, name := range []string{"reward", "reward_std", "completions/mean_length", "completions/clipped_ratio"} {
			add(name, strings.TrimPrefix(name, "completions/"))
		}
	}
	for _, n := range p.numbers {
		if n.Listed() {
			add(prefix+n.Name, n.Name)
		}
	}
	return all
}

// named formats the numbers of items for the end of a line.
func (p *progress) named(values train.Values, prefix string) (text string) {
	for _, x := range p.items(values, prefix) {
		text += fmt.Sprintf("  %s %.4g", x.name, x.value)
	}
	return text
}

// numberLines returns the objective's newest numbers, each with that of the last evaluation in brackets, in lines of so
// many columns that break between numbers. What does not fit into the given number of lines is left out.
func (t *tui) numberLines(columns, most int) (lines []string) {
	evaluated := map[string]float64{}
	for _, x := range t.evaluated {
		evaluated[x.name] = x.value
	}
	shown := t.numbers
	if len(shown) == 0 {
		shown = t.evaluated
	}
	for _, x := range shown {
		text := fmt.Sprintf("%s %.4g", x.name, x.value)
		if v, ok := evaluated[x.name]; ok && len(t.numbers) > 0 {
			text += fmt.Sprintf(" (eval %.4g)", v)
		}
		if n := len(lines); n > 0 && len(lines[n-1])+2+len(text) <= columns {
			lines[n-1] += "  " + text
		} else if n == most {
			break
		} else {
			lines = append(lines, fitted(text, columns))
		}
	}
	return lines
}
