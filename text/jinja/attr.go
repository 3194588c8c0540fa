package jinja

import (
	"strings"
	"unicode/utf8"
)

type getattrExpr struct {
	x    expr
	name string
	key  Value
	// methods of the built-in types with this name, nil for types without one
	str, list, tuple, dict *method
	private                bool
}

func newGetattr(x expr, name string) expr {
	return &getattrExpr{x: x, name: name, key: Str(name), str: strMethods[name], list: listMethods[name],
		tuple: tupleMethods[name], dict: dictMethods[name], private: strings.HasPrefix(name, "_")}
}

func (e *getattrExpr) eval(f *frame) Value {
	f.st.step(1)
	v := e.x.eval(f)
	if d, ok := v.(*Dict); ok && e.dict == nil && !e.private {
		if item := d.lookup(e.name); item != nil {
			return item
		}
		return &undefined{obj: d, name: e.key}
	}
	return getattr(f.st, v, e.name)
}

// methodOf returns the method of a built-in type that x.name() calls, nil if x.name is no such method.
func (e *getattrExpr) methodOf(v Value) *method {
	switch v.(type) {
	case Str, markup:
		return e.str
	case *Dict:
		return e.dict
	case *List:
		return e.list
	case *Tuple:
		return e.tuple
	}
	return nil
}

// getattr evaluates x.name: an attribute, else an item.
func getattr(st *state, v Value, name string) Value {
	if u, ok := v.(*undefined); ok && !(strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__")) {
		u.use()
	}
	if a := attribute(st, v, name); a != nil {
		return a
	}
	if item := item(st, v, Str(name)); item != nil {
		return item
	}
	return &undefined{obj: v, name: Str(name)}
}

// getitem evaluates x[key]: an item, else an attribute if the key is a str.
func getitem(st *state, v, key Value) Value {
	if item := item(st, v, key); item != nil {
		return item
	}
	if name, ok := asStr(key); ok {
		if a := attribute(st, v, name); a != nil {
			return a
		}
	}
	return &undefined{obj: v, name: key}
}

// attribute returns an attribute as the sandbox exposes it: an undefined value if it is unsafe, nil if the value has no
// such attribute.
func attribute(st *state, v Value, name string) Value {
	if strings.HasPrefix(name, "_") {
		if n, ok := v.(*namespace); ok {
			if n.attrs.lookup(name) == nil && name != "__class__" {
				return nil
			}
		} else if !hasDunder(v, name) {
			return nil
		}
		return unsafe(v, name)
	}
	var m *method
	switch v := v.(type) {
	case Str, markup:
		m = strMethods[name]
	case *List:
		m = listMethods[name]
	case *Tuple:
		m = tupleMethods[name]
	case *Dict:
		m = dictMethods[name]
	case Int, Bool, bigInt:
		refuseAttribute("int", refusedIntAttributes, name)
	case Float:
		refuseAttribute("float", refusedFloatAttributes, name)
	case *namespace:
		return v.attrs.lookup(name)
	case *loopContext:
		return v.attr(st, name)
	case *macro:
		return v.attr(name)
	case *joiner:
		return v.attr(name)
	case *rangeObj:
		return v.attr(name)
	case *dictView:
		return nil
	case *function:
		if v.name == "dict" {
			raise("TypeError", "dict.%s is not available in chat templates", name)
		}
	}
	if m == nil {
		return nil
	}
	if m.mutates {
		return unsafe(v, name)
	}
	return bound(m, name, v)
}

func bound(m *method, name string, v Value) Value {
	return &function{name, "builtin_function_or_method", func(st *state, a args) Value { return m.call(st, v, a) }}
}

func unsafe(v Value, name string) Value {
	return &undefined{hint: "access to attribute " + quote(name) + " of " + quote(v.typeName()) + " object is unsafe.",
		name: Str(name), obj: v, security: true}
}

const objectDunders = " __class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__ " +
	"__gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__ " +
	"__setattr__ __sizeof__ __str__ __subclasshook__ "

const dictDunders = " __class_getitem__ __contains__ __delitem__ __getitem__ __ior__ __iter__ __len__ __or__ " +
	"__reversed__ __ror__ __setitem__ "

// hasDunder reports whether Python's value has the private attribute. It only matters for a dict, because a dict
// without the attribute is searched for the key.
func hasDunder(v Value, name string) bool {
	if strings.Contains(objectDunders, " "+name+" ") {
		return true
	}
	_, isDict := v.(*Dict)
	return isDict && strings.Contains(dictDunders, " "+name+" ")
}

// item evaluates Python's v[key]; nil if that raises TypeError or LookupError.
func item(st *state, v, key Value) Value {
	if s, ok := asStr(v); ok {
		st.scan(len(s))
	}
	if s, ok := asStr(key); ok {
		st.scan(len(s))
	}
	switch v := v.(type) {
	case *Dict:
		if s, ok := key.(Str); ok {
			return v.lookup(string(s))
		}
		if !hashable(st, key, 0) {
			return nil
		}
		if i := v.findKey(st, hashKey(st, key)); i >= 0 {
			return v.vals[i]
		}
		return nil
	case *undefined:
		v.use()
	case *function:
		if v.name == "dict" {
			raise("TypeError", "dict[...] is not available in chat templates")
		}
	}
	n, ok := asInt(key)
	if !ok {
		return nil
	}
	switch v := v.(type) {
	case *List:
		return at0(v.Items, n)
	case *Tuple:
		return at0(v.items, n)
	case Str:
		return runeAt(string(v), n)
	case markup:
		if r, ok := runeAt(string(v), n).(Str); ok {
			return markup(r)
		}
	case *rangeObj:
		size := v.length()
		if n < 0 {
			n += size
		}
		if n >= 0 && n < size {
			return Int(v.start + n*v.step)
		}
	}
	return nil
}

func hashable(st *state, v Value, depth int) bool {
	st.step(1)
	switch v := v.(type) {
	case *List, *Dict:
		return false
	case *dictView:
		return v.kind == "dict_values"
	}
	items, _ := asTuple(v)
	for _, item := range items {
		if depth > maxNest || !hashable(st, item, depth+1) {
			return false
		}
	}
	return true
}

func at0(items []Value, n int64) Value {
	if n < 0 {
		n += int64(len(items))
	}
	if n < 0 || n >= int64(len(items)) {
		return nil
	}
	return items[n]
}

// runeAt returns the n-th code point of s, counted from the end if n is negative.
func runeAt(s string, n int64) Value {
	if n < 0 {
		for i := len(s); i > 0; {
			_, size := utf8.DecodeLastRuneInString(s[:i])
			if n++; n == 0 {
				return Str(s[i-size : i])
			}
			i -= size
		}
		return nil
	}
	for i := 0; i < len(s); {
		size := 1
		if s[i] >= utf8.RuneSelf {
			_, size = utf8.DecodeRuneInString(s[i:])
		}
		if n--; n < 0 {
			return Str(s[i : i+size])
		}
		i += size
	}
	return nil
}

type getitemExpr struct{ x, key expr }

func newGetitem(x, key expr) expr { return &getitemExpr{x, key} }

func (e *getitemExpr) eval(f *frame) Value {
	f.st.step(1)
	v := e.x.eval(f)
	key := e.key.eval(f)
	switch v := v.(type) {
	case *Dict:
		if s, ok := key.(Str); ok {
			f.st.scan(len(s))
			if item := v.lookup(string(s)); item != nil {
				return item
			}
		}
	case *List:
		if n, ok := key.(Int); ok {
			if item := at0(v.Items, int64(n)); item != nil {
				return item
			}
		}
	}
	return getitem(f.st, v, key)
}
