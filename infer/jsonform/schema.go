// Package jsonform keeps an answer to JSON of a form: it tells which tokens can continue a text so that it becomes a
// JSON value that a schema allows.
//
// A Schema is read once, an Acceptor follows one text byte by byte, and a Vocabulary walks the bytes of all tokens with
// an Acceptor.
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

var kindNames = map[string]kinds{"object": kObject, "array": kArray, "string": kString, "number": kNumber,
	"integer": kInteger, "boolean": kBoolean, "null": kNull}

// node is what a schema says of a value.
type node struct {
	kinds    kinds
	keys     []string // JSON texts of the properties' names, sorted
	values   []*node  // of keys; of kCalls the values behind literals
	required uint64   // of keys
	more     *node    // of other keys; nil = there are none
	items    *node
	least    int     // items
	most     int     // items; -1 = any number
	prefix   []*node // of the first items
	literals []string
	format   *format     // of texts; nil = any
	states   []formState // its automaton

	any []*node // the value is one of these, which have none in turn; nothing else counts

	low, lowList, lowObject int // levels of lists and objects that the lowest value, list and object take
	tallest                 int // the most that a value within it takes at least
}

var anyValue = newAny()

// newAny is a value of any form, within it the same.
func newAny() *node {
	n := &node{kinds: anyKind, most: -1, lowList: 1, lowObject: 1}
	n.items, n.more = n, n
	return n
}

// Schema is the form of a JSON value.
type Schema struct{ root *node }

// Object is any JSON object.
func Object() *Schema {
	return &Schema{&node{kinds: kObject, more: anyValue, items: anyValue, most: -1, low: 1, lowObject: 1}}
}

// annotations change no form; nullable and discriminator are OpenAPI's. A nullable value is written, never null.
var annotations = []string{"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default",
	"examples", "deprecated",
	"readOnly", "writeOnly", "nullable", "discriminator"}

const known = "type, properties, required, additionalProperties, items, prefixItems, minItems, maxItems, enum, " +
	"const, format, anyOf, " +
	"oneOf, allOf with one schema, and $ref to $defs"

// Parse reads a JSON Schema. What is not among known is an error that names it.
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
		return nil, fmt.Errorf("schema: want type object or array, since the end of other values can't be told")
	}
	return &Schema{n}, nil
}

// only tells whether a value is of some kinds whatever it is, and no literal.
func (n *node) only(set kinds) bool {
	for _, one := range n.any {
		if !one.only(set) {
			return false
		}
	}
	return n.any != nil || n.kinds&^set == 0 && n.literals == nil
}

// parser reads a schema: node by node, then what references name, then what all nodes together are.
type parser struct {
	root     map[string]json.RawMessage
	all      []*node
	refs     map[string]*node
	queue    []reference
	oneOfs   []oneOf
	sections map[string]map[string]json.RawMessage // of definitions
	inner    bool                                  // a schema below the root has an $id of its own
}

func (p *parser) node(text []byte, at string, depth int) (*node, error) {
	if len(p.all) >= maxNodes || depth > maxSchemaDepth {
		return nil, fmt.Errorf("%s: the schema is nested deeper than %d levels or has more than %d parts", at,
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
	case "properties", "required", "additionalProperties": // by properties, together
	case "items":
		n.items, err = p.node(value, where, depth+1)
	case "prefixItems":
		if v := p.root["$schema"]; v != nil && !bytes.Contains(v, []byte("2020-12")) {
			return fmt.Errorf("%s: is of JSON Schema 2020-12, and $schema is %.80s", where, v)
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
		if before != nil { // const and enum
			n.literals = slices.DeleteFunc(n.literals, func(text string) bool { return !slices.Contains(before, text) })
		}
	default:
		if !slices.Contains(annotations, key) {
			return fmt.Errorf("%s: is not supported; a schema may have %s", where, known)
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

// item is what a list's i-th value is.
func (n *node) item(i int) *node {
	if i < len(n.prefix) {
		return n.prefix[i]
	}
	return n.items
}

// onlyOf leaves the literals of the kinds that type names.
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
		return fmt.Errorf("%s: no value of enum and const has the type, or none is in both", at)
	}
	return nil
}
