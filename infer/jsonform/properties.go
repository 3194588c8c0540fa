package jsonform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// properties reads the keywords of a schema that describe an object's keys.
func (p *parser) properties(n *node, object map[string]json.RawMessage, at string, depth int) error {
	props, required := map[string]json.RawMessage{}, []string{}
	if v, ok := object["properties"]; ok && (json.Unmarshal(v, &props) != nil || props == nil) {
		return fmt.Errorf("%s.properties: want an object", at)
	}
	if v, ok := object["required"]; ok && json.Unmarshal(v, &required) != nil {
		return fmt.Errorf("%s.required: want a list of names", at)
	}
	if v, ok := object["additionalProperties"]; ok {
		if n.more = nil; string(bytes.TrimSpace(v)) != "false" {
			var err error
			if n.more, err = p.node(v, at+".additionalProperties", depth+1); err != nil {
				return err
			}
		}
	}
	for _, name := range required {
		if _, ok := props[name]; !ok {
			if n.more == nil {
				return fmt.Errorf("%s.required: %q is not among properties, and additionalProperties allows no others",
					at, name)
			}
			props[name] = nil // its schema is additionalProperties
		}
	}
	if len(props) > maxProperties {
		return fmt.Errorf("%s.properties: there are %d, more than the limit of %d", at, len(props), maxProperties)
	}
	type property struct {
		key  string
		node *node
		must bool
	}
	var all []property
	for _, name := range sortedKeys(props) {
		v := n.more
		if props[name] != nil {
			var err error
			if v, err = p.node(props[name], at+".properties."+name, depth+1); err != nil {
				return err
			}
		}
		key := quoted(name)
		if len(key) > maxKey {
			return fmt.Errorf("%s.properties: a name has %d bytes, more than the limit of %d", at, len(key), maxKey)
		}
		all = append(all, property{key, v, slices.Contains(required, name)})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].key < all[j].key })
	for i, x := range all {
		if n.keys, n.values = append(n.keys, x.key), append(n.values, x.node); x.must {
			n.required |= 1 << i
		}
	}
	return nil
}

// all returns the set of all keys.
func (n *node) all() uint64 { return 1<<len(n.keys) - 1 }

// left returns the number of keys that are not in the set seen.
func (n *node) left(seen uint64) int { return bits.OnesCount64(n.all() &^ seen) }

func readKinds(v json.RawMessage, at string) (kinds, error) {
	var names []string
	var one string
	if json.Unmarshal(v, &one) == nil {
		names = []string{one}
	} else if json.Unmarshal(v, &names) != nil || len(names) == 0 {
		return 0, fmt.Errorf("%s: want a type or a list of types", at)
	}
	var set kinds
	for _, name := range names {
		k, ok := kindNames[name]
		if !ok {
			return 0, fmt.Errorf("%s: unknown type %.40q", at, name)
		}
		set |= k
	}
	return set, nil
}

func readCount(v json.RawMessage, at string) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(v)))
	if err != nil || n < 0 || n > 1_000_000 {
		return 0, fmt.Errorf("%s: want a whole number from 0 to 1000000", at)
	}
	return n, nil
}

// literals returns values as an answer may write them, sorted.
func literals(all []json.RawMessage, at string) ([]string, error) {
	var texts []string
	for _, v := range all {
		var compact bytes.Buffer
		if err := json.Compact(&compact, v); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		text := compact.String()
		if text[0] == '"' {
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			text = quoted(s)
		}
		texts = append(texts, text)
	}
	if len(texts) > maxLiterals {
		return nil, fmt.Errorf("%s: there are %d values, more than the limit of %d", at, len(texts), maxLiterals)
	}
	slices.Sort(texts)
	return slices.Compact(texts), nil
}

// quoted returns a string as JSON with the fewest escapes.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // encoding a string cannot fail
	return strings.TrimRight(b.String(), "\n")
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
