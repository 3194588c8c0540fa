package jinja

type forStmt struct {
	line                int
	iter                expr
	target              target
	test                *loopTest
	enter, elsEnter     enterScope
	leave, elsLeave     leaveScope
	body, els           []stmt
	loopSlot            int // slot of the variable loop; -1 = the body does not read it
	extended, recursive bool
	slots               int // slots of a recursive loop's frame
}

// loopTest is the if of a for: it iterates over the items in a frame of its own and yields those that pass.
type loopTest struct {
	line   int
	target target
	item   expr // reads the target again
	test   expr
	enter  enterScope
	slots  int
}

func (t *loopTest) filter(up *frame, next pull) pull {
	f := &frame{st: up.st, slots: make([]Value, t.slots), up: up}
	entered := false
	return func(st *state) Value {
		if !entered {
			t.enter.exec(f)
			entered = true
		}
		st.pull()
		defer st.pulled()
		for {
			v := next(st)
			if v == nil {
				return nil
			}
			st.step(1)
			t.target.assign(f, v)
			st.line = t.line
			if truthy(st, t.test.eval(f)) {
				return t.item.eval(f)
			}
		}
	}
}

func (s *forStmt) exec(f *frame) control {
	f.st.line = s.line
	v := s.iter.eval(f)
	if s.recursive {
		writeString(f.st, Str(s.recurse(f.st, f, v, 0)))
		return goOn
	}
	return s.loop(f, f, v, 0)
}

// recurse runs a recursive loop over v in a frame of its own and returns its text.
func (s *forStmt) recurse(st *state, up *frame, v Value, depth int) string {
	st.enter()
	defer st.leave()
	st.use(valueSize * s.slots)
	before := st.push()
	s.loop(&frame{st: st, slots: make([]Value, s.slots), up: up}, up, v, depth)
	return st.pop(before)
}

// loop iterates over v; up is the enclosing frame, which is f unless the loop is recursive.
func (s *forStmt) loop(f, up *frame, v Value, depth int) control {
	st := f.st
	next := mustIter(v)
	if s.test != nil {
		next = s.test.filter(f, next)
	}
	var l *loopContext
	if s.extended {
		st.use(16 * valueSize)
		l = &loopContext{next: next, index0: -1, depth0: depth}
		if s.test == nil {
			l.over = v
		}
		if s.recursive {
			l.body, l.up = s, up
		}
		f.slots[s.loopSlot] = nil
	}
	ran := false
	for {
		st.step(1)
		var item Value
		if l != nil {
			item = l.advance(st)
		} else {
			item = next(st)
		}
		if item == nil {
			break
		}
		s.target.assign(f, item)
		if l != nil {
			f.slots[s.loopSlot] = l
		}
		s.enter.exec(f)
		c := execAll(s.body, f)
		if c == breakLoop {
			// Python's "iteration_indicator" is cleared at the end of a body, so an iteration that breaks does not
			// count.
			break
		}
		if c == goOn {
			ran = true
		}
	}
	s.leave.exec(f)
	if ran || s.els == nil {
		return goOn
	}
	s.elsEnter.exec(f)
	c := execAll(s.els, f)
	s.elsLeave.exec(f)
	return c
}

// loopContext is the variable loop.
type loopContext struct {
	over    Value // the iterated value, if its length may be read; nil = a generator
	next    pull
	index0  int
	depth0  int
	size    int
	sized   bool
	after   Value
	current Value
	before  Value
	changed []Value
	called  bool
	body    *forStmt // body of a recursive loop
	up      *frame
}

func (l *loopContext) pull(st *state) Value {
	st.pull()
	defer st.pulled()
	return l.next(st)
}

func (l *loopContext) advance(st *state) Value {
	v := l.after
	if v != nil {
		l.after = nil
	} else if v = l.pull(st); v == nil {
		return nil
	}
	l.index0++
	l.before, l.current = l.current, v
	return v
}

func (l *loopContext) peek(st *state) Value {
	if l.after == nil {
		l.after = l.pull(st)
	}
	return l.after
}

func (l *loopContext) len(st *state) int {
	if l.sized {
		return l.size
	}
	n, ok := 0, false
	if l.over != nil {
		n, ok = length(st, l.over)
	}
	if !ok {
		rest := drain(st, l.next)
		l.next = pullItems(rest)
		n = len(rest) + l.index0 + 1
		if l.after != nil {
			n++
		}
	}
	l.size, l.sized = n, true
	return n
}

var (
	noPrevious = &undefined{hint: "there is no previous item"}
	noNext     = &undefined{hint: "there is no next item"}
)

// attr returns an attribute of loop, nil if it has none of that name.
func (l *loopContext) attr(st *state, name string) Value {
	switch name {
	case "index":
		return Int(l.index0 + 1)
	case "index0":
		return Int(l.index0)
	case "first":
		return Bool(l.index0 == 0)
	case "last":
		return Bool(l.peek(st) == nil)
	case "length":
		return Int(l.len(st))
	case "revindex":
		return Int(l.len(st) - l.index0)
	case "revindex0":
		return Int(l.len(st) - l.index0 - 1)
	case "depth":
		return Int(l.depth0 + 1)
	case "depth0":
		return Int(l.depth0)
	case "previtem":
		if l.index0 == 0 {
			return noPrevious
		}
		return l.before
	case "nextitem":
		if v := l.peek(st); v != nil {
			return v
		}
		return noNext
	case "cycle":
		return &function{"cycle", "method", l.cycle}
	case "changed":
		return &function{"changed", "method", l.change}
	}
	return nil
}

func (l *loopContext) cycle(_ *state, a args) Value {
	a.noKeys("LoopContext.cycle")
	if len(a.pos) == 0 {
		raise("TypeError", "no items for cycling given")
	}
	return a.pos[l.index0%len(a.pos)]
}

func (l *loopContext) change(st *state, a args) Value {
	a.noKeys("LoopContext.changed")
	if l.called && equalItems(st, l.changed, a.pos, 0) {
		return Bool(false)
	}
	l.called = true
	st.charge(valueSize * len(a.pos))
	l.changed = append([]Value(nil), a.pos...)
	return Bool(true)
}

// call runs the body over a nested iterable.
func (l *loopContext) call(st *state, a args) Value {
	a.noKeys("LoopContext.__call__")
	if len(a.pos) != 1 {
		raise("TypeError", "LoopContext.__call__() takes 2 positional arguments but %d were given", len(a.pos)+1)
	}
	if l.body == nil {
		raise("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
	}
	return Str(l.body.recurse(st, l.up, a.pos[0], l.depth0+1))
}
