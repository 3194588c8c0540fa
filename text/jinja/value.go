package jinja

import "math/big"

// Value is a Python value: None, Bool, Int, Float, Str, *List, *Tuple, *Dict, or a type that only templates create.
type Value interface{ typeName() string }

type (
	// None is Python's None.
	None struct{}
	// Bool is Python's bool.
	Bool bool
	// Int is an int of 64 bits; larger ints have another type inside this package.
	Int int64
	// Float is Python's float.
	Float float64
	// Str is Python's str, as UTF-8.
	Str string
	// List is Python's list.
	List struct{ Items []Value }
	// Tuple is Python's tuple.
	Tuple struct{ items []Value }
)

type (
	bigInt    struct{ n *big.Int } // never a number that fits an Int
	markup    string               // a str marked as safe HTML: the result of |safe and |escape
	undefined struct {
		hint     string
		obj      Value // the value that has no such name; nil = a variable
		name     Value
		security bool
	}
	namespace struct{ attrs *Dict }
	rangeObj  struct{ start, stop, step int64 }
	// dictView is the result of keys(), values() and items().
	dictView struct {
		dict *Dict
		kind string // dict_keys, dict_values, dict_items
	}
	// function is a global function, or a method bound to its value.
	function struct {
		name string
		kind string // name of the type in Python
		call func(st *state, a args) Value
	}
	joiner struct {
		sep  Value
		used bool
	}
	// iterator is a generator, or the result of reversed(); it can be iterated once.
	iterator struct {
		kind string
		next func(st *state) Value // nil = the end
	}
)

func (None) typeName() string        { return "NoneType" }
func (Bool) typeName() string        { return "bool" }
func (Int) typeName() string         { return "int" }
func (bigInt) typeName() string      { return "int" }
func (Float) typeName() string       { return "float" }
func (Str) typeName() string         { return "str" }
func (markup) typeName() string      { return "Markup" }
func (*List) typeName() string       { return "list" }
func (*Tuple) typeName() string      { return "tuple" }
func (*Dict) typeName() string       { return "dict" }
func (*undefined) typeName() string  { return "Undefined" }
func (*namespace) typeName() string  { return "Namespace" }
func (*rangeObj) typeName() string   { return "range" }
func (v *dictView) typeName() string { return v.kind }
func (f *function) typeName() string { return f.kind }
func (*joiner) typeName() string     { return "Joiner" }
func (i *iterator) typeName() string { return i.kind }
func (*macro) typeName() string      { return "Macro" }
func (*loopContext) typeName() string {
	return "LoopContext"
}

// NewList returns a list of these items, and keeps the slice.
func NewList(items ...Value) *List { return &List{items} }

// NewTuple returns a tuple of these items, and keeps the slice.
func NewTuple(items ...Value) *Tuple { return &Tuple{items} }

// asStr returns the text of a str, marked safe or not.
func asStr(v Value) (string, bool) {
	switch v := v.(type) {
	case Str:
		return string(v), true
	case markup:
		return string(v), true
	}
	return "", false
}

// asTuple returns the items of a tuple.
func asTuple(v Value) ([]Value, bool) {
	switch v := v.(type) {
	case *Tuple:
		return v.items, true
	}
	return nil, false
}

func isUndefined(v Value) bool {
	_, is := v.(*undefined)
	return is
}

// use raises the error of any operation on an undefined value.
func (u *undefined) use() {
	kind := "UndefinedError"
	if u.security {
		kind = "SecurityError"
	}
	panic(&raised{kind, u.message()})
}

func (u *undefined) message() string {
	name, isStr := asStr(u.name)
	switch {
	case u.hint != "":
		return u.hint
	case u.obj == nil:
		return quote(name) + " is undefined"
	case !isStr:
		return objectTypeRepr(u.obj) + " has no element " + safeRepr(u.name)
	default:
		return quote(objectTypeRepr(u.obj)) + " has no attribute " + quote(name)
	}
}

func objectTypeRepr(v Value) string {
	switch v := v.(type) {
	case None:
		return "None"
	case *undefined, *macro, *loopContext:
		return "jinja2.runtime." + v.typeName() + " object"
	case *namespace, *joiner:
		return "jinja2.utils." + v.typeName() + " object"
	case markup:
		return "markupsafe.Markup object"
	}
	return v.typeName() + " object"
}

// truthy evaluates Python's bool(v).
func truthy(st *state, v Value) bool {
	switch v := v.(type) {
	case Bool:
		return bool(v)
	case Str:
		return v != ""
	case markup:
		return v != ""
	case None, *undefined:
		return false
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	case Int:
		return v != 0
	case Float:
		return v != 0
	case *Tuple:
		return len(v.items) > 0
	case *rangeObj:
		return v.length() > 0
	case *dictView:
		return v.dict.Len() > 0
	case *loopContext:
		return v.len(st) > 0
	}
	return true
}
