package jinja

var tests map[string]*filter

func init() { // "is filter" and "is test" refer to the tables
	tests = map[string]*filter{}
	add := func(s string, f func(st *state, b *[maxParams]Value) bool, more ...string) {
		t := &filter{sig: sig(s), call: func(st *state, b *[maxParams]Value) Value { return Bool(f(st, b)) }}
		for _, name := range append(more, t.sig.name) {
			tests[name] = t
		}
	}
	is := func(name string, f func(v Value) bool) {
		add(name+"(*value)", func(_ *state, b *[maxParams]Value) bool { return f(b[0]) })
	}
	remainder := func(st *state, v, by Value, want Value) bool { return equal(st, binary(st, '%', v, by), want) }
	add("odd(*value)", func(st *state, b *[maxParams]Value) bool { return remainder(st, b[0], Int(2), Int(1)) })
	add("even(*value)", func(st *state, b *[maxParams]Value) bool { return remainder(st, b[0], Int(2), Int(0)) })
	add("divisibleby(*value, *num)", func(st *state, b *[maxParams]Value) bool { return remainder(st, b[0], b[1], Int(0)) })
	is("defined", func(v Value) bool { return !isUndefined(v) })
	is("undefined", isUndefined)
	is("none", func(v Value) bool { return v == None{} })
	is("boolean", func(v Value) bool { _, ok := v.(Bool); return ok })
	is("true", func(v Value) bool { return v == Bool(true) })
	is("false", func(v Value) bool { return v == Bool(false) })
	is("integer", func(v Value) bool { _, ok := v.(Bool); return isInt(v) && !ok })
	is("float", func(v Value) bool { _, ok := v.(Float); return ok })
	is("number", isNumber)
	is("string", func(v Value) bool { _, ok := asStr(v); return ok })
	is("mapping", func(v Value) bool { _, ok := v.(*Dict); return ok })
	is("sequence", isSequenceTest)
	is("iterable", func(v Value) bool { return iterOf(v) != nil })
	is("callable", callable)
	add("lower(*value)", func(st *state, b *[maxParams]Value) bool { return isLower(looked(st, str(st, b[0]))) })
	add("upper(*value)", func(st *state, b *[maxParams]Value) bool { return isUpper(looked(st, str(st, b[0]))) })
	add("sameas(*value, *other)", func(st *state, b *[maxParams]Value) bool { return same(st, b[0], b[1]) })
	add("in(*value, *seq)", func(st *state, b *[maxParams]Value) bool { return contains(st, b[0], b[1]) })
	add("eq(*a, *b, /)", func(st *state, b *[maxParams]Value) bool { return equal(st, b[0], b[1]) }, "==", "equalto")
	add("ne(*a, *b, /)", func(st *state, b *[maxParams]Value) bool { return !equal(st, b[0], b[1]) }, "!=")
	for op, names := range map[string][]string{"<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}} {
		add(names[0]+"(*a, *b, /)", func(st *state, b *[maxParams]Value) bool { return order(st, op, b[0], b[1]) },
			append(names, op)...)
	}
	refuseFilters(tests, "test", refusedTests)
}

// isSequenceTest reports whether a value has a length and items by number; a dict and an undefined value count.
func isSequenceTest(v Value) bool {
	switch v.(type) {
	case Str, markup, *List, *Tuple, *Dict, *rangeObj, *undefined:
		return true
	}
	return false
}

// same evaluates Python's "is", as far as the result does not depend on how CPython shares objects.
func same(st *state, a, b Value) bool {
	switch a.(type) {
	case Float, bigInt:
		return false
	}
	return identical(st, a, b)
}
