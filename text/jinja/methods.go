package jinja

import (
	"math"
	"math/bits"
)

// method is a method of a built-in type.
type method struct {
	sig     signature
	do      func(st *state, self Value, b *[maxParams]Value) Value
	open    func(st *state, self Value, a args) Value // takes any arguments, instead of do
	mutates bool                                      // the immutable sandbox hides it
}

func (m *method) call(st *state, self Value, a args) Value {
	st.step(1)
	if s, ok := asStr(self); ok {
		st.scan(len(s))
	}
	st.scanAll(a.pos)
	if m.open != nil {
		return m.open(st, self, a)
	}
	b := st.room()
	m.sig.bindTo(b, a)
	v := m.do(st, self, b)
	st.giveRoom(b)
	return v
}

// table reads the signatures of methods.
func table(methods map[string]func(st *state, self Value, b *[maxParams]Value) Value, mutators ...string) map[string]*method {
	t := map[string]*method{}
	for s, do := range methods {
		m := &method{sig: sig(s), do: do}
		t[m.sig.name] = m
	}
	for _, name := range mutators {
		t[name] = &method{mutates: true}
	}
	return t
}

var listMethods = table(map[string]func(*state, Value, *[maxParams]Value) Value{
	"copy(/)": func(st *state, self Value, _ *[maxParams]Value) Value { return &List{self.(*List).Items} },
	"count(*value, /)": func(st *state, self Value, b *[maxParams]Value) Value {
		return countItems(st, self.(*List).Items, b[0])
	},
	"index(*value, start, stop, /)": func(st *state, self Value, b *[maxParams]Value) Value {
		return indexItems(st, "list", self.(*List).Items, b)
	},
}, "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove")

var tupleMethods = table(map[string]func(*state, Value, *[maxParams]Value) Value{
	"count(*value, /)": func(st *state, self Value, b *[maxParams]Value) Value {
		all, _ := asTuple(self)
		return countItems(st, all, b[0])
	},
	"index(*value, start, stop, /)": func(st *state, self Value, b *[maxParams]Value) Value {
		all, _ := asTuple(self)
		return indexItems(st, "tuple", all, b)
	},
})

func countItems(st *state, items []Value, v Value) Value {
	st.step(len(items))
	n := 0
	for _, w := range items {
		if identical(st, w, v) || equal(st, w, v) {
			n++
		}
	}
	return Int(n)
}

func indexItems(st *state, kind string, items []Value, b *[maxParams]Value) Value {
	start, stop := int64(0), int64(math.MaxInt64)
	for i, to := range []*int64{&start, &stop} {
		if b[i+1] != nil {
			n, ok := indexOf(b[i+1])
			if !ok {
				raise("TypeError", "slice indices must be integers or have an __index__ method")
			}
			if n < 0 {
				n = max(n+int64(len(items)), 0)
			}
			*to = n
		}
	}
	for i := start; i < min(stop, int64(len(items))); i++ {
		st.step(1)
		if identical(st, items[i], b[0]) || equal(st, items[i], b[0]) {
			return Int(i)
		}
	}
	raise("ValueError", "%s is not in %s", safeRepr(b[0]), kind)
	return nil
}

var dictMethods map[string]*method

func init() { // the table would refer to itself by way of getattr otherwise
	dictMethods = table(map[string]func(*state, Value, *[maxParams]Value) Value{
		"keys()":   func(st *state, self Value, _ *[maxParams]Value) Value { return &dictView{self.(*Dict), "dict_keys"} },
		"values()": func(st *state, self Value, _ *[maxParams]Value) Value { return &dictView{self.(*Dict), "dict_values"} },
		"items()":  func(st *state, self Value, _ *[maxParams]Value) Value { return &dictView{self.(*Dict), "dict_items"} },
		"copy()":   func(st *state, self Value, _ *[maxParams]Value) Value { return self.(*Dict).copied(st) },
		"get(*key, default, /)": func(st *state, self Value, b *[maxParams]Value) Value {
			if i := self.(*Dict).findKey(st, hashKey(st, b[0])); i >= 0 {
				return self.(*Dict).vals[i]
			}
			if b[1] != nil {
				return b[1]
			}
			return None{}
		},
		"fromkeys(*iterable, value, /)": func(st *state, self Value, b *[maxParams]Value) Value {
			d := NewDict()
			for _, k := range items(st, b[0]) {
				d.set(st, k, orNone(b[1]))
			}
			return d
		},
	}, "clear", "pop", "popitem", "setdefault", "update")
}

func orNone(v Value) Value {
	if v == nil {
		return None{}
	}
	return v
}

func fixed(name string, v Value) Value {
	return &function{name, "builtin_function_or_method", func(_ *state, a args) Value {
		a.noKeys(name)
		if len(a.pos) > 0 {
			raise("TypeError", "%s() takes no arguments (%d given)", name, len(a.pos))
		}
		return v
	}}
}

// intAttribute is an attribute of an int, nil where it has none of that name.
func intAttribute(v Value, name string) Value {
	n, _ := asBig(v)
	switch name {
	case "real", "numerator":
		return norm(n)
	case "imag":
		return Int(0)
	case "denominator":
		return Int(1)
	case "conjugate":
		return fixed(name, norm(n))
	case "bit_length":
		return fixed(name, Int(n.BitLen()))
	case "bit_count":
		count := 0
		for _, w := range n.Bits() {
			count += bits.OnesCount(uint(w))
		}
		return fixed(name, Int(count))
	case "as_integer_ratio":
		return fixed(name, NewTuple(norm(n), Int(1)))
	case "to_bytes", "from_bytes":
		return notInTemplates("int." + name)
	}
	return nil
}

func floatAttribute(v Float, name string) Value {
	switch name {
	case "real":
		return v
	case "imag":
		return Float(0)
	case "conjugate":
		return fixed(name, v)
	case "is_integer":
		return fixed(name, Bool(float64(v) == math.Trunc(float64(v)) && !math.IsInf(float64(v), 0)))
	case "as_integer_ratio", "hex", "fromhex":
		return notInTemplates("float." + name)
	}
	return nil
}

// notInTemplates is a function of Python that gives what a template has no use for, such as bytes.
func notInTemplates(name string) Value {
	return &function{name, "builtin_function_or_method", func(*state, args) Value {
		raise("TypeError", "%s is not available in chat templates", name)
		return nil
	}}
}

func (r *rangeObj) attr(name string) Value {
	switch name {
	case "start":
		return Int(r.start)
	case "stop":
		return Int(r.stop)
	case "step":
		return Int(r.step)
	case "count":
		return &function{name, "builtin_function_or_method", func(st *state, a args) Value {
			b := countSig.bind(a)
			return countItems(st, items(st, r), b[0])
		}}
	case "index":
		return &function{name, "builtin_function_or_method", func(st *state, a args) Value {
			b := countSig.bind(a)
			return indexItems(st, "range", items(st, r), &b)
		}}
	}
	return nil
}

var countSig = sig("count(*value, /)")
