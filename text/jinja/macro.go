package jinja

// macroDef is the definition of a macro, or of the body of a call block.
type macroDef struct {
	line                                int
	name                                string
	anonymous                           bool
	args                                []string
	argSlots                            []int
	defaults                            []expr // nil = none
	undefined                           []*undefined
	enter                               enterScope
	body                                []stmt
	slots                               int
	caller, explicitCaller              bool
	callerSlot, kwargsSlot, varargsSlot int // -1 = the macro does not read it
}

// macro is a macro with the frame that it was defined in, whose variables it reads.
type macro struct {
	def *macroDef
	up  *frame
}

func (m *macro) reprName() string {
	if m.def.anonymous {
		return "anonymous"
	}
	return quote(m.def.name)
}

func (m *macro) pyName() string {
	if m.def.anonymous {
		return "None"
	}
	return quote(m.def.name)
}

// call binds the arguments and returns the text of the body.
func (m *macro) call(st *state, a args) string {
	st.enter()
	st.step(m.def.slots)
	line := st.line
	f := &frame{st: st, slots: make([]Value, m.def.slots), up: m.up}
	m.bind(st, f, a)
	m.def.enter.exec(f)
	st.step(len(m.def.argSlots))
	for i, slot := range m.def.argSlots {
		if f.slots[slot] != nil {
			continue
		}
		if e := m.def.defaults[i]; e != nil {
			f.slots[slot] = e.eval(f)
		} else {
			f.slots[slot] = m.def.undefined[i]
		}
	}
	before := st.push()
	execAll(m.def.body, f)
	text := st.pop(before)
	st.line = line
	st.leave()
	return text
}

func (m *macro) bind(st *state, f *frame, a args) {
	def := m.def
	n := len(def.args)
	taken := copyArgs(f, def.argSlots, a.pos)
	kw := a.kw
	st.step(len(a.pos) + len(kw))
	pop := func(name string) Value {
		st.step(len(kw))
		for i, k := range kw {
			if k.name == name {
				kw = append(append([]kwarg(nil), kw[:i]...), kw[i+1:]...)
				return k.v
			}
		}
		return nil
	}
	foundCaller := def.explicitCaller
	if taken < n {
		foundCaller = false
		for i := taken; i < n; i++ {
			f.slots[def.argSlots[i]] = pop(def.args[i])
			foundCaller = foundCaller || def.args[i] == "caller"
		}
	}
	if def.caller && !foundCaller && def.callerSlot >= 0 {
		v := pop("caller")
		if _, none := v.(None); v == nil || none {
			v = &undefined{hint: "No caller defined", name: Str("caller")}
		}
		f.slots[def.callerSlot] = v
	}
	switch {
	case def.kwargsSlot >= 0:
		d := NewDict()
		for _, k := range kw {
			d.set(st, Str(k.name), k.v)
		}
		f.slots[def.kwargsSlot] = d
	case len(kw) > 0:
		for _, k := range kw {
			if k.name == "caller" {
				raise("TypeError", "macro %s was invoked with two values for the special caller argument. This is most likely a bug.", m.pyName())
			}
		}
		raise("TypeError", "macro %s takes no keyword argument %s", m.pyName(), quote(kw[0].name))
	}
	switch {
	case def.varargsSlot >= 0:
		st.charge(valueSize * len(a.pos))
		f.slots[def.varargsSlot] = NewTuple(append([]Value(nil), a.pos[taken:]...)...)
	case len(a.pos) > n:
		raise("TypeError", "macro %s takes not more than %d argument(s)", m.pyName(), n)
	}
}

func copyArgs(f *frame, slots []int, pos []Value) int {
	n := min(len(slots), len(pos))
	for i := range n {
		f.slots[slots[i]] = pos[i]
	}
	return n
}

func (m *macro) attr(name string) Value {
	switch name {
	case "name":
		if m.def.anonymous {
			return None{}
		}
		return Str(m.def.name)
	case "arguments":
		t := &Tuple{}
		for _, a := range m.def.args {
			t.items = append(t.items, Str(a))
		}
		return t
	case "caller":
		return Bool(m.def.caller)
	case "explicit_caller":
		return Bool(m.def.explicitCaller)
	case "catch_kwargs":
		return Bool(m.def.kwargsSlot >= 0)
	case "catch_varargs":
		return Bool(m.def.varargsSlot >= 0)
	}
	return nil
}
