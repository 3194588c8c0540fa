package jinja

import (
	"slices"
	"strings"
)

// attrGetter looks attributes such as "address.0.city" up by the rules of x[...].
func attrGetter(st *state, attr Value, foldCase bool, otherwise Value) func(*state, Value) Value {
	parts := attrParts(attr)
	return func(st *state, v Value) Value {
		for _, p := range parts {
			v = getitem(st, v, p)
			if otherwise != nil && isUndefined(v) {
				v = otherwise
			}
		}
		if foldCase {
			return ignoreCase(v)
		}
		return v
	}
}

func attrParts(attr Value) []Value {
	s, ok := asStr(attr)
	if _, none := attr.(None); attr == nil || none {
		return nil
	}
	if !ok {
		return []Value{attr}
	}
	var parts []Value
	for _, p := range strings.Split(s, ".") {
		if n := parseInt(p, 10); n != nil && p != "" && strings.IndexFunc(p, func(r rune) bool { return !isDigit(r) }) < 0 {
			parts = append(parts, n)
		} else {
			parts = append(parts, Str(p))
		}
	}
	return parts
}

func ignoreCase(v Value) Value {
	switch v := v.(type) {
	case Str:
		return Str(lower(string(v)))
	case markup:
		return markup(lower(string(v)))
	}
	return v
}

func flag(st *state, v Value) bool { return v != nil && truthy(st, v) }

func filterLast(st *state, b *[maxParams]Value) Value {
	if u, ok := b[0].(*undefined); ok {
		_ = u
		raise("TypeError", "'Undefined' object is not reversible")
	}
	back := reversed(st, b[0])
	if back == nil {
		raise("TypeError", "'%s' object is not reversible", b[0].typeName())
	}
	if v := back.next(st); v != nil {
		return v
	}
	return &undefined{hint: "No last item, sequence was empty."}
}

func filterReverse(st *state, b *[maxParams]Value) Value {
	if s, ok := asStr(b[0]); ok {
		st.charge(5 * len(s))
		runes := []rune(s)
		slices.Reverse(runes)
		return like(b[0], string(runes))
	}
	if back := reversed(st, b[0]); back != nil {
		return back
	}
	next := iterOf(b[0])
	if next == nil {
		raise("FilterArgumentError", "argument must be iterable")
	}
	all := drain(st, next)
	slices.Reverse(all)
	return &List{all}
}

// lazily is a generator whose work begins when the first item is asked for.
func lazily(start func(st *state) pull) *iterator {
	var next pull
	return &iterator{"generator", func(st *state) Value {
		if next == nil {
			next = start(st)
		}
		return next(st)
	}}
}

func filterItems(st *state, b *[maxParams]Value) Value {
	v := b[0]
	return lazily(func(*state) pull {
		switch v := v.(type) {
		case *undefined:
			return pullItems(nil)
		case *Dict:
			return (&dictView{v, "dict_items"}).pull()
		}
		raise("TypeError", "Can only get item pairs from a mapping.")
		return nil
	})
}

// sortBy sorts stably by keys as Python's sorted does.
func sortBy(st *state, all []Value, reverse bool, key func(*state, Value) Value) []Value {
	st.charge(4 * valueSize * len(all))
	type keyed struct{ key, v Value }
	ks := make([]keyed, len(all))
	for i, v := range all {
		ks[i] = keyed{key(st, v), v}
	}
	slices.SortStableFunc(ks, func(a, b keyed) int {
		st.step(1)
		if reverse {
			a, b = b, a
		}
		switch {
		case order(st, "<", a.key, b.key):
			return -1
		case order(st, "<", b.key, a.key):
			return 1
		}
		return 0
	})
	out := make([]Value, len(all))
	for i, k := range ks {
		out[i] = k.v
	}
	return out
}

func filterDictsort(st *state, b *[maxParams]Value) Value {
	at := 0
	if b[2] != nil {
		by, ok := asStr(b[2])
		switch {
		case ok && by == "value":
			at = 1
		case !ok || by != "key":
			raise("FilterArgumentError", `You can only sort by either "key" or "value"`)
		}
	}
	d, ok := b[0].(*Dict)
	if !ok {
		if u, ok := b[0].(*undefined); ok {
			u.use()
		}
		raise("AttributeError", "'%s' object has no attribute 'items'", b[0].typeName())
	}
	view := &dictView{d, "dict_items"}
	sensitive := flag(st, b[1])
	return &List{sortBy(st, view.list(), flag(st, b[3]), func(_ *state, v Value) Value {
		key := v.(*Tuple).items[at]
		if !sensitive {
			key = ignoreCase(key)
		}
		return key
	})}
}

func filterSort(st *state, b *[maxParams]Value) Value {
	fold := !flag(st, b[2])
	var getters []func(*state, Value) Value
	if s, ok := asStr(b[3]); ok {
		for _, part := range strings.Split(s, ",") {
			getters = append(getters, attrGetter(st, Str(part), fold, nil))
		}
	} else {
		getters = append(getters, attrGetter(st, b[3], fold, nil))
	}
	all := drain(st, mustIter(b[0]))
	return &List{sortBy(st, all, flag(st, b[1]), func(st *state, v Value) Value {
		key := &List{make([]Value, len(getters))}
		for i, get := range getters {
			key.Items[i] = get(st, v)
		}
		return key
	})}
}

func filterUnique(st *state, b *[maxParams]Value) Value {
	v, attr, fold := b[0], b[2], !flag(st, b[1])
	return lazily(func(st *state) pull {
		get := attrGetter(st, attr, fold, nil)
		seen := map[any]bool{}
		next := mustIter(v)
		return func(st *state) Value {
			for {
				v := next(st)
				if v == nil {
					return nil
				}
				if key := hashKey(get(st, v)); !seen[key] {
					st.charge(valueSize)
					seen[key] = true
					return v
				}
			}
		}
	})
}

func extreme(st *state, b *[maxParams]Value, op string) Value {
	get := attrGetter(st, b[2], !flag(st, b[1]), nil)
	next := mustIter(b[0])
	best := next(st)
	if best == nil {
		return &undefined{hint: "No aggregated item, sequence was empty."}
	}
	bestKey := get(st, best)
	for {
		v := next(st)
		if v == nil {
			return best
		}
		if key := get(st, v); order(st, op, key, bestKey) {
			best, bestKey = v, key
		}
	}
}

func filterSum(st *state, b *[maxParams]Value) Value {
	sum := b[2]
	if sum == nil {
		sum = Int(0)
	}
	if _, ok := asStr(sum); ok {
		raise("TypeError", "sum() can't sum strings [use ''.join(seq) instead]")
	}
	get := attrGetter(st, b[1], false, nil)
	for next := mustIter(b[0]); ; {
		v := next(st)
		if v == nil {
			return sum
		}
		sum = binary(st, '+', sum, get(st, v))
	}
}

func filterGroupby(st *state, b *[maxParams]Value) Value {
	otherwise := b[2]
	if _, none := otherwise.(None); none {
		otherwise = nil
	}
	fold := !flag(st, b[3])
	get := attrGetter(st, b[1], fold, otherwise)
	exact := attrGetter(st, b[1], false, otherwise)
	var groups []Value
	var last *groupTuple
	var lastKey Value
	for _, v := range sortBy(st, drain(st, mustIter(b[0])), false, get) {
		key := get(st, v)
		if last == nil || key != lastKey && !equal(st, key, lastKey) {
			st.charge(4 * valueSize)
			name := key
			if fold {
				name = exact(st, v)
			}
			last, lastKey = &groupTuple{Tuple{[]Value{name, &List{}}}}, key
			groups = append(groups, last)
		}
		l := last.items[1].(*List)
		l.Items = append(l.Items, v)
	}
	return &List{groups}
}

func filterBatch(st *state, b *[maxParams]Value) Value {
	v, fill := b[0], b[2]
	size, isInt := indexOf(b[1])
	return lazily(func(st *state) pull {
		next := mustIter(v)
		var ahead Value
		return func(st *state) Value {
			l := &List{}
			if ahead != nil {
				l.Items, ahead = append(l.Items, ahead), nil
			}
			for {
				v := next(st)
				if v == nil {
					break
				}
				if isInt && int64(len(l.Items)) == size {
					if len(l.Items) == 0 { // batches of none: the first is empty, the items follow
						ahead = v
						size = -1
						return l
					}
					ahead = v
					return l
				}
				st.charge(valueSize)
				l.Items = append(l.Items, v)
			}
			if len(l.Items) == 0 {
				return nil
			}
			if _, none := fill.(None); fill != nil && !none {
				if !isInt {
					order(st, "<", Int(len(l.Items)), b[1])
				}
				if n := size - int64(len(l.Items)); n > 0 {
					l.Items = append(l.Items, repeatItems(st, []Value{fill}, n)...)
				}
			}
			return l
		}
	})
}

func filterSlice(st *state, b *[maxParams]Value) Value {
	v, count, fill := b[0], b[1], b[2]
	return lazily(func(st *state) pull {
		all := items(st, v)
		size := Int(len(all))
		per, more := binary(st, 'f', size, count), binary(st, '%', size, count)
		n, ok := indexOf(count)
		if !ok {
			raise("TypeError", "'%s' object cannot be interpreted as an integer", count.typeName())
		}
		each, _ := indexOf(per)
		extra, _ := indexOf(more)
		i, at := int64(0), int64(0)
		return func(st *state) Value {
			if i >= n {
				return nil
			}
			st.charge(valueSize)
			end := at + each
			if i < extra {
				end++
			}
			part := slices.Clone(all[min(at, int64(len(all))):min(end, int64(len(all)))])
			if _, none := fill.(None); fill != nil && !none && i >= extra {
				part = append(part, fill)
			}
			i, at = i+1, end
			return &List{part}
		}
	})
}

func filterMap(st *state, a args) Value {
	v := a.pos[0]
	rest := append([]Value(nil), a.pos[1:]...)
	kw := a.kw
	return lazily(func(st *state) pull {
		if !truthy(st, v) {
			return pullItems(nil)
		}
		f := mapper(st, rest, kw)
		next := mustIter(v)
		return func(st *state) Value {
			v := next(st)
			if v == nil {
				return nil
			}
			return f(st, v)
		}
	})
}

func mapper(st *state, rest []Value, kw []kwarg) func(*state, Value) Value {
	if len(rest) == 0 {
		var attr, otherwise Value
		found := false
		for _, k := range kw {
			if k.name == "attribute" {
				attr, found = k.v, true
			}
		}
		if !found {
			raise("FilterArgumentError", "map requires a filter argument")
		}
		for _, k := range kw {
			switch k.name {
			case "attribute":
			case "default":
				if _, none := k.v.(None); !none {
					otherwise = k.v
				}
			default:
				raise("FilterArgumentError", "Unexpected keyword argument %s", quote(k.name))
			}
		}
		return attrGetter(st, attr, false, otherwise)
	}
	f := lookUp(filters, "filter", rest[0])
	return func(st *state, v Value) Value {
		return f().apply(st, args{append([]Value{v}, rest[1:]...), kw})
	}
}

// lookUp finds a filter or test by the name that a template gives; an unknown one is an error when it is used.
func lookUp(table map[string]*filter, kind string, name Value) func() *filter {
	return func() *filter {
		s, ok := asStr(name)
		if f := table[s]; ok && f != nil {
			return f
		}
		hashKey(name)
		raise("TemplateRuntimeError", "No %s named %s.", kind, safeRepr(name))
		return nil
	}
}

func selectFilter(name string, negate, byAttr bool) func(st *state, a args) Value {
	return func(st *state, a args) Value {
		v := a.pos[0]
		rest := append([]Value(nil), a.pos[1:]...)
		kw := a.kw
		return lazily(func(st *state) pull {
			if !truthy(st, v) {
				return pullItems(nil)
			}
			passes := selector(st, rest, kw, byAttr)
			next := mustIter(v)
			return func(st *state) Value {
				for {
					v := next(st)
					if v == nil || passes(st, v) != negate {
						return v
					}
				}
			}
		})
	}
}

func selector(st *state, rest []Value, kw []kwarg, byAttr bool) func(*state, Value) bool {
	get := func(_ *state, v Value) Value { return v }
	if byAttr {
		if len(rest) == 0 {
			raise("FilterArgumentError", "Missing parameter for attribute name")
		}
		get = attrGetter(st, rest[0], false, nil)
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return func(st *state, v Value) bool { return truthy(st, get(st, v)) }
	}
	t := lookUp(tests, "test", rest[0])
	return func(st *state, v Value) bool {
		return truthy(st, t().apply(st, args{append([]Value{get(st, v)}, rest[1:]...), kw}))
	}
}
