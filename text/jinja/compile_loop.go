package jinja

func (c *compiler) forLoop(n *forNode, s scope) stmt {
	st := &forStmt{line: n.line, iter: c.expr(n.iter, s), loopSlot: -1}
	outerFn := c.fn
	if n.recursive {
		c.fn = newScopeFunc(outerFn)
	}
	st.extended = n.recursive || undeclared(n.body, "loop")["loop"]
	in := s.inner(c.fn)
	if st.extended {
		st.loopSlot = in.parameter("loop").slot
	}
	in.asParameters(n.target)
	in.visitAll(n.body)
	els := s.inner(c.fn)
	els.visitAll(n.els)
	if n.test != nil {
		st.test = c.loopTest(n, s)
	}
	checkLoopName(n)
	st.target = c.target(n.target, in, nil)
	st.body = c.statements(n.body, in)
	st.enter, st.leave = c.enter(in)
	if len(n.els) > 0 {
		st.els = c.statements(n.els, els)
		st.elsEnter, st.elsLeave = c.enter(els)
	}
	if n.recursive {
		st.recursive, st.slots = true, len(c.fn.slots)
		c.fn = outerFn
	}
	return st
}

// checkLoopName refuses assignments to loop anywhere within a loop.
func checkLoopName(n node) {
	eachChild(n, func(child node) {
		if name, ok := child.(*nameNode); ok && name.ctx == 's' && name.name == "loop" {
			fail(name.line, "Can't assign to special loop variable in for-loop target")
		}
		checkLoopName(child)
	})
}

// loopTest compiles the if of a for, which is a function of its own.
func (c *compiler) loopTest(n *forNode, s scope) *loopTest {
	outerFn := c.fn
	c.fn = newScopeFunc(outerFn)
	in := s.inner(c.fn)
	in.asParameters(n.target)
	in.visit(n.test)
	t := &loopTest{line: n.line, target: c.target(n.target, in, nil), item: c.expr(asLoad(n.target), in)}
	t.test = c.expr(n.test, in)
	t.enter, _ = c.enter(in)
	t.slots = len(c.fn.slots)
	c.fn = outerFn
	return t
}

// asLoad returns a loop's target as an expression.
func asLoad(n node) node {
	switch n := n.(type) {
	case *nameNode:
		return &nameNode{n.at, n.name, 'l'}
	case *tupleNode:
		t := &tupleNode{at: n.at}
		for _, item := range n.items {
			t.items = append(t.items, asLoad(item))
		}
		return t
	}
	return n
}

func (c *compiler) macro(n *macroNode, s scope) *macroDef {
	outerFn := c.fn
	c.fn = newScopeFunc(outerFn)
	in := s.inner(c.fn)
	analyse := func() {
		for _, a := range n.args {
			in.visit(a)
		}
		in.visitAll(n.defaults)
		in.visitAll(n.body)
	}
	analyse()
	def := &macroDef{line: n.line, name: n.name, callerSlot: -1, kwargsSlot: -1, varargsSlot: -1}
	var caller, kwargs, varargs bool
	for i, a := range n.args {
		def.args = append(def.args, a.name)
		switch a.name {
		case "caller":
			caller = true
			if i < len(n.args)-len(n.defaults) && undeclared(n.body, "caller")["caller"] {
				fail(n.line, "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a default.")
			}
		case "kwargs":
			kwargs = true
		case "varargs":
			varargs = true
		}
	}
	def.explicitCaller = caller
	special := undeclared(n.body, "caller", "kwargs", "varargs")
	def.caller = special["caller"]
	if special["caller"] && !caller {
		def.callerSlot = in.parameter("caller").slot
	}
	if special["kwargs"] && !kwargs {
		def.kwargsSlot = in.parameter("kwargs").slot
	}
	if special["varargs"] && !varargs {
		def.varargsSlot = in.parameter("varargs").slot
	}
	analyse()
	for i, a := range n.args {
		def.argSlots = append(def.argSlots, c.ref(in, a.name, n.line).slot)
		def.undefined = append(def.undefined, &undefined{
			hint: "parameter " + quote(a.name) + " was not provided", name: Str(a.name)})
		var value expr
		if j := i - (len(n.args) - len(n.defaults)); j >= 0 {
			value = c.expr(n.defaults[j], in)
		}
		def.defaults = append(def.defaults, value)
	}
	def.body = c.statements(n.body, in)
	def.enter, _ = c.enter(in)
	def.slots = len(c.fn.slots)
	c.fn = outerFn
	return def
}
