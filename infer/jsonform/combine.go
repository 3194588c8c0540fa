package jsonform

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

const (
	maxAlternatives = 64
	never           = 1 << 30 // the depth of a value that no text matches
)

// combiners are the keywords that build a schema from other schemas.
var combiners = []string{"$ref", "allOf", "anyOf", "oneOf"}

// reference is a $ref whose definition is not read yet.
type reference struct {
	name, at string
	node     *node
}

// oneOf lists alternatives that must not overlap: no value may match two of them.
type oneOf struct {
	node   *node
	groups [][]*node // the alternatives of each group
	at     string
	key    string // the discriminator's property name as JSON; "" = none
}

// combined reads a schema that is built from others. Beside a combining keyword it accepts only annotations.
func (p *parser) combined(n *node, object map[string]json.RawMessage, key, at string, depth int) (*node, error) {
	for _, other := range sortedKeys(object) {
		if other != key && !slices.Contains(annotations, other) {
			return nil, fmt.Errorf("%s.%s: is not supported beside %s", at, other, key)
		}
	}
	where := at + "." + key
	if key == "$ref" {
		target, err := p.ref(object[key], where)
		n.any = []*node{target}
		return n, err
	}
	all, err := p.nodes(object[key], where, depth)
	switch {
	case err != nil:
		return nil, err
	case key == "allOf" && len(all) > 1:
		return nil, fmt.Errorf("%s: is supported with exactly one schema, got %d", where, len(all))
	case len(all) > maxAlternatives:
		return nil, fmt.Errorf("%s: there are %d schemas, more than %d", where, len(all), maxAlternatives)
	}
	if n.any = all; key == "oneOf" {
		one := oneOf{node: n, at: where}
		var d struct {
			Name string `json:"propertyName"`
		}
		if v := object["discriminator"]; v != nil && json.Unmarshal(v, &d) == nil && d.Name != "" {
			one.key = quoted(d.Name)
		}
		p.oneOfs = append(p.oneOfs, one)
	}
	return n, nil
}

// ref returns the node that a $ref names. The definition may be read later.
func (p *parser) ref(value json.RawMessage, at string) (*node, error) {
	var name string
	if json.Unmarshal(value, &name) != nil {
		return nil, fmt.Errorf("%s: want a string", at)
	}
	if n := p.refs[name]; n != nil {
		return n, nil
	}
	n := &node{}
	p.all = append(p.all, n)
	p.refs[name] = n
	p.queue = append(p.queue, reference{name, at, n})
	return n, nil
}

// definition returns the JSON text of the schema that a $ref names.
func (p *parser) definition(r reference) ([]byte, error) {
	section, name, _ := strings.Cut(strings.TrimPrefix(r.name, "#/"), "/")
	if section != "$defs" && section != "definitions" || !strings.HasPrefix(r.name, "#/") ||
		strings.Contains(name, "/") {
		return nil, fmt.Errorf("%s: %.80q is not supported; a reference is #, #/$defs/NAME or #/definitions/NAME", r.at,
			r.name)
	}
	all, read := p.sections[section]
	if v := p.root[section]; v != nil && !read {
		if json.Unmarshal(v, &all) != nil {
			return nil, fmt.Errorf("schema.%s: want an object", section)
		}
		p.sections[section] = all
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	text, ok := all[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	if !ok {
		return nil, fmt.Errorf("%s: there is no %.80q", r.at, r.name)
	}
	return text, nil
}

// resolve reads all referenced definitions, then computes the alternatives and depths of all nodes. It returns the root
// node.
func (p *parser) resolve(root *node) (*node, error) {
	for i := 0; i < len(p.queue); i++ {
		r := p.queue[i]
		if r.name == "#" {
			r.node.any = []*node{root}
			continue
		}
		text, err := p.definition(r)
		if err != nil {
			return nil, err
		}
		n, err := p.node(text, "schema."+strings.ReplaceAll(strings.TrimPrefix(r.name, "#/"), "/", "."), 0)
		if err != nil {
			return nil, err
		}
		r.node.any = []*node{n}
	}
	if p.inner && len(p.refs) > 0 {
		return nil, fmt.Errorf("schema: references beside an $id below the root are not supported; remove the $id")
	}
	if err := p.flatten(); err != nil {
		return nil, err
	}
	p.measure()
	if root.low > maxDepth-2 { // a call adds two levels
		return nil,
			fmt.Errorf("schema: no finite value matches: one must contain itself, or nest deeper than %d levels",
				maxDepth-2)
	}
	if err := p.apart(); err != nil {
		return nil, err
	}
	return settled(root), nil
}

// flatten replaces each alternative that has alternatives itself by these.
func (p *parser) flatten() error {
	oneOfs := map[*node]*oneOf{}
	for i := range p.oneOfs {
		oneOfs[p.oneOfs[i].node] = &p.oneOfs[i]
	}
	const begun, done = 1, 2
	seen := map[*node]int{}
	var flat func(n *node) ([]*node, error)
	flat = func(n *node) ([]*node, error) {
		if n.any == nil {
			return []*node{n}, nil
		}
		if seen[n] == done {
			return n.any, nil
		}
		if seen[n] == begun {
			return nil, fmt.Errorf("schema: a $ref leads back to itself with no property or item between")
		}
		seen[n] = begun
		one := oneOfs[n]
		var all []*node
		for _, part := range n.any {
			group, err := flat(part)
			if err != nil {
				return nil, err
			}
			if one != nil {
				if one.key != "" {
					group = p.discriminated(group, one.key)
				}
				one.groups = append(one.groups, group)
			}
			for _, x := range group {
				if !slices.Contains(all, x) {
					all = append(all, x)
				}
			}
			if len(all) > maxAlternatives {
				return nil, fmt.Errorf("schema: a value has more than %d alternatives", maxAlternatives)
			}
		}
		n.any, seen[n] = all, done
		return all, nil
	}
	for _, n := range slices.Clone(p.all) {
		if _, err := flat(n); err != nil {
			return err
		}
	}
	return nil
}

// discriminated returns the alternatives that may share a oneOf group. Their objects must have the property key, if
// they define it: a schema may leave out a property that has a default.
func (p *parser) discriminated(group []*node, key string) []*node {
	all := slices.Clone(group)
	for i, n := range all {
		if at, ok := slices.BinarySearch(n.keys, key); ok && n.kinds == kObject && n.literals == nil {
			c := *n
			c.required |= 1 << at
			all[i] = &c
			p.all = append(p.all, &c)
		}
	}
	return all
}

// measure computes the least depth of all nodes, starting from depth zero, and removes alternatives that no finite
// value matches.
func (p *parser) measure() {
	for _, n := range p.all {
		n.low, n.lowList, n.lowObject = never, never, never
	}
	for changed := true; changed; {
		changed = false
		for _, n := range p.all {
			before := n.low + n.lowList + n.lowObject
			n.levels()
			changed = changed || n.low+n.lowList+n.lowObject != before
		}
	}
	for _, n := range p.all {
		if n.any != nil { // a copy: oneOfs share the old list
			left := []*node{}
			for _, x := range n.any {
				if x.low < never {
					left = append(left, x)
				}
			}
			n.any = left
			continue
		}
		n.more, n.items = settled(n.more), settled(n.items)
		for _, list := range [][]*node{n.values, n.prefix} {
			for i := range list {
				list[i] = settled(list[i])
			}
		}
		for _, x := range append(append([]*node{n.more, n.items}, n.values...), n.prefix...) {
			if x != nil {
				n.tallest = max(n.tallest, x.low)
			}
		}
	}
}

// settled returns a node's only alternative, or the node itself.
func settled(n *node) *node {
	if n != nil && len(n.any) == 1 {
		return n.any[0]
	}
	return n
}

// levels computes a node's least depth from the depths of its children.
func (n *node) levels() {
	above := func(low int) int {
		if low >= maxDepth {
			return never
		}
		return low + 1
	}
	if n.any != nil {
		n.low = never
		for _, x := range n.any {
			n.low = min(n.low, x.low)
		}
		return
	}
	if n.literals != nil || n.kinds&^(kObject|kArray) != 0 {
		n.low = 0
	}
	if n.kinds&kObject != 0 {
		most := 0
		for i, v := range n.values {
			if n.required>>i&1 != 0 {
				most = max(most, v.low)
			}
		}
		n.lowObject = above(most)
	}
	if n.kinds&kArray != 0 {
		most := 0
		for i := range min(n.least, len(n.prefix)+1) {
			most = max(most, n.item(i).low)
		}
		n.lowList = above(most)
	}
	n.low = min(n.low, n.lowObject, n.lowList)
}
