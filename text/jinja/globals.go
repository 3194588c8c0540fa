package jinja

import (
	"math"
	"strings"
)

var globals = map[string]Value{}

// maxRange is the sandbox's largest number of items of a range.
const maxRange = 100_000

func init() { // the functions refer to the table through the state
	add := func(kind, name string, f func(st *state, a args) Value) {
		global := name[strings.LastIndexByte(name, '.')+1:]
		globals[strings.ToLower(global)] = &function{name: name, kind: kind, call: f}
	}
	add("function", "raise_exception", func(st *state, a args) Value {
		b := raiseSig.bind(a)
		raise("TemplateError", "%s", str(st, b[0]))
		return nil
	})
	add("function", "strftime_now", func(st *state, a args) Value {
		b := strftimeSig.bind(a)
		return Str(strftime(st, st.now, needStr("strftime_now", b[0])))
	})
	add("function", "range", makeRange)
	add("type", "dict", func(st *state, a args) Value { return makeDict(st, a) })
	add("type", "jinja2.utils.Namespace", func(st *state, a args) Value { return &namespace{makeDict(st, a)} })
	add("type", "jinja2.utils.Joiner", func(_ *state, a args) Value {
		b := joinerSig.bind(a)
		if b[0] == nil {
			b[0] = Str(", ")
		}
		return &joiner{sep: b[0]}
	})
	for _, name := range strings.Fields(refusedGlobals) {
		add("function", name, func(*state, args) Value {
			unsupported("the function " + name)
			return nil
		})
	}
}

var (
	raiseSig    = sig("raise_exception(*message)")
	strftimeSig = sig("strftime_now(*format)")
	joinerSig   = sig("Joiner(sep)")
)

func makeRange(_ *state, a args) Value {
	a.noKeys("range")
	r := &rangeObj{step: 1}
	n := [3]int64{}
	for i, v := range a.pos {
		if i > 2 {
			break
		}
		x, ok := indexOf(v)
		if !ok {
			raise("TypeError", "'%s' object cannot be interpreted as an integer", v.typeName())
		}
		if _, big := v.(bigInt); big || x == math.MinInt64 {
			raise("LimitError", "range() of an integer of more than 64 bits")
		}
		n[i] = x
	}
	switch len(a.pos) {
	case 1:
		r.stop = n[0]
	case 2:
		r.start, r.stop = n[0], n[1]
	case 3:
		r.start, r.stop, r.step = n[0], n[1], n[2]
		if r.step == 0 {
			raise("ValueError", "range() arg 3 must not be zero")
		}
	default:
		raise("TypeError", "range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	if r.length() > maxRange || r.length() < 0 {
		raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r
}

// makeDict evaluates Python's dict(...).
func makeDict(st *state, a args) *Dict {
	if len(a.pos) > 1 {
		raise("TypeError", "dict expected at most 1 argument, got %d", len(a.pos))
	}
	d := NewDict()
	if len(a.pos) == 1 {
		fillDict(st, d, a.pos[0])
	}
	for _, k := range a.kw {
		d.set(st, Str(k.name), k.v)
	}
	return d
}

func fillDict(st *state, d *Dict, v Value) {
	if from, ok := v.(*Dict); ok {
		for i, k := range from.keys {
			d.set(st, k, from.vals[i])
		}
		return
	}
	if u, ok := v.(*undefined); ok {
		u.use() // Python asks the value for its keys
	}
	next := mustIter(v)
	for i := 0; ; i++ {
		pair := next(st)
		if pair == nil {
			return
		}
		from := iterOf(pair)
		if from == nil {
			raise("TypeError", "cannot convert dictionary update sequence element #%d to a sequence", i)
		}
		kv := drain(st, from)
		if len(kv) != 2 {
			raise("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(kv))
		}
		d.set(st, kv[0], kv[1])
	}
}

func (j *joiner) attr(name string) Value {
	switch name {
	case "sep":
		return j.sep
	case "used":
		return Bool(j.used)
	}
	return nil
}
