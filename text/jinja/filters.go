package jinja

var filters map[string]*filter

func init() { // map, select and similar filters look up filters and tests by name
	filters = map[string]*filter{}
	add := func(s string, f func(st *state, b *[maxParams]Value) Value, more ...string) {
		x := &filter{sig: sig(s), call: f}
		for _, name := range append(more, x.sig.name) {
			filters[name] = x
		}
	}
	addText(add)
	addNumbers(add)
	addSequences(add)
	filters["tojson"] = &filter{sig: tojsonSig, call: tojson}
	for name, f := range map[string]func(st *state, a args) Value{
		"map": filterMap, "select": selectFilter("select", false, false), "reject": selectFilter("reject", true, false),
		"selectattr": selectFilter("selectattr", false, true), "rejectattr": selectFilter("rejectattr", true, true),
	} {
		filters[name] = &filter{context: true, open: f}
	}
	refuseFilters(filters, "filter", refusedFilters)
}

type adder func(s string, f func(st *state, b *[maxParams]Value) Value, more ...string)

func addText(add adder) {
	add("string(*object, /)", func(st *state, b *[maxParams]Value) Value {
		if _, ok := asStr(b[0]); ok {
			return b[0]
		}
		return Str(str(st, b[0]))
	})
	for name, f := range map[string]func(string) string{"upper": upper, "lower": lower, "capitalize": capitalize} {
		add(name+"(*s)", func(st *state, b *[maxParams]Value) Value {
			return like(b[0], changed(st, str(st, b[0]), f))
		})
	}
	add("title(*s)", func(st *state, b *[maxParams]Value) Value {
		return Str(changed(st, str(st, b[0]), titleWords))
	})
	add("trim(*value, chars)", func(st *state, b *[maxParams]Value) Value {
		return like(b[0], strip(st, str(st, b[0]), b[1], true, true))
	})
	add("replace(*s, *old, *new, count)", func(st *state, b *[maxParams]Value) Value {
		n := int64(-1)
		if _, none := b[3].(None); b[3] != nil && !none {
			n = needInt("replace", b[3])
		}
		return Str(replace(st, str(st, b[0]), str(st, b[1]), str(st, b[2]), n))
	})
	add("safe(*value)", func(st *state, b *[maxParams]Value) Value { return markup(str(st, b[0])) })
	add("escape(*s, /)", func(st *state, b *[maxParams]Value) Value { return escapeValue(st, b[0]) }, "e")
	add("indent(*s, width, first, blank)", filterIndent)
	add("join(*value, d, attribute)", filterJoin)
}

func addNumbers(add adder) {
	add("abs(*x, /)", filterAbs)
	add("int(*value, default, base)", filterInt)
	add("float(*value, default)", filterFloat)
	add("round(*value, precision, method)", filterRound)
}

func addSequences(add adder) {
	add("default(*value, default_value, boolean)", func(st *state, b *[maxParams]Value) Value {
		if isUndefined(b[0]) || b[2] != nil && truthy(st, b[2]) && !truthy(st, b[0]) {
			if b[1] == nil {
				return Str("")
			}
			return b[1]
		}
		return b[0]
	}, "d")
	add("length(*obj, /)", func(st *state, b *[maxParams]Value) Value {
		n, ok := length(st, b[0])
		if !ok {
			raise("TypeError", "object of type '%s' has no len()", b[0].typeName())
		}
		return Int(n)
	}, "count")
	add("list(*value)", func(st *state, b *[maxParams]Value) Value { return &List{items(st, b[0])} })
	add("first(*seq)", func(st *state, b *[maxParams]Value) Value {
		if v := mustIter(b[0])(st); v != nil {
			return v
		}
		return &undefined{hint: "No first item, sequence was empty."}
	})
	add("last(*seq)", filterLast)
	add("reverse(*value)", filterReverse)
	add("items(*value)", filterItems)
	add("dictsort(*value, case_sensitive, by, reverse)", filterDictsort)
	add("sort(*value, reverse, case_sensitive, attribute)", filterSort)
	add("unique(*value, case_sensitive, attribute)", filterUnique)
	add("min(*value, case_sensitive, attribute)", func(st *state, b *[maxParams]Value) Value { return extreme(st, b, "<") })
	add("max(*value, case_sensitive, attribute)", func(st *state, b *[maxParams]Value) Value { return extreme(st, b, ">") })
	add("sum(*iterable, attribute, start)", filterSum)
	add("attr(*obj, *name)", func(st *state, b *[maxParams]Value) Value {
		name, ok := asStr(b[1])
		if !ok {
			raise("TypeError", "getattr(): attribute name must be string")
		}
		if u, ok := b[0].(*undefined); ok && !hasDunder(u, name) {
			u.use()
		}
		if a := attribute(st, b[0], name); a != nil {
			return a
		}
		return &undefined{obj: b[0], name: b[1]}
	})
}
