package jinja

import "unicode/utf8"

func execAll(body []stmt, f *frame) control {
	for _, s := range body {
		f.st.step(1)
		if c := s.exec(f); c != goOn {
			return c
		}
	}
	return goOn
}

type (
	outputItem struct {
		text string // used if e is nil
		e    expr
		line int
	}
	outputStmt struct{ items []outputItem }
)

func (o *outputStmt) exec(f *frame) control {
	f.st.step(len(o.items))
	for i := range o.items {
		item := &o.items[i]
		if item.e == nil {
			f.st.write(item.text)
			continue
		}
		f.st.line = item.line
		if sum, ok := item.e.(*sumExpr); ok {
			sum.print(f)
			continue
		}
		v := item.e.eval(f)
		if s, ok := v.(Str); ok {
			f.st.write(string(s))
		} else {
			f.st.write(str(f.st, v))
		}
	}
	return goOn
}

type (
	ifArm struct {
		line int
		test expr
		body []stmt
	}
	ifStmt struct {
		arms []ifArm
		els  []stmt
	}
)

func (s *ifStmt) exec(f *frame) control {
	f.st.step(len(s.arms))
	for i := range s.arms {
		arm := &s.arms[i]
		f.st.line = arm.line
		if truthy(f.st, arm.test.eval(f)) {
			return execAll(arm.body, f)
		}
	}
	return execAll(s.els, f)
}

// target is the target of an assignment.
type (
	target      interface{ assign(f *frame, v Value) }
	slotTarget  int
	spaceTarget struct {
		space expr
		attr  string
	}
	tupleTarget []target
)

func (t slotTarget) assign(f *frame, v Value) { f.slots[t] = v }

func (t *spaceTarget) assign(f *frame, v Value) { t.space.eval(f).(*namespace).attrs.Set(t.attr, v) }

func (t tupleTarget) assign(f *frame, v Value) {
	var all []Value
	switch l := v.(type) {
	case *List:
		all = l.Items
	case *Tuple:
		all = l.items
	default:
		next := iterOf(v)
		if next == nil {
			raise("TypeError", "cannot unpack non-iterable %s object", v.typeName())
		}
		f.st.step(len(t))
		for len(all) <= len(t) {
			v := next(f.st)
			if v == nil {
				break
			}
			all = append(all, v)
		}
	}
	if len(all) > len(t) {
		raise("ValueError", "too many values to unpack (expected %d)", len(t))
	}
	if len(all) < len(t) {
		raise("ValueError", "not enough values to unpack (expected %d, got %d)", len(t), len(all))
	}
	for i := range t {
		t[i].assign(f, all[i])
	}
}

type setStmt struct {
	line   int
	target target
	value  expr
	spaces []expr // values that must be namespaces
}

func (s *setStmt) exec(f *frame) control {
	f.st.line = s.line
	checkSpaces(s.spaces, f)
	s.target.assign(f, s.value.eval(f))
	return goOn
}

func checkSpaces(spaces []expr, f *frame) {
	for _, e := range spaces {
		if _, ok := e.eval(f).(*namespace); !ok {
			raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
	}
}

// blockFilter has the filters of a {% filter %} or {% set %} block; the text is in a slot.
type blockFilter struct {
	filter expr
	text   int
}

func (b *blockFilter) apply(f *frame, text string) Value {
	f.slots[b.text] = Str(text)
	return b.filter.eval(f)
}

// captured runs a block's body and returns the text it wrote; the text is empty if the body leaves a loop. line is the
// block's line.
func captured(body []stmt, f *frame, line int) (string, control) {
	before := f.st.push()
	if c := execAll(body, f); c != goOn {
		f.st.drop(before)
		return "", c
	}
	text := f.st.pop(before)
	f.st.line = line
	return text, goOn
}

type setBlockStmt struct {
	line   int
	target target
	spaces []expr
	enter  enterScope
	leave  leaveScope
	body   []stmt
	filter *blockFilter
}

func (s *setBlockStmt) exec(f *frame) control {
	s.enter.exec(f)
	text, c := captured(s.body, f, s.line)
	if c != goOn {
		return c
	}
	var v Value = Str(text)
	if s.filter != nil {
		v = s.filter.apply(f, text)
	}
	for _, e := range s.spaces {
		if _, ok := e.eval(f).(*namespace); !ok {
			assignAttribute(e.eval(f))
		}
	}
	s.target.assign(f, v)
	s.leave.exec(f)
	return goOn
}

// assignAttribute raises Python's error for x['name'] = value on an x that is no namespace. Jinja2 only checks that in
// {% set %} with a value.
func assignAttribute(v Value) {
	if v == nil {
		v = None{}
	}
	if _, ok := v.(*Dict); ok {
		raise("SecurityError", "{%% set %%} blocks cannot change a dict")
	}
	raise("TypeError", "'%s' object does not support item assignment", v.typeName())
}

type filterBlockStmt struct {
	line   int
	enter  enterScope
	leave  leaveScope
	body   []stmt
	filter *blockFilter
}

func (s *filterBlockStmt) exec(f *frame) control {
	s.enter.exec(f)
	text, c := captured(s.body, f, s.line)
	if c != goOn {
		return c
	}
	writeString(f.st, s.filter.apply(f, text))
	s.leave.exec(f)
	return goOn
}

// writeString writes the result of a block, which must be a str.
func writeString(st *state, v Value) {
	s, ok := asStr(v)
	if !ok {
		raise("TypeError", "sequence item: expected str instance, %s found", v.typeName())
	}
	st.write(s)
}

type withStmt struct {
	line    int
	enter   enterScope
	leave   leaveScope
	targets []target
	values  []expr
	body    []stmt
}

func (s *withStmt) exec(f *frame) control {
	f.st.line = s.line
	s.enter.exec(f)
	f.st.step(len(s.targets))
	for i, t := range s.targets {
		t.assign(f, s.values[i].eval(f))
	}
	c := execAll(s.body, f)
	if c == goOn {
		s.leave.exec(f)
	}
	return c
}

type controlStmt control

func (c controlStmt) exec(*frame) control { return control(c) }

type macroStmt struct {
	slot int
	def  *macroDef
}

func (s *macroStmt) exec(f *frame) control {
	f.keep()
	f.slots[s.slot] = &macro{s.def, f}
	return goOn
}

type callBlockStmt struct {
	line int
	call *callExpr
	def  *macroDef
}

func (s *callBlockStmt) exec(f *frame) control {
	f.st.line = s.line
	f.keep()
	writeString(f.st, s.call.evalWith(f, kwarg{"caller", &macro{s.def, f}}))
	return goOn
}

type generationStmt struct {
	line int
	def  *macroDef
}

func (s *generationStmt) exec(f *frame) control {
	f.st.line = s.line
	m := &macro{s.def, f}
	text := m.call(f.st, args{})
	f.st.span(text)
	f.st.write(text)
	return goOn
}

// span records a generation block whose text follows.
func (st *state) span(text string) {
	st.charge(4 * valueSize)
	start := len(st.top.b)
	st.scan(start - st.counted[0] + len(text))
	st.counted[1] += utf8.RuneCount(st.top.b[st.counted[0]:])
	st.counted[0] = start
	runes := st.counted[1]
	st.spans = append(st.spans, [2]int{start, start + len(text)})
	st.runeSpans = append(st.runeSpans, [2]int{runes, runes + utf8.RuneCountInString(text)})
	st.captured = st.captured || st.cur != &st.top
}
