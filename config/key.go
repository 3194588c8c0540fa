package config

import (
	"reflect"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/train"
)

// Kind is the type that a key's value must have.
type Kind int

const (
	KindSection Kind = iota // keys of its own
	KindText
	KindWhole
	KindUnsigned
	KindNumber
	KindTruth
	KindList  // of texts; a single text stands for a list of one
	KindTable // free keys, all values of one kind
	KindRows  // a list of sections, each with keys of its own
)

func (k Kind) String() string {
	return [...]string{"a section with keys of its own", "a text", "a whole number", "a whole number, 0 or more",
		"a number", "true or false", "a text or a list of texts", "a table of keys and values",
		"a list of sections with keys of their own"}[k]
}

// Key is one key of the configuration, made from a field of train.Spec: the field's tags are the embedded keys.Key, its
// comment is About.
type Key struct {
	keys.Key
	Path  string // Path is the key with its sections, such as training.batch_size.
	Kind  Kind
	Elem  Kind   // Elem is the kind of a table's values.
	About string // About is the description, from the field's comment.
	Keys  []*Key // Keys of a section, in their order; of a list's sections, whose paths have [] in them.
	index []int  // of the field in train.Spec, or in a list's section
}

// Root is the section that holds all keys.
var Root = sectionOf("", "", reflect.TypeFor[train.Spec](), nil)

func sectionOf(path, name string, t reflect.Type, index []int) *Key {
	section := &Key{Key: keys.Key{Name: name}, Path: path, Kind: KindSection, About: descriptions[path], index: index}
	section.Keys = keysOf(path, t, index)
	return section
}

// keysOf returns the keys that the fields of a section's struct are, those of structs inlined into it in their place.
func keysOf(path string, t reflect.Type, index []int) (all []*Key) {
	for i := range t.NumField() {
		at := append(index[:len(index):len(index)], i)
		if keys.Inline(t.Field(i)) {
			all = append(all, keysOf(path, t.Field(i).Type, at)...)
			continue
		}
		tags, ok := keys.Of(t, i)
		if !ok {
			continue
		}
		child := tags.Name
		if path != "" {
			child = path + "." + tags.Name
		}
		all = append(all, keyOf(child, tags, t.Field(i).Type, at))
	}
	return all
}

func keyOf(path string, tags keys.Key, t reflect.Type, index []int) *Key {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return sectionOf(path, tags.Name, t, index)
	}
	k := &Key{Key: tags, Path: path, About: descriptions[path], index: index}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		k.Kind, k.Keys = KindRows, sectionOf(path+"[]", tags.Name, t.Elem(), nil).Keys
		return k
	}
	k.Kind = kindOf(t)
	if k.Kind == KindTable {
		k.Elem = kindOf(t.Elem())
	}
	return k
}

func kindOf(t reflect.Type) Kind {
	switch t.Kind() {
	case reflect.String:
		return KindText
	case reflect.Int, reflect.Int64:
		return KindWhole
	case reflect.Uint64:
		return KindUnsigned
	case reflect.Float64:
		return KindNumber
	case reflect.Bool:
		return KindTruth
	case reflect.Slice:
		return KindList
	case reflect.Map:
		return KindTable
	}
	panic("a configuration field of type " + t.String()) // a broken Spec, found by any test
}

// Child finds a key of a section by its name; nil = none.
func (k *Key) Child(name string) *Key {
	for _, c := range k.Keys {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Leaves returns all keys below k that are no sections, in the order of the fields.
func (k *Key) Leaves() []*Key {
	if k.Kind != KindSection {
		return []*Key{k}
	}
	var all []*Key
	for _, c := range k.Keys {
		all = append(all, c.Leaves()...)
	}
	return all
}

// Find follows a dotted path as far as keys go; rest is what follows the last of them: the key of a table, or
// something unknown.
func (k *Key) Find(path string) (found *Key, rest string) {
	if path == "" || k.Kind != KindSection {
		return k, path
	}
	name, rest, _ := strings.Cut(path, ".")
	if c := k.Child(name); c != nil {
		return c.Find(rest)
	}
	if base, _, ok := strings.Cut(name, "["); ok {
		if c := k.Child(base); c != nil && c.Kind == KindRows {
			return c.row(name[len(base):]).Find(rest)
		}
	}
	return k, path
}

// row is the section of a list at a place, such as [1].
func (k *Key) row(place string) *Key {
	section := &Key{Key: keys.Key{Name: k.Name}, Path: k.Path + place, Kind: KindSection}
	for _, c := range k.Keys {
		own := *c
		own.Path = section.Path + "." + c.Name
		section.Keys = append(section.Keys, &own)
	}
	return section
}

// Names returns the names of a section's keys, sorted.
func (k *Key) Names() []string {
	names := make([]string, len(k.Keys))
	for i, c := range k.Keys {
		names[i] = c.Name
	}
	sort.Strings(names)
	return names
}
