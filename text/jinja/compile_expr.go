package jinja

import (
	"math"
	"slices"
)

// expr compiles an expression for use at render time.
func (c *compiler) expr(n node, s scope) expr { return c.use(c.fold(n, s)) }

// use returns an expression as Jinja2 writes it into Python. Infinity has no literal there, so its name is unknown, and
// an int that is too long to be written is refused.
func (c *compiler) use(e expr) expr {
	if k, ok := e.(*constant); ok {
		if k.runtime != nil {
			return k.runtime
		}
		if name := nonFinite(k.v); name != "" {
			return &nameError{name}
		}
	}
	return e
}

func nonFinite(v Value) string {
	switch v := v.(type) {
	case Float:
		if f := float64(v); f != f || math.IsInf(f, 0) {
			return floatRepr(math.Abs(f))
		}
	case bigInt:
		bigString(v) // raises if Python refuses to write an int with so many digits
	case *List:
		return anyNonFinite(v.Items)
	case *Tuple:
		return anyNonFinite(v.items)
	case *Dict:
		return anyNonFinite(v.keys) + anyNonFinite(v.vals)
	}
	return ""
}

func anyNonFinite(items []Value) string {
	for _, v := range items {
		if name := nonFinite(v); name != "" {
			return name
		}
	}
	return ""
}

// fold compiles an expression. An expression of constants becomes a *constant, as in Jinja2's optimizer. That matters
// for an operand that would not even compile: true or x|no_such_filter.
func (c *compiler) fold(n node, s scope) expr {
	switch n := n.(type) {
	case *constNode:
		return &constant{v: n.value}
	case *textNode:
		return n.text
	case *nameNode:
		return c.variable(n, s)
	case *tupleNode:
		return c.foldItems(n.items, s, func(items []expr) expr { return &tupleExpr{items} })
	case *listNode:
		return c.foldItems(n.items, s, func(items []expr) expr { return &listExpr{items} })
	case *dictNode:
		keys := len(n.keys)
		return c.foldItems(append(append([]node{}, n.keys...), n.values...), s, func(items []expr) expr {
			return &dictExpr{items[:keys], items[keys:]}
		})
	case *binaryNode:
		if n.op == '+' {
			return c.sum(n, s)
		}
		return c.foldItems([]node{n.left, n.right}, s, func(x []expr) expr { return &binaryExpr{n.op, x[0], x[1]} })
	case *boolNode:
		return c.foldBool(n, s)
	case *unaryNode:
		return c.foldItems([]node{n.x}, s, func(x []expr) expr { return &unaryExpr{n.op, x[0]} })
	case *compareNode:
		return c.foldCompare(n, s)
	case *concatNode:
		return c.foldItems(n.items, s, func(items []expr) expr { return &concatExpr{items} })
	case *condNode:
		return c.foldCond(n, s)
	case *getattrNode:
		return c.foldItems([]node{n.x}, s, func(x []expr) expr { return newGetattr(x[0], n.name) })
	case *getitemNode:
		if slice, ok := n.index.(*sliceNode); ok {
			return c.foldSlice(n, slice, s)
		}
		return c.foldItems([]node{n.x, n.index}, s, func(x []expr) expr { return newGetitem(x[0], x[1]) })
	case *callNode:
		return c.call(n, s)
	case *filterNode:
		return c.filter(n, s)
	case *testNode:
		return c.test(n, s)
	}
	fail(n.lineOf(), "this has no place in an expression")
	return nil
}

// foldItems compiles operands and joins them; if all operands are constant, the result is a constant.
func (c *compiler) foldItems(nodes []node, s scope, join func([]expr) expr) expr {
	items := make([]expr, len(nodes))
	constants := true
	for i, n := range nodes {
		items[i] = c.fold(n, s)
		_, ok := items[i].(*constant)
		constants = constants && ok
	}
	var folded *constant
	if constants {
		folded = c.evaluate(join(slices.Clone(items)))
	}
	if folded != nil && folded.runtime == nil {
		return folded
	}
	for i := range items {
		items[i] = c.use(items[i])
	}
	return folded.or(join(items))
}

// or returns the constant, or runtime if the constant has no literal: such a value is known while constants are folded,
// and evaluated again when it is used.
func (k *constant) or(runtime expr) expr {
	if k == nil {
		return runtime
	}
	return &constant{k.v, runtime}
}

// evaluate runs an expression of constants; nil = it raises. A value without a Python literal is only known while
// constants around it are folded.
func (c *compiler) evaluate(e expr) *constant {
	var v Value
	literal := false
	if !c.try(func() { v = e.eval(&frame{st: c.consts}); literal = keepable(c.consts, v, 0) }) {
		return nil
	}
	if !literal {
		return &constant{v, e}
	}
	return &constant{v: v}
}

// try runs f and reports whether it raised nothing.
func (c *compiler) try(f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(*raised); !is {
				panic(r)
			}
			ok = false
		}
	}()
	c.consts.depth, c.consts.pulls, c.consts.stack, c.consts.rooms = 0, 0, c.consts.stack[:0], 0
	f()
	return true
}

// keepable reports whether Python could write the value as a literal.
func keepable(st *state, v Value, depth int) bool {
	st.step(1)
	if depth > maxDepth {
		return false
	}
	all := func(items []Value) bool {
		for _, v := range items {
			if !keepable(st, v, depth+1) {
				return false
			}
		}
		return true
	}
	switch v := v.(type) {
	case None, Bool, Int, bigInt, Float, Str, markup, *rangeObj:
		return true
	case *List:
		return all(v.Items)
	case *Tuple:
		return all(v.items)
	case *Dict:
		return all(v.keys) && all(v.vals)
	}
	return false
}

func (c *compiler) variable(n *nameNode, s scope) expr {
	id := c.ref(s, n.name, n.line)
	missing := &undefined{name: Str(n.name)}
	if e, ok := c.slot(id).(local); ok {
		return &localVar{int(e), missing}
	}
	return &outerVar{c.slot(id), missing}
}

// sum compiles a + b + c as one expression, so that texts are joined once.
func (c *compiler) sum(n *binaryNode, s scope) expr {
	var nodes []node
	var left node = n
	for {
		b, ok := left.(*binaryNode)
		if !ok || b.op != '+' {
			break
		}
		nodes = append(nodes, b.right)
		left = b.left
	}
	parts := []expr{c.fold(left, s)}
	for i := len(nodes) - 1; i >= 0; i-- {
		next := c.fold(nodes[i], s)
		last := len(parts) - 1
		if last == 0 && isConst(parts[0]) && isConst(next) {
			if k := c.evaluate(&sumExpr{[]expr{parts[0], next}}); k != nil && k.runtime == nil {
				parts[0] = k
				continue
			}
		}
		parts[last] = c.use(parts[last])
		parts = append(parts, next)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	parts[len(parts)-1] = c.use(parts[len(parts)-1])
	return &sumExpr{parts}
}

func isConst(e expr) bool {
	_, ok := e.(*constant)
	return ok
}

func (c *compiler) foldBool(n *boolNode, s scope) expr {
	left := c.fold(n.left, s)
	if k, ok := left.(*constant); ok && truthy(c.consts, k.v) != n.and {
		return left // the right side is never evaluated
	}
	right := c.fold(n.right, s)
	if isConst(left) && isConst(right) {
		return right
	}
	return &boolExpr{n.and, c.use(left), c.use(right)}
}

func (c *compiler) foldCond(n *condNode, s scope) expr {
	s = s.asSoft()
	test := c.fold(n.test, s)
	if k, ok := test.(*constant); ok {
		branch := n.yes
		if !truthy(c.consts, k.v) {
			branch = n.no
		}
		if branch != nil {
			if e := c.fold(branch, s); isConst(e) {
				return e
			}
		}
	}
	e := &condExpr{test: c.use(test), yes: c.expr(n.yes, s)}
	if n.no != nil {
		e.no = c.expr(n.no, s)
	} else {
		e.missing = &undefined{hint: "the inline if-expression on line " + str(nil, Int(n.line)) +
			" evaluated to false and no else section was defined."}
	}
	return e
}

func (c *compiler) foldCompare(n *compareNode, s scope) expr {
	e := &compareExpr{ops: n.ops, first: c.fold(n.first, s)}
	constants := isConst(e.first)
	for i, r := range n.rest {
		x := c.fold(r, s)
		e.rest = append(e.rest, x)
		constants = constants && isConst(x)
		if constants {
			if k := c.evaluate(&compareExpr{e.first, e.ops[:i+1], e.rest}); k != nil && !truthy(c.consts, k.v) {
				return &constant{v: Bool(false)}
			}
		}
	}
	if constants {
		if k := c.evaluate(e); k != nil {
			return k
		}
	}
	e.first = c.use(e.first)
	for i := range e.rest {
		e.rest[i] = c.use(e.rest[i])
	}
	if len(e.ops) == 1 {
		return newCompare(e.ops[0], e.first, e.rest[0])
	}
	return e
}

func (c *compiler) foldSlice(n *getitemNode, slice *sliceNode, s scope) expr {
	nodes := []node{n.x}
	var which [3]int
	for i, part := range []node{slice.start, slice.stop, slice.step} {
		if part != nil {
			nodes = append(nodes, part)
			which[i] = len(nodes) - 1
		}
	}
	folded := c.foldItems(nodes, s, func(x []expr) expr {
		e := &sliceExpr{x: x[0], folding: true}
		for i, at := range which {
			if at > 0 {
				e.parts[i] = x[at]
			}
		}
		return e
	})
	e := folded
	if k, ok := folded.(*constant); ok {
		e = k.runtime
	}
	if e, ok := e.(*sliceExpr); ok {
		e.folding = false
	}
	return folded
}
