package main

import (
	"reflect"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/train"
)

// kind is what a key's value must be.
type kind int

const (
	kindSection kind = iota // keys of its own
	kindText
	kindWhole
	kindUnsigned
	kindNumber
	kindTruth
	kindList  // of texts; a single text stands for a list of one
	kindTable // free keys, all values of one kind
	kindRows  // a list of sections, each with keys of its own
)

func (k kind) String() string {
	return [...]string{"a section with keys of its own", "a text", "a whole number", "a whole number, 0 or more", "a number", "true or false", "a text or a list of texts", "a table of keys and values", "a list of sections with keys of their own"}[k]
}

// key is one key of the configuration, made from a field of train.Spec.
type key struct {
	path  string // "training.batch_size"
	name  string // "batch_size"
	kind  kind
	elem  kind   // of a table's values
	index []int  // of the field in train.Spec
	keys  []*key // of a section, in their order; of a list's sections, whose paths have [] in them
}

// schema is the root section.
var schema = sectionOf("", "", reflect.TypeFor[train.Spec](), nil)

func sectionOf(path, name string, t reflect.Type, index []int) *key {
	section := &key{path: path, name: name, kind: kindSection, index: index}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		child := name
		if path != "" {
			child = path + "." + name
		}
		section.keys = append(section.keys, keyOf(child, name, t.Field(i).Type, append(index[:len(index):len(index)], i)))
	}
	return section
}

func keyOf(path, name string, t reflect.Type, index []int) *key {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return sectionOf(path, name, t, index)
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		return &key{path: path, name: name, kind: kindRows, index: index, keys: sectionOf(path+"[]", name, t.Elem(), nil).keys}
	}
	k := &key{path: path, name: name, kind: kindOf(t), index: index}
	if k.kind == kindTable {
		k.elem = kindOf(t.Elem())
	}
	return k
}

func kindOf(t reflect.Type) kind {
	switch t.Kind() {
	case reflect.String:
		return kindText
	case reflect.Int, reflect.Int64:
		return kindWhole
	case reflect.Uint64:
		return kindUnsigned
	case reflect.Float64:
		return kindNumber
	case reflect.Bool:
		return kindTruth
	case reflect.Slice:
		return kindList
	case reflect.Map:
		return kindTable
	}
	panic("a configuration field of type " + t.String()) // a broken Spec, found by any test
}

// child finds a key of a section by name.
func (k *key) child(name string) *key {
	for _, c := range k.keys {
		if c.name == name {
			return c
		}
	}
	return nil
}

// leaves are all keys below k that are no sections, in their order.
func (k *key) leaves() []*key {
	if k.kind != kindSection {
		return []*key{k}
	}
	var all []*key
	for _, c := range k.keys {
		all = append(all, c.leaves()...)
	}
	return all
}

// find follows a dotted path as far as keys go; rest is what follows the last of them: the key of a table, or
// something unknown.
func (k *key) find(path string) (found *key, rest string) {
	if path == "" || k.kind != kindSection {
		return k, path
	}
	name, rest, _ := strings.Cut(path, ".")
	if c := k.child(name); c != nil {
		return c.find(rest)
	}
	if base, _, ok := strings.Cut(name, "["); ok {
		if c := k.child(base); c != nil && c.kind == kindRows {
			return c.row(name[len(base):]).find(rest)
		}
	}
	return k, path
}

// row is the section of a list at a place, such as [1].
func (k *key) row(place string) *key {
	section := &key{path: k.path + place, name: k.name, kind: kindSection}
	for _, c := range k.keys {
		own := *c
		own.path = section.path + "." + c.name
		section.keys = append(section.keys, &own)
	}
	return section
}

// names of a section's keys, sorted.
func (k *key) names() []string {
	names := make([]string, len(k.keys))
	for i, c := range k.keys {
		names[i] = c.name
	}
	sort.Strings(names)
	return names
}
