package jinja

import (
	"maps"
	"slices"
)

// Jinja2 compiles a template to Python functions whose local variables carry the name and the level of the
// scope: l_1_item. Which of them a name means, and what it holds when a scope is entered, follows from one
// pass over the scope's nodes. symbols does the same, so that every quirk of scope comes out alike: a
// function is a frame, and an identifier is one of its slots.

type loadKind byte

const (
	loadParameter loadKind = iota + 1 // set by the code that enters the scope
	loadResolve                       // looked up by name
	loadAlias                         // copied from an outer scope's variable
	loadUndefined                     // missing until it is assigned
)

// ident is a variable: a slot of a function's frame.
type ident struct {
	fn   *scopeFunc
	slot int
}

type load struct {
	kind loadKind
	from ident  // for loadAlias
	name string // for loadResolve
}

// scopeFunc is a function of the template; it becomes one frame.
type scopeFunc struct {
	up    *scopeFunc
	slots map[string]int
}

func (f *scopeFunc) slot(level int, name string) int {
	key := string(rune('0'+level)) + name
	i, ok := f.slots[key]
	if !ok {
		i = len(f.slots)
		f.slots[key] = i
	}
	return i
}

type symbols struct {
	level  int
	fn     *scopeFunc
	parent *symbols
	refs   map[string]ident
	loads  map[ident]load
	stores map[string]bool
}

func newSymbols(parent *symbols, fn *scopeFunc) *symbols {
	s := &symbols{parent: parent, fn: fn, refs: map[string]ident{}, loads: map[ident]load{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

func (s *symbols) copy() *symbols {
	c := *s
	c.refs, c.loads, c.stores = maps.Clone(s.refs), maps.Clone(s.loads), maps.Clone(s.stores)
	return &c
}

func (s *symbols) define(name string, l load) ident {
	id := ident{s.fn, s.fn.slot(s.level, name)}
	s.refs[name] = id
	s.loads[id] = l
	return id
}

func (s *symbols) findRef(name string) (ident, bool) {
	for ; s != nil; s = s.parent {
		if id, ok := s.refs[name]; ok {
			return id, true
		}
	}
	return ident{}, false
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if outer, ok := s.parent.findRef(name); ok {
		s.define(name, load{kind: loadAlias, from: outer})
		return
	}
	s.define(name, load{kind: loadUndefined})
}

func (s *symbols) parameter(name string) ident {
	s.stores[name] = true
	return s.define(name, load{kind: loadParameter})
}

func (s *symbols) load(name string) {
	if _, ok := s.findRef(name); !ok {
		s.define(name, load{kind: loadResolve, name: name})
	}
}

// branchUpdate adopts the names that the branches of an if store and load.
func (s *symbols) branchUpdate(branches ...*symbols) {
	stores := map[string]bool{}
	for _, b := range branches {
		for name := range b.stores {
			if !s.stores[name] {
				stores[name] = true
			}
		}
	}
	for _, b := range branches {
		maps.Copy(s.refs, b.refs)
		maps.Copy(s.loads, b.loads)
		maps.Copy(s.stores, b.stores)
	}
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		id, _ := s.findRef(name)
		if outer, ok := s.parent.findRef(name); ok {
			s.loads[id] = load{kind: loadAlias, from: outer}
			continue
		}
		s.loads[id] = load{kind: loadResolve, name: name}
	}
}

// visitAll records the names of nodes that belong to the scope itself, not to nested scopes.
func (s *symbols) visitAll(nodes []node) {
	for _, n := range nodes {
		s.visit(n)
	}
}

func (s *symbols) visit(n node) {
	switch n := n.(type) {
	case *nameNode:
		switch n.ctx {
		case 'p':
			s.parameter(n.name)
		case 's':
			s.store(n.name)
		default:
			s.load(n.name)
		}
	case *nsRefNode:
		s.load(n.name)
	case *ifNode:
		s.visitIf(n)
	case *macroNode:
		s.store(n.name)
	case *setNode:
		s.visit(n.value)
		s.visit(n.target)
	case *forNode:
		s.visit(n.iter)
	case *callBlockNode:
		if n.call != nil {
			s.visit(n.call)
		}
	case *filterBlockNode:
		s.visit(n.filter)
	case *withNode:
		s.visitAll(n.values)
	case *setBlockNode:
		s.visit(n.target)
	default:
		eachChild(n, s.visit)
	}
}

func (s *symbols) visitIf(n *ifNode) {
	s.visit(n.test)
	branch := func(nodes []node) *symbols {
		c := s.copy()
		c.visitAll(nodes)
		return c
	}
	body := branch(n.body)
	elifs := s.copy()
	for _, e := range n.elifs {
		elifs.visit(e)
	}
	s.branchUpdate(body, elifs, branch(n.els))
}

// asParameters records the names of a loop's target.
func (s *symbols) asParameters(target node) {
	switch n := target.(type) {
	case *nameNode:
		s.parameter(n.name)
	case *tupleNode:
		for _, item := range n.items {
			s.asParameters(item)
		}
	}
}

// eachChild calls f for the direct children of a node, in Jinja2's order, without nil ones.
func eachChild(n node, f func(node)) {
	some := func(nodes ...node) {
		for _, c := range nodes {
			if c != nil {
				f(c)
			}
		}
	}
	args := func(a arguments) {
		some(a.args...)
		some(a.values...)
		some(a.star, a.starStar)
	}
	switch n := n.(type) {
	case *outputNode:
		some(n.items...)
	case *forNode:
		some(n.target, n.iter)
		some(n.body...)
		some(n.els...)
		some(n.test)
	case *ifNode:
		some(n.test)
		some(n.body...)
		for _, e := range n.elifs {
			f(e)
		}
		some(n.els...)
	case *withNode:
		some(n.targets...)
		some(n.values...)
		some(n.body...)
	case *macroNode:
		for _, a := range n.args {
			f(a)
		}
		some(n.defaults...)
		some(n.body...)
	case *callBlockNode:
		if n.call != nil {
			f(n.call)
		}
		eachChild(n.macroNode, f)
	case *filterBlockNode:
		some(n.body...)
		some(n.filter)
	case *setNode:
		some(n.target, n.value)
	case *setBlockNode:
		some(n.target, n.filter)
		some(n.body...)
	case *tupleNode:
		some(n.items...)
	case *listNode:
		some(n.items...)
	case *dictNode:
		for i := range n.keys {
			some(n.keys[i], n.values[i])
		}
	case *binaryNode:
		some(n.left, n.right)
	case *boolNode:
		some(n.left, n.right)
	case *unaryNode:
		some(n.x)
	case *compareNode:
		some(n.first)
		some(n.rest...)
	case *concatNode:
		some(n.items...)
	case *condNode:
		some(n.test, n.yes, n.no)
	case *getattrNode:
		some(n.x)
	case *getitemNode:
		some(n.x, n.index)
	case *sliceNode:
		some(n.start, n.stop, n.step)
	case *callNode:
		some(n.x)
		args(n.arguments)
	case *filterNode:
		some(n.x)
		args(n.arguments)
	case *testNode:
		some(n.x)
		args(n.arguments)
	}
}

// undeclared reports which of the names are read before they are assigned, in the order of all nodes.
func undeclared(nodes []node, names ...string) map[string]bool {
	found, declared := map[string]bool{}, map[string]bool{}
	var visit func(node)
	visit = func(n node) {
		if name, ok := n.(*nameNode); ok {
			if name.ctx != 'l' {
				declared[name.name] = true
			} else if slices.Contains(names, name.name) && !declared[name.name] {
				found[name.name] = true
			}
			return
		}
		eachChild(n, visit)
	}
	for _, n := range nodes {
		visit(n)
	}
	return found
}
