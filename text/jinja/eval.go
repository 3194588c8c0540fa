package jinja

import "strings"

type (
	// constant is a value known at compile time; runtime, where it is not nil, is what is evaluated instead
	// once the constants around it are folded.
	constant struct {
		v       Value
		runtime expr
	}
	local    int // a slot of this frame, nil if the variable is missing
	outer    struct{ hops, slot int }
	resolved int // a variable that is looked up by name
	localVar struct {
		slot    int
		missing *undefined
	}
	outerVar struct {
		slot    expr
		missing *undefined
	}
	nameError struct{ name string }
)

func (e *constant) eval(*frame) Value  { return e.v }
func (e local) eval(f *frame) Value    { return f.slots[e] }
func (e resolved) eval(f *frame) Value { return f.st.names[e] }

func (e *outer) eval(f *frame) Value {
	for range e.hops {
		f = f.up
	}
	return f.slots[e.slot]
}

func (e *localVar) eval(f *frame) Value {
	if v := f.slots[e.slot]; v != nil {
		return v
	}
	return e.missing
}

func (e *outerVar) eval(f *frame) Value {
	if v := e.slot.eval(f); v != nil {
		return v
	}
	return e.missing
}

func (e *nameError) eval(*frame) Value {
	raise("NameError", "name '%s' is not defined", e.name)
	return nil
}

type (
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
)

func evalAll(f *frame, items []expr) []Value {
	f.st.charge(4 * valueSize * len(items))
	f.st.step(len(items))
	all := make([]Value, len(items))
	for i, e := range items {
		all[i] = e.eval(f)
	}
	return all
}

func (e *tupleExpr) eval(f *frame) Value { return &Tuple{evalAll(f, e.items)} }
func (e *listExpr) eval(f *frame) Value  { return &List{evalAll(f, e.items)} }

func (e *dictExpr) eval(f *frame) Value {
	f.st.step(len(e.keys))
	d := NewDict()
	for i, k := range e.keys {
		key := k.eval(f)
		d.set(f.st, key, e.values[i].eval(f))
	}
	return d
}

type binaryExpr struct {
	op          byte
	left, right expr
}

func (e *binaryExpr) eval(f *frame) Value {
	f.st.step(1)
	a := e.left.eval(f)
	return binary(f.st, e.op, a, e.right.eval(f))
}

// sumExpr is a + b + c; texts are joined at once.
type sumExpr struct{ parts []expr }

const sumParts = 12

func (e *sumExpr) eval(f *frame) Value {
	var room [sumParts]Value
	all, n := e.values(f, room[:0])
	if n < 0 {
		v := all[0]
		for _, w := range all[1:] {
			v = binary(f.st, '+', v, w)
		}
		return v
	}
	f.st.charge(n)
	var b strings.Builder
	b.Grow(n)
	for _, v := range all {
		b.WriteString(string(v.(Str)))
	}
	return Str(b.String())
}

// values returns the operands and the length of their text, -1 if an operand is no text.
func (e *sumExpr) values(f *frame, all []Value) ([]Value, int) {
	n := 0
	f.st.step(len(e.parts))
	for _, p := range e.parts {
		v := p.eval(f)
		if s, ok := v.(Str); ok && n >= 0 {
			n += len(s)
		} else {
			n = -1
		}
		all = append(all, v)
	}
	return all, n
}

// print writes the sum without building it.
func (e *sumExpr) print(f *frame) {
	var room [sumParts]Value
	all, n := e.values(f, room[:0])
	if n < 0 {
		v := all[0]
		for _, w := range all[1:] {
			v = binary(f.st, '+', v, w)
		}
		f.st.write(str(f.st, v))
		return
	}
	for _, v := range all {
		f.st.write(string(v.(Str)))
	}
}

type concatExpr struct{ items []expr }

func (e *concatExpr) eval(f *frame) Value {
	var room [sumParts]string
	all, n := room[:0], 0
	f.st.step(len(e.items))
	values := make([]Value, len(e.items))
	for i, item := range e.items {
		values[i] = item.eval(f)
	}
	for _, v := range values {
		s := str(f.st, v)
		all = append(all, s)
		n += len(s)
	}
	f.st.charge(n)
	return Str(strings.Join(all, ""))
}

type boolExpr struct {
	and         bool
	left, right expr
}

func (e *boolExpr) eval(f *frame) Value {
	f.st.step(1)
	v := e.left.eval(f)
	if truthy(f.st, v) != e.and {
		return v
	}
	return e.right.eval(f)
}

type unaryExpr struct {
	op byte
	x  expr
}

func (e *unaryExpr) eval(f *frame) Value {
	f.st.step(1)
	v := e.x.eval(f)
	if e.op == '!' {
		return Bool(!truthy(f.st, v))
	}
	if n, ok := asBig(v); ok {
		if e.op == '-' {
			if i, ok := v.(Int); ok && i != -1<<63 {
				return -i
			}
			return number(f.st, '-', Int(0), norm(n))
		}
		return norm(n)
	}
	if x, ok := v.(Float); ok {
		if e.op == '-' {
			return -x
		}
		return x
	}
	if u, ok := v.(*undefined); ok {
		u.use()
	}
	raise("TypeError", "bad operand type for unary %c: '%s'", e.op, v.typeName())
	return nil
}

type condExpr struct {
	test, yes, no expr
	missing       *undefined // result if there is no else
}

func (e *condExpr) eval(f *frame) Value {
	f.st.step(1)
	if truthy(f.st, e.test.eval(f)) {
		return e.yes.eval(f)
	}
	if e.no == nil {
		return e.missing
	}
	return e.no.eval(f)
}

// compareExpr is a chain such as 1 < x <= y: each operand is evaluated once.
type compareExpr struct {
	first expr
	ops   []string
	rest  []expr
}

func (e *compareExpr) eval(f *frame) Value {
	f.st.step(len(e.rest))
	a := e.first.eval(f)
	for i, op := range e.ops[:len(e.rest)] {
		b := e.rest[i].eval(f)
		if !compare(f.st, op, a, b) {
			return Bool(false)
		}
		a = b
	}
	return Bool(true)
}

func compare(st *state, op string, a, b Value) bool {
	switch op {
	case "==":
		return equal(st, a, b)
	case "!=":
		return !equal(st, a, b)
	case "in":
		return contains(st, a, b)
	case "not in":
		return !contains(st, a, b)
	}
	return order(st, op, a, b)
}

// comparison is one operator; equality with a constant text is the most frequent comparison in templates.
type (
	comparison struct {
		op          string
		left, right expr
	}
	equalsText struct {
		x    expr
		text Str
		not  bool
	}
)

func newCompare(op string, left, right expr) expr {
	if k, ok := right.(*constant); ok && (op == "==" || op == "!=") {
		if text, ok := k.v.(Str); ok {
			return &equalsText{left, text, op == "!="}
		}
	}
	return &comparison{op, left, right}
}

func (e *comparison) eval(f *frame) Value {
	f.st.step(1)
	a := e.left.eval(f)
	return Bool(compare(f.st, e.op, a, e.right.eval(f)))
}

func (e *equalsText) eval(f *frame) Value {
	f.st.step(1)
	v := e.x.eval(f)
	if s, ok := v.(Str); ok {
		if len(s) == len(e.text) {
			f.st.scan(len(s))
		}
		return Bool((s == e.text) != e.not)
	}
	s, ok := v.(markup)
	f.st.scan(len(s))
	return Bool((ok && Str(s) == e.text) != e.not)
}
