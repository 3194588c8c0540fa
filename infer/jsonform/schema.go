// Package jsonform keeps an answer to JSON of a form: it tells which tokens can continue a text so that it becomes a JSON
// value that a schema allows.
//
// A Schema is read once, an Acceptor follows one text byte by byte, and a Vocabulary walks the bytes of all tokens with
// an Acceptor.
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

// Bounds of a schema.
const (
	maxSchemaDepth = 32
	maxProperties  = 64 // of an object: a set of them is a machine word
	maxLiterals    = 1000
	maxNodes       = 5000
)

// kinds of values, a set.
type kinds uint8

const (
	kObject kinds = 1 << iota
	kArray
	kString
	kNumber
	kInteger
	kBoolean
	kNull
	kCalls // one of several texts, each followed by a value of its own and a brace: a call of a tool
)

const anyKind = kObject | kArray | kString | kNumber | kBoolean | kNull

var kindNames = map[string]kinds{"object": kObject, "array": kArray, "string": kString, "number": kNumber, "integer": kInteger, "boolean": kBoolean, "null": kNull}

// node is what a schema says of a value.
type node struct {
	kinds    kinds
	keys     []string // JSON texts of the properties' names, sorted
	values   []*node  // of keys; of kCalls the values behind literals
	required uint64   // of keys
	more     *node    // of other keys; nil = there are none
	items    *node
	least    int // items
	most     int // items; -1 = any number
	literals []string
}

var anyValue = newAny()

// newAny is a value of any form, within it the same.
func newAny() *node {
	n := &node{kinds: anyKind, most: -1}
	n.items, n.more = n, n
	return n
}

// Schema is the form of a JSON value.
type Schema struct{ root *node }

// Object is any JSON object.
func Object() *Schema { return &Schema{&node{kinds: kObject, more: anyValue, most: -1}} }

// annotations change no form.
var annotations = []string{"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}

// Parse reads a JSON Schema. What is not among type, properties, required, additionalProperties, items, minItems,
// maxItems, enum and const is an error that names it.
func Parse(text []byte) (*Schema, error) {
	p := &parser{}
	n, err := p.node(text, "schema", 0)
	if err != nil {
		return nil, err
	}
	if n.kinds&^(kObject|kArray) != 0 || n.literals != nil {
		return nil, fmt.Errorf("schema: want type object or array, since the end of other values can't be told")
	}
	return &Schema{n}, nil
}

type parser struct{ nodes int }

func (p *parser) node(text []byte, at string, depth int) (*node, error) {
	if p.nodes++; p.nodes > maxNodes || depth > maxSchemaDepth {
		return nil, fmt.Errorf("%s: the schema is nested deeper than %d levels or has more than %d parts", at, maxSchemaDepth, maxNodes)
	}
	text = bytes.TrimSpace(text)
	if string(text) == "true" {
		return anyValue, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, fmt.Errorf("%s: want an object", at)
	}
	n := &node{kinds: anyKind, most: -1, items: anyValue, more: anyValue}
	for _, key := range sortedKeys(object) {
		value, where := object[key], at+"."+key
		var err error
		switch key {
		case "type":
			n.kinds, err = readKinds(value, where)
		case "properties", "required", "additionalProperties": // below, together
		case "items":
			n.items, err = p.node(value, where, depth+1)
		case "minItems":
			n.least, err = readCount(value, where)
		case "maxItems":
			n.most, err = readCount(value, where)
		case "enum":
			var all []json.RawMessage
			if json.Unmarshal(value, &all) != nil || len(all) == 0 {
				return nil, fmt.Errorf("%s: want a list of values", where)
			}
			n.literals, err = literals(all, where)
		case "const":
			n.literals, err = literals([]json.RawMessage{value}, where)
		default:
			if !slices.Contains(annotations, key) {
				return nil, fmt.Errorf("%s: is not supported; a schema may have type, properties, required, additionalProperties, items, minItems, maxItems, enum and const", where)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if n.most >= 0 && n.least > n.most {
		return nil, fmt.Errorf("%s: minItems is %d and maxItems %d", at, n.least, n.most)
	}
	if n.literals != nil {
		return n, n.onlyOf(at)
	}
	return n, p.properties(n, object, at, depth)
}

// onlyOf leaves the literals of the kinds that type names.
func (n *node) onlyOf(at string) error {
	n.literals = slices.DeleteFunc(n.literals, func(text string) bool {
		switch c := text[0]; {
		case c == '"':
			return n.kinds&kString == 0
		case c == 't' || c == 'f':
			return n.kinds&kBoolean == 0
		case c == 'n':
			return n.kinds&kNull == 0
		}
		return n.kinds&kNumber == 0 && (n.kinds&kInteger == 0 || strings.ContainsAny(text, ".eE"))
	})
	if len(n.literals) == 0 {
		return fmt.Errorf("%s: no value of enum has the type", at)
	}
	return nil
}

// properties reads what a schema says of an object's keys.
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
				return fmt.Errorf("%s.required: %q is no property, and additionalProperties allows no other", at, name)
			}
			props[name] = json.RawMessage("true")
		}
	}
	if len(props) > maxProperties {
		return fmt.Errorf("%s.properties: there are %d, more than %d", at, len(props), maxProperties)
	}
	type property struct {
		key  string
		node *node
		must bool
	}
	var all []property
	for _, name := range sortedKeys(props) {
		v, err := p.node(props[name], at+".properties."+name, depth+1)
		if err != nil {
			return err
		}
		all = append(all, property{quoted(name), v, slices.Contains(required, name)})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].key < all[j].key })
	for i, x := range all {
		if n.keys, n.values = append(n.keys, x.key), append(n.values, x.node); x.must {
			n.required |= 1 << i
		}
	}
	return nil
}

// all is the set of all keys.
func (n *node) all() uint64 { return 1<<len(n.keys) - 1 }

// left is how many keys are not in a set.
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
			return 0, fmt.Errorf("%s: there is no type %.40q", at, name)
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

// literals are values as the answer may write them, sorted.
func literals(all []json.RawMessage, at string) ([]string, error) {
	var texts []string
	for _, v := range all {
		v = bytes.TrimSpace(v)
		if len(v) == 0 || v[0] == '{' || v[0] == '[' {
			return nil, fmt.Errorf("%s: objects and lists among the values are not supported", at)
		}
		text := string(v)
		if v[0] == '"' {
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			text = quoted(s)
		}
		texts = append(texts, text)
	}
	if len(texts) > maxLiterals {
		return nil, fmt.Errorf("%s: there are %d values, more than %d", at, len(texts), maxLiterals)
	}
	slices.Sort(texts)
	return slices.Compact(texts), nil
}

// quoted is a text in JSON, with no more escapes than there have to be.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can be encoded
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

// Tool is a function that a call may name.
type Tool struct {
	Name       string
	Parameters []byte // a JSON Schema; nil = any object
}

// Call is {"name": NAME, KEY: ARGUMENTS} of one of some tools, within a list where listed says so.
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
			if arguments = s; s.root.kinds != kObject {
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
