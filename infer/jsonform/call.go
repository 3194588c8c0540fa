package jsonform

import (
	"fmt"
	"sort"
)

// Tool is a function that a call may name.
type Tool struct {
	Name       string
	Parameters []byte // JSON Schema of the arguments; nil = any object
}

// Call returns the schema of {"name": NAME, KEY: ARGUMENTS} for one of the tools. With listed, the schema is a list of
// such calls.
func Call(tools []Tool, key string, listed bool) (*Schema, error) {
	type choice struct {
		text string
		node *node
	}
	var all []choice
	for i, t := range tools {
		arguments := Object()
		if t.Parameters != nil {
			s, err := Parse(t.Parameters)
			if err != nil {
				return nil, fmt.Errorf("tools[%d].function.parameters: %w", i, err)
			}
			if arguments = s; !s.root.only(kObject) {
				return nil, fmt.Errorf("tools[%d].function.parameters: want type object", i)
			}
		}
		all = append(all, choice{`{"name": ` + quoted(t.Name) + `, ` + quoted(key) + `: `, arguments.root})
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].text < all[j].text })
	n := &node{kinds: kCalls}
	for i, c := range all {
		if i > 0 && c.text == all[i-1].text {
			return nil, fmt.Errorf("tools: two functions have the same name")
		}
		n.literals, n.values = append(n.literals, c.text), append(n.values, c.node)
	}
	if listed {
		n = &node{kinds: kArray, items: n, least: 1, most: 1}
	}
	return &Schema{n}, nil
}
