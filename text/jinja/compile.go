package jinja

import (
	"maps"
	"slices"
)

// control says how a statement ended.
type control byte

const (
	goOn control = iota
	breakLoop
	continueLoop
)

type (
	stmt interface{ exec(f *frame) control }
	expr interface{ eval(f *frame) Value }
)

// compiler turns nodes into statements and expressions whose variables are slots of frames.
type compiler struct {
	t      *Template
	fn     *scopeFunc
	names  map[string]int
	consts *state // evaluates constants
}

// scope is the context of a node: its symbols, and whether the node may never run, so that an unknown filter is an
// error only when it is reached.
type scope struct {
	*symbols
	soft bool
}

func (s scope) asSoft() scope { return scope{s.symbols, true} }

func (s scope) inner(fn *scopeFunc) scope { return scope{newSymbols(s.symbols, fn), false} }

func compile(root []node) *Template {
	c := &compiler{t: &Template{}, fn: newScopeFunc(nil), names: map[string]int{}}
	c.consts = &state{limits: Limits{Steps: 1_000_000, Memory: 1 << 20}.withDefaults()}
	c.consts.cur = &c.consts.top
	s := scope{newSymbols(nil, c.fn), false}
	if undeclared(root, "self")["self"] {
		fail(1, "self has no place in a chat template, which has no blocks")
	}
	s.visitAll(root)
	body := c.statements(root, s)
	enter, _ := c.enter(s)
	c.t.body = append([]stmt{enter}, body...)
	c.t.slots = len(c.fn.slots)
	c.t.names = make([]string, len(c.names))
	for name, i := range c.names {
		c.t.names[i] = name
	}
	return c.t
}

func newScopeFunc(up *scopeFunc) *scopeFunc { return &scopeFunc{up: up, slots: map[string]int{}} }

// loadOp prepares a variable when a scope is entered.
type loadOp struct {
	slot int
	from expr // nil = missing
}

type enterScope []loadOp

func (e enterScope) exec(f *frame) control {
	f.st.step(len(e))
	for _, op := range e {
		if op.from == nil {
			f.slots[op.slot] = nil
		} else {
			f.slots[op.slot] = op.from.eval(f)
		}
	}
	return goOn
}

// leaveScope marks the variables of a scope as missing again, for macros that were defined in it and outlive it.
type leaveScope []int

func (l leaveScope) exec(f *frame) control {
	f.st.step(len(l))
	for _, slot := range l {
		f.slots[slot] = nil
	}
	return goOn
}

func (c *compiler) enter(s scope) (enterScope, leaveScope) {
	ids := slices.SortedFunc(maps.Keys(s.loads), func(a, b ident) int { return a.slot - b.slot })
	var enter enterScope
	var leave leaveScope
	for _, id := range ids {
		leave = append(leave, id.slot)
		switch l := s.loads[id]; l.kind {
		case loadResolve:
			enter = append(enter, loadOp{id.slot, resolved(c.name(l.name))})
		case loadAlias:
			enter = append(enter, loadOp{id.slot, c.slot(l.from)})
		case loadUndefined:
			enter = append(enter, loadOp{id.slot, nil})
		}
	}
	return enter, leave
}

// name returns the index of a variable that is looked up by name.
func (c *compiler) name(name string) int {
	i, ok := c.names[name]
	if !ok {
		i = len(c.names)
		c.names[name] = i
	}
	return i
}

// slot returns an expression that reads a variable, nil if it is missing.
func (c *compiler) slot(id ident) expr {
	hops := 0
	for fn := c.fn; fn != id.fn; fn = fn.up {
		hops++
	}
	if hops == 0 {
		return local(id.slot)
	}
	return &outer{hops, id.slot}
}

func (c *compiler) ref(s scope, name string, line int) ident {
	id, ok := s.findRef(name)
	if !ok {
		fail(line, "Tried to resolve a name to a reference that was unknown to the frame ('%s')", name)
	}
	return id
}

func (c *compiler) statements(nodes []node, s scope) []stmt {
	var all []stmt
	for _, n := range nodes {
		all = append(all, c.statement(n, s))
	}
	return all
}

func (c *compiler) statement(n node, s scope) stmt {
	switch n := n.(type) {
	case *outputNode:
		return c.output(n, s)
	case *forNode:
		return c.forLoop(n, s)
	case *ifNode:
		return c.ifChain(n, s.asSoft())
	case *setNode:
		return c.set(n, s)
	case *setBlockNode:
		return c.setBlock(n, s)
	case *withNode:
		return c.with(n, s)
	case *macroNode:
		def := c.macro(n, s)
		return &macroStmt{c.ref(s, n.name, n.line).slot, def}
	case *callBlockNode:
		def := c.macro(n.macroNode, s)
		def.anonymous = true
		if n.generation {
			c.t.hasGens = true
			return &generationStmt{n.line, def}
		}
		return &callBlockStmt{n.line, c.call(n.call, s), def}
	case *filterBlockNode:
		inner := s.inner(c.fn)
		inner.visitAll(n.body)
		inner.visit(n.filter)
		st := &filterBlockStmt{line: n.line}
		st.body = c.statements(n.body, inner)
		st.filter = c.blockFilter(n.filter, inner)
		st.enter, st.leave = c.enter(inner)
		return st
	case *loopControlNode:
		if n.brk {
			return controlStmt(breakLoop)
		}
		return controlStmt(continueLoop)
	}
	panic("jinja: a node that is no statement")
}

// blockFilter compiles the filters of a block. The innermost receives the text in the frame's blockText.
func (c *compiler) blockFilter(n node, s scope) *blockFilter {
	b := &blockFilter{text: c.fn.slot(s.level, " text")}
	b.filter = c.expr(withText(n, local(b.text)), s)
	return b
}

// textNode is the text of a block as an expression.
type textNode struct {
	at
	text local
}

// withText gives the innermost filter its text as input.
func withText(n node, text local) node {
	f, ok := n.(*filterNode)
	if !ok {
		return &textNode{at{1}, text}
	}
	c := *f
	if f.x == nil {
		c.x = &textNode{f.at, text}
	} else {
		c.x = withText(f.x, text)
	}
	return &c
}

func (c *compiler) ifChain(n *ifNode, s scope) stmt {
	st := &ifStmt{}
	arm := func(n *ifNode) {
		st.arms = append(st.arms, ifArm{n.line, c.expr(n.test, s), c.statements(n.body, s)})
	}
	arm(n)
	for _, e := range n.elifs {
		arm(e)
	}
	st.els = c.statements(n.els, s)
	return st
}

func (c *compiler) set(n *setNode, s scope) stmt {
	st := &setStmt{line: n.line, value: c.expr(n.value, s)}
	st.target = c.target(n.target, s, &st.spaces)
	return st
}

func (c *compiler) setBlock(n *setBlockNode, s scope) stmt {
	inner := s.inner(c.fn)
	inner.visitAll(n.body)
	st := &setBlockStmt{line: n.line}
	st.body = c.statements(n.body, inner)
	if n.filter != nil {
		st.filter = c.blockFilter(n.filter, inner)
	}
	st.enter, st.leave = c.enter(inner)
	st.target = c.target(n.target, s, &st.spaces)
	return st
}

func (c *compiler) with(n *withNode, s scope) stmt {
	inner := s.inner(c.fn)
	inner.visitAll(n.targets)
	inner.visitAll(n.body)
	st := &withStmt{line: n.line}
	for i, t := range n.targets {
		st.values = append(st.values, c.expr(n.values[i], s))
		st.targets = append(st.targets, c.target(t, inner, nil))
	}
	st.body = c.statements(n.body, inner)
	st.enter, st.leave = c.enter(inner)
	return st
}

// target compiles the target of an assignment; it adds the namespaces whose attributes are set to spaces.
func (c *compiler) target(n node, s scope, spaces *[]expr) target {
	switch n := n.(type) {
	case *nameNode:
		return slotTarget(c.ref(s, n.name, n.line).slot)
	case *nsRefNode:
		space := c.slot(c.ref(s, n.name, n.line))
		*spaces = append(*spaces, space)
		return &spaceTarget{space, n.attr}
	}
	t := tupleTarget{}
	for _, item := range n.(*tupleNode).items {
		t = append(t, c.target(item, s, spaces))
	}
	return t
}

func (c *compiler) output(n *outputNode, s scope) stmt {
	out := &outputStmt{}
	for _, item := range n.items {
		text, isText := "", false
		var e expr
		if d, ok := item.(*dataNode); ok {
			text, isText = d.text, true
		} else {
			e = c.fold(item, s)
			if k, ok := e.(*constant); ok {
				text, isText = c.constText(k.v)
			}
		}
		if !isText {
			out.items = append(out.items, outputItem{line: item.lineOf(), e: c.use(e)})
			continue
		}
		if last := len(out.items) - 1; last >= 0 && out.items[last].e == nil {
			out.items[last].text += text
		} else {
			out.items = append(out.items, outputItem{line: item.lineOf(), text: text})
		}
	}
	return out
}

func (c *compiler) constText(v Value) (text string, ok bool) {
	ok = c.try(func() { text = str(c.consts, v) })
	return text, ok
}
