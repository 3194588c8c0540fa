package jinja

import "unicode/utf8"

// pull returns the next item of an iteration; nil = the end.
type pull func(st *state) Value

func pullItems(items []Value) pull {
	i := 0
	return func(st *state) Value {
		if i >= len(items) {
			return nil
		}
		st.step(1)
		i++
		return items[i-1]
	}
}

// iterOf evaluates Python's iter(v); nil = v is not iterable.
func iterOf(v Value) pull {
	switch v := v.(type) {
	case *List:
		return pullItems(v.Items)
	case *Tuple:
		return pullItems(v.items)
	case Str:
		return pullRunes(string(v))
	case markup:
		return pullRunes(string(v))
	case *Dict:
		return pullItems(v.keys)
	case *dictView:
		return v.pull()
	case *rangeObj:
		i, n := int64(0), v.length()
		return func(st *state) Value {
			if i >= n {
				return nil
			}
			st.step(1)
			i++
			return Int(v.start + (i-1)*v.step)
		}
	case *iterator:
		return v.next
	case *undefined:
		return pullItems(nil)
	case *loopContext:
		return func(st *state) Value {
			if item := v.advance(st); item != nil {
				return NewTuple(item, v)
			}
			return nil
		}
	}
	return nil
}

func pullRunes(s string) pull {
	i := 0
	return func(st *state) Value {
		if i >= len(s) {
			return nil
		}
		st.step(1)
		_, n := utf8.DecodeRuneInString(s[i:])
		i += n
		return Str(s[i-n : i])
	}
}

// mustIter does what iterOf does, and raises TypeError if v is not iterable.
func mustIter(v Value) pull {
	next := iterOf(v)
	if next == nil {
		raise("TypeError", "'%s' object is not iterable", v.typeName())
	}
	return next
}

// items evaluates Python's list(v). The caller must not change the items.
func items(st *state, v Value) []Value {
	switch v := v.(type) {
	case *List:
		st.step(len(v.Items))
		return v.Items
	case *Tuple:
		st.step(len(v.items))
		return v.items
	case *Dict:
		st.step(len(v.keys))
		return v.keys
	}
	return drain(st, mustIter(v))
}

// itemSize is the size in bytes that an item of a growing list counts for.
const itemSize = 4 * valueSize

// drain returns the remaining items.
func drain(st *state, next pull) []Value {
	var all []Value
	for {
		v := next(st)
		if v == nil {
			return all
		}
		st.use(itemSize)
		all = append(all, v)
	}
}

func (v *dictView) pull() pull {
	i := 0
	return func(st *state) Value {
		if i >= v.dict.Len() {
			return nil
		}
		st.step(1)
		i++
		return v.at(i - 1)
	}
}

func (v *dictView) at(i int) Value {
	switch v.kind {
	case "dict_keys":
		return v.dict.keys[i]
	case "dict_values":
		return v.dict.vals[i]
	}
	return NewTuple(v.dict.keys[i], v.dict.vals[i])
}

func (v *dictView) list(st *state) []Value {
	st.charge(itemSize * v.dict.Len())
	st.step(v.dict.Len())
	all := make([]Value, v.dict.Len())
	for i := range all {
		all[i] = v.at(i)
	}
	return all
}

// has evaluates Python's x in v.
func (v *dictView) has(st *state, x Value) bool {
	switch v.kind {
	case "dict_keys":
		return v.dict.findKey(st, hashKey(st, x)) >= 0
	case "dict_items":
		pair, ok := asTuple(x)
		if !ok || len(pair) != 2 {
			return false
		}
		i := v.dict.findKey(st, hashKey(st, pair[0]))
		return i >= 0 && equal(st, v.dict.vals[i], pair[1])
	}
	st.step(v.dict.Len())
	for _, w := range v.dict.vals {
		if identical(st, w, x) || equal(st, w, x) {
			return true
		}
	}
	return false
}

func (v *dictView) sameSet(st *state, w *dictView) bool {
	return v.dict.Len() == w.dict.Len() && v.within(st, w)
}

func (v *dictView) within(st *state, w *dictView) bool {
	for i := range v.dict.keys {
		st.step(1)
		if !w.has(st, v.at(i)) {
			return false
		}
	}
	return true
}

// subset orders two sets of keys or items: < is "a proper subset of".
func (v *dictView) subset(st *state, op string, w *dictView) bool {
	switch op {
	case "<":
		return v.dict.Len() < w.dict.Len() && v.within(st, w)
	case "<=":
		return v.within(st, w)
	case ">":
		return w.subset(st, "<", v)
	}
	return w.subset(st, "<=", v)
}

func (r *rangeObj) length() int64 {
	if r.step > 0 && r.start < r.stop {
		return int64((uint64(r.stop)-uint64(r.start)-1)/uint64(r.step)) + 1
	}
	if r.step < 0 && r.start > r.stop {
		return int64((uint64(r.start)-uint64(r.stop)-1)/uint64(-r.step)) + 1
	}
	return 0
}

// length evaluates Python's len(v); false = v has no length.
func length(st *state, v Value) (int, bool) {
	switch v := v.(type) {
	case Str:
		st.scan(len(v))
		return utf8.RuneCountInString(string(v)), true
	case markup:
		st.scan(len(v))
		return utf8.RuneCountInString(string(v)), true
	case *List:
		return len(v.Items), true
	case *Tuple:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *dictView:
		return v.dict.Len(), true
	case *rangeObj:
		return int(v.length()), true
	case *undefined:
		return 0, true
	case *loopContext:
		return v.len(st), true
	}
	return 0, false
}

// reversed evaluates Python's reversed(v); nil = v cannot be reversed.
func reversed(st *state, v Value) *iterator {
	kind, all := "list_reverseiterator", []Value(nil)
	switch v := v.(type) {
	case *List:
		all = v.Items
	case *Tuple:
		kind, all = "reversed", v.items
	case Str, markup:
		kind, all = "reversed", items(st, v)
	case *undefined:
		kind = "reversed"
	case *Dict:
		kind, all = "dict_reversekeyiterator", v.keys
	case *dictView:
		kind, all = "dict_reverseiterator", v.list(st)
	case *rangeObj:
		i := v.length()
		return &iterator{"range_iterator", func(st *state) Value {
			if i <= 0 {
				return nil
			}
			st.step(1)
			i--
			return Int(v.start + i*v.step)
		}}
	default:
		return nil
	}
	i := len(all)
	return &iterator{kind, func(st *state) Value {
		if i <= 0 {
			return nil
		}
		st.step(1)
		i--
		return all[i]
	}}
}

// contains evaluates Python's x in v.
func contains(st *state, x, v Value) bool {
	if s, ok := asStr(v); ok {
		sub, ok := asStr(x)
		if !ok {
			raise("TypeError", "'in <string>' requires string as left operand, not %s", x.typeName())
		}
		return containsString(st, s, sub)
	}
	switch v := v.(type) {
	case *Dict:
		if s, ok := x.(Str); ok {
			st.scan(len(s))
			return v.find(string(s)) >= 0
		}
		return v.findKey(st, hashKey(st, x)) >= 0
	case *dictView:
		return v.has(st, x)
	case *rangeObj:
		if n, ok := asInt(x); ok {
			return v.holds(n)
		}
	}
	next := iterOf(v)
	if next == nil {
		raise("TypeError", "argument of type '%s' is not iterable", v.typeName())
	}
	for {
		w := next(st)
		if w == nil {
			return false
		}
		if identical(st, w, x) || equal(st, w, x) {
			return true
		}
	}
}

func (r *rangeObj) holds(n int64) bool {
	size := r.length()
	if size == 0 {
		return false
	}
	i := (n - r.start) / r.step
	return i >= 0 && i < size && r.start+i*r.step == n
}
