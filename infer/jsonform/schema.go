// Package jsonform constrains generated text to JSON: it determines which tokens can continue a text so that it becomes
// a JSON value that matches a JSON Schema (structured outputs).
//
// A Schema is parsed once. An Acceptor follows one text byte by byte. A Vocabulary walks the bytes of all tokens with
// an Acceptor and masks the logits of tokens that cannot follow.
package jsonform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Bounds of a schema.
const (
	maxSchemaDepth = 32
	maxProperties  = 64 // of one object: a set of them is one machine word
	maxLiterals    = 1000
	maxNodes       = 5000
)

// kinds is a set of kinds of values.
type kinds uint8

const (
	kObject kinds = 1 << iota
	kArray
	kString
	kNumber
	kInteger
	kBoolean
	kNull
	kCalls // a tool call: one of several literals, each followed by a value of its own and a brace
)

const anyKind = kObject | kArray | kString | kNumber | kBoolean | kNull

var kindNames = map[string]kinds{"object": kObject, "array": kArray, "string": kString, "number": kNumber,
	"integer": kInteger, "boolean": kBoolean, "null": kNull}

// node is the compiled schema of a value.
type node struct {
	kinds    kinds
	keys     []string // property names as JSON texts, sorted
	values   []*node  // schemas of keys; for kCalls, of the values after each literal
	required uint64   // set of the required keys
	more     *node    // schema of other keys; nil = other keys are forbidden
	items    *node
	least    int     // least number of items
	most     int     // most items; -1 = no limit
	prefix   []*node // schemas of the first items
	literals []string
	format   *format     // format of strings; nil = any
	states   []formState // automaton of format

	// alternatives, one of which the value must match; they have no alternatives themselves. If it is set, no other
	// field counts.
	any []*node

	low, lowList, lowObject int // least depth, in levels of lists and objects, of any value, of a list and of an object
	tallest                 int // largest depth that a value within it needs at least
}

var anyValue = newAny()

// newAny returns the node of any value.
func newAny() *node {
	n := &node{kinds: anyKind, most: -1, lowList: 1, lowObject: 1}
	n.items, n.more = n, n
	return n
}

// Schema is a compiled JSON Schema.
type Schema struct{ root *node }

// Object returns the schema of any JSON object.
func Object() *Schema {
	return &Schema{&node{kinds: kObject, more: anyValue, items: anyValue, most: -1, low: 1, lowObject: 1}}
}

// annotations are keywords that do not constrain values; nullable and discriminator are OpenAPI's. A nullable value is
// never written as null.
var annotations = []string{"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default",
	"examples", "deprecated",
	"readOnly", "writeOnly", "nullable", "discriminator"}

const known = "type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, " +
	"const, format, anyOf, " +
	"oneOf, allOf with one schema, and $ref to $defs"

// Parse compiles a JSON Schema. It returns an error that names the keyword if a keyword is not among known.
func Parse(text []byte) (*Schema, error) {
	p := &parser{refs: map[string]*node{}, sections: map[string]map[string]json.RawMessage{}}
	if err := json.Unmarshal(text, &p.root); err != nil || p.root == nil {
		return nil, fmt.Errorf("schema: want an object")
	}
	n, err := p.node(text, "schema", 0)
	if err != nil {
		return nil, err
	}
	if n, err = p.resolve(n); err != nil {
		return nil, err
	}
	if !n.only(kObject | kArray) {
		return nil, fmt.Errorf("schema: want type object or array: the end of other values cannot be recognised")
	}
	return &Schema{n}, nil
}

// only reports whether every value of the node has one of the kinds in set, and the node has no literals.
func (n *node) only(set kinds) bool {
	for _, one := range n.any {
		if !one.only(set) {
			return false
		}
	}
	return n.any != nil || n.kinds&^set == 0 && n.literals == nil
}

// parser compiles a schema: first node by node, then the referenced definitions, then the properties that depend on all
// nodes.
type parser struct {
	root     map[string]json.RawMessage
	all      []*node
	refs     map[string]*node
	queue    []reference
	oneOfs   []oneOf
	sections map[string]map[string]json.RawMessage // sections of definitions
	inner    bool                                  // a schema below the root has its own $id
}

func (p *parser) node(text []byte, at string, depth int) (*node, error) {
	if len(p.all) >= maxNodes || depth > maxSchemaDepth {
		return nil, fmt.Errorf("%s: the schema is nested deeper than %d levels or has more than %d nodes", at,
			maxSchemaDepth, maxNodes)
	}
	n := &node{kinds: anyKind, most: -1, items: anyValue, more: anyValue}
	p.all = append(p.all, n)
	switch text = bytes.TrimSpace(text); string(text) {
	case "true":
		return anyValue, nil
	case "false":
		n.kinds = 0
		return n, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, fmt.Errorf("%s: want an object", at)
	}
	p.inner = p.inner || depth > 0 && object["$id"] != nil
	for _, key := range combiners {
		if object[key] != nil {
			return p.combined(n, object, key, at, depth)
		}
	}
	for _, key := range sortedKeys(object) {
		if err := p.keyword(n, key, object, at, depth); err != nil {
			return nil, err
		}
	}
	if n.most >= 0 && n.least > n.most {
		return nil, fmt.Errorf("%s: minItems is %d and maxItems %d", at, n.least, n.most)
	}
	if err := n.checkFormat(object, at); err != nil {
		return nil, err
	}
	if n.literals != nil {
		return n, n.onlyOf(object, at)
	}
	return n, p.properties(n, object, at, depth)
}

func (p *parser) keyword(n *node, key string, object map[string]json.RawMessage, at string, depth int) (err error) {
	value, where := object[key], at+"."+key
	switch key {
	case "type":
		n.kinds, err = readKinds(value, where)
	case "properties", "required", "additionalProperties": // p.properties reads these together
	case "items":
		n.items, err = p.node(value, where, depth+1)
	case "prefixItems":
		if v := p.root["$schema"]; v != nil && !bytes.Contains(v, []byte("2020-12")) {
			return fmt.Errorf("%s: needs JSON Schema 2020-12, and $schema is %.80s", where, v)
		}
		n.prefix, err = p.nodes(value, where, depth)
	case "minItems":
		n.least, err = readCount(value, where)
	case "maxItems":
		n.most, err = readCount(value, where)
	case "format":
		if n.format, err = readFormat(value, where); err == nil {
			n.states = n.format.made()
		}
	case "enum", "const":
		all := []json.RawMessage{value}
		if key == "enum" && (json.Unmarshal(value, &all) != nil || len(all) == 0) {
			return fmt.Errorf("%s: want a list of values", where)
		}
		before := n.literals
		n.literals, err = literals(all, where)
		if before != nil { // both const and enum
			n.literals = slices.DeleteFunc(n.literals, func(text string) bool { return !slices.Contains(before, text) })
		}
	default:
		if !slices.Contains(annotations, key) {
			return fmt.Errorf("%s: is not supported; supported are %s", where, known)
		}
	}
	return err
}

// nodes reads a list of schemas.
func (p *parser) nodes(text []byte, at string, depth int) ([]*node, error) {
	var all []json.RawMessage
	if json.Unmarshal(text, &all) != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s: want a list of schemas", at)
	}
	nodes := make([]*node, len(all))
	for i, one := range all {
		var err error
		if nodes[i], err = p.node(one, fmt.Sprintf("%s[%d]", at, i), depth+1); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// item returns the schema of a list's i-th value.
func (n *node) item(i int) *node {
	if i < len(n.prefix) {
		return n.prefix[i]
	}
	return n.items
}

// onlyOf keeps the literals whose kind the keyword type allows.
func (n *node) onlyOf(object map[string]json.RawMessage, at string) error {
	for _, key := range []string{"properties", "required", "additionalProperties", "items", "prefixItems",
		"minItems", "maxItems"} {
		if object[key] != nil && slices.ContainsFunc(n.literals, func(text string) bool {
			return text[0] == '{' || text[0] == '['
		}) {
			return fmt.Errorf("%s.%s: is not supported beside lists and objects in enum or const", at, key)
		}
	}
	n.literals = slices.DeleteFunc(n.literals, func(text string) bool {
		switch c := text[0]; {
		case c == '{':
			return n.kinds&kObject == 0
		case c == '[':
			return n.kinds&kArray == 0
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
		return fmt.Errorf("%s: no value of enum and const has the type, or enum lacks const", at)
	}
	return nil
}
