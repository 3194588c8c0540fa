package jinja

import "strings"

// args are the arguments of a call. The memory of pos is reused: a callee that keeps it must copy it.
type (
	args struct {
		pos []Value
		kw  []kwarg
	}
	kwarg struct {
		name string
		v    Value
	}
)

// argExprs are the arguments in the template.
type argExprs struct {
	pos            []expr
	keys           []string
	values         []expr
	star, starStar expr
}

// eval appends the arguments to those of the calls in progress; done releases their memory.
func (e *argExprs) eval(f *frame, first Value) (a args, done int) {
	st := f.st
	st.step(len(e.pos) + len(e.keys))
	done = len(st.stack)
	if first != nil {
		st.stack = append(st.stack, first)
	}
	for _, x := range e.pos {
		v := x.eval(f)
		st.stack = append(st.stack, v)
	}
	for i, key := range e.keys {
		a.kw = append(a.kw, kwarg{key, e.values[i].eval(f)})
	}
	if e.star != nil {
		v := e.star.eval(f)
		if iterOf(v) == nil {
			raise("TypeError", "Value after * must be an iterable, not %s", v.typeName())
		}
		all := items(st, v)
		st.charge(2 * valueSize * len(all))
		st.stack = append(st.stack, all...)
	}
	if e.starStar != nil {
		a.kw = spread(st, a.kw, e.starStar.eval(f))
	}
	a.pos = st.stack[done:len(st.stack):len(st.stack)]
	return a, done
}

// spread adds the items of a dict as keyword arguments.
func spread(st *state, kw []kwarg, v Value) []kwarg {
	d, ok := v.(*Dict)
	if !ok {
		if u, ok := v.(*undefined); ok {
			u.use()
		}
		raise("TypeError", "argument after ** must be a mapping, not %s", v.typeName())
	}
	for i, k := range d.keys {
		name, ok := asStr(k)
		if !ok {
			raise("TypeError", "keywords must be strings")
		}
		st.step(len(kw))
		for _, old := range kw {
			if old.name == name {
				raise("TypeError", "got multiple values for keyword argument '%s'", name)
			}
		}
		st.charge(4 * valueSize)
		kw = append(kw, kwarg{name, d.vals[i]})
	}
	return kw
}

func (a args) noKeys(name string) {
	if len(a.kw) > 0 {
		raise("TypeError", "%s() takes no keyword arguments", name)
	}
}

// maxParams is the largest number of parameters of a built-in function.
const maxParams = 6

// signature names the parameters of a built-in function.
type signature struct {
	name     string
	params   []string
	required int
	// this many parameters, counted from the first, cannot be passed by name
	positional int
}

// sig parses a signature such as "split(sep, maxsplit)": a * before a name marks a required parameter; a / marks the
// ones before it as positional only.
func sig(s string) signature {
	name, params, _ := strings.Cut(strings.TrimSuffix(s, ")"), "(")
	out := signature{name: name}
	for _, p := range strings.Fields(strings.ReplaceAll(params, ",", " ")) {
		if p == "/" {
			out.positional = len(out.params)
			continue
		}
		if strings.HasPrefix(p, "*") {
			out.required++
		}
		out.params = append(out.params, strings.TrimPrefix(p, "*"))
	}
	return out
}

// bind returns the argument of each parameter, nil if there is none.
func (s *signature) bind(a args) (b [maxParams]Value) {
	s.bindTo(&b, a)
	return b
}

func (s *signature) bindTo(b *[maxParams]Value, a args) {
	if len(a.pos) > len(s.params) {
		raise("TypeError", "%s() takes at most %d arguments (%d given)", s.name, len(s.params), len(a.pos))
	}
	clear(b[copy(b[:], a.pos):])
	for _, k := range a.kw {
		i := len(s.params) - 1
		for i >= s.positional && s.params[i] != k.name {
			i--
		}
		if i < s.positional {
			raise("TypeError", "%s() got an unexpected keyword argument '%s'", s.name, k.name)
		}
		if b[i] != nil {
			raise("TypeError", "%s() got multiple values for argument '%s'", s.name, k.name)
		}
		b[i] = k.v
	}
	for i := range s.required {
		if b[i] == nil {
			raise("TypeError", "%s() missing required argument '%s' (pos %d)", s.name, s.params[i], i+1)
		}
	}
}

type callExpr struct {
	line   int
	callee expr
	method *getattrExpr // set if the callee is x.name
	args   argExprs
}

func (e *callExpr) eval(f *frame) Value { return e.evalWith(f, kwarg{}) }

// evalWith calls with one additional keyword argument, the caller of a call block.
func (e *callExpr) evalWith(f *frame, more kwarg) Value {
	st := f.st
	var self, callee Value
	var m *method
	if e.method != nil {
		self = e.method.x.eval(f)
		if m = e.method.methodOf(self); m == nil || m.mutates {
			m, callee = nil, getattr(st, self, e.method.name)
		}
	} else {
		callee = e.callee.eval(f)
	}
	a, done := e.args.eval(f, nil)
	if more.v != nil {
		a.kw = append(a.kw, more)
	}
	st.step(1)
	var v Value
	if m != nil {
		v = m.call(st, self, a)
	} else {
		v = call(st, callee, a)
	}
	clear(st.stack[done:])
	st.stack = st.stack[:done]
	return v
}

// call evaluates Python's v(...).
func call(st *state, v Value, a args) Value {
	switch v := v.(type) {
	case *function:
		return v.call(st, a)
	case *macro:
		return Str(v.call(st, a))
	case *loopContext:
		return v.call(st, a)
	case *joiner:
		if len(a.pos)+len(a.kw) > 0 {
			raise("TypeError", "Joiner.__call__() takes 1 positional argument")
		}
		if !v.used {
			v.used = true
			return Str("")
		}
		return v.sep
	case *undefined:
		v.use()
	}
	raise("TypeError", "'%s' object is not callable", v.typeName())
	return nil
}

func callable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *loopContext, *joiner, *undefined:
		return true
	}
	return false
}

type (
	filter struct {
		sig     signature
		context bool // is never evaluated at compile time
		call    func(st *state, b *[maxParams]Value) Value
		open    func(st *state, a args) Value // accepts any arguments; used in place of call
	}
	filterExpr struct {
		line   int
		name   string
		filter *filter
		x      expr
		args   argExprs
	}
	testExpr struct {
		line int
		name string
		test *filter
		x    expr
		args argExprs
	}
)

func (e *filterExpr) eval(f *frame) Value {
	v := e.x.eval(f)
	a, done := e.args.eval(f, v)
	if e.filter == nil {
		raise("TemplateRuntimeError", "No filter named %s found.", quote(e.name))
	}
	v = e.filter.apply(f.st, a)
	clear(f.st.stack[done:])
	f.st.stack = f.st.stack[:done]
	return v
}

func (f *filter) apply(st *state, a args) Value {
	st.step(1)
	st.scanAll(a.pos)
	if f.open != nil {
		return f.open(st, a)
	}
	b := st.room()
	f.sig.bindTo(b, a)
	v := f.call(st, b)
	st.giveRoom(b)
	return v
}

func (e *testExpr) eval(f *frame) Value {
	v := e.x.eval(f)
	a, done := e.args.eval(f, v)
	if e.test == nil {
		raise("TemplateRuntimeError", "No test named %s found.", quote(e.name))
	}
	v = e.test.apply(f.st, a)
	clear(f.st.stack[done:])
	f.st.stack = f.st.stack[:done]
	return v
}
