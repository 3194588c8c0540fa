package jinja

import "math"

// method is a method of a built-in type.
type method struct {
	sig     signature
	do      func(st *state, self Value, b *[maxParams]Value) Value
	open    func(st *state, self Value, a args) Value // accepts any arguments; used in place of do
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

// table parses the signatures of methods.
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

func init() { // without init the table would refer to itself through getattr
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
	}, "clear", "pop", "popitem", "setdefault", "update")
	refuseMethods(dictMethods, "dict", refusedDictMethods)
}

func (r *rangeObj) attr(name string) Value {
	switch name {
	case "start":
		return Int(r.start)
	case "stop":
		return Int(r.stop)
	case "step":
		return Int(r.step)
	}
	refuseAttribute("range", refusedRangeAttributes, name)
	return nil
}
