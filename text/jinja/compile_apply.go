package jinja

// foldArguments compiles arguments in the form for folding constants; usedArguments returns the form that runs.
func (c *compiler) foldArguments(a arguments, s scope) argExprs {
	e := argExprs{keys: a.keys}
	for _, n := range a.args {
		e.pos = append(e.pos, c.fold(n, s))
	}
	for _, n := range a.values {
		e.values = append(e.values, c.fold(n, s))
	}
	if a.star != nil {
		e.star = c.fold(a.star, s)
	}
	if a.starStar != nil {
		e.starStar = c.fold(a.starStar, s)
	}
	return e
}

func (c *compiler) usedArguments(e argExprs) argExprs {
	used := argExprs{keys: e.keys}
	for _, x := range e.pos {
		used.pos = append(used.pos, c.use(x))
	}
	for _, x := range e.values {
		used.values = append(used.values, c.use(x))
	}
	if e.star != nil {
		used.star = c.use(e.star)
	}
	if e.starStar != nil {
		used.starStar = c.use(e.starStar)
	}
	return used
}

func (e *argExprs) constant() bool {
	for _, x := range append(append([]expr{}, e.pos...), e.values...) {
		if !isConst(x) {
			return false
		}
	}
	return (e.star == nil || isConst(e.star)) && (e.starStar == nil || isConst(e.starStar))
}

func (c *compiler) call(n *callNode, s scope) *callExpr {
	e := &callExpr{line: n.line, callee: c.expr(n.x, s), args: c.usedArguments(c.foldArguments(n.arguments, s))}
	e.method, _ = e.callee.(*getattrExpr)
	return e
}

func (c *compiler) filter(n *filterNode, s scope) expr {
	f := filters[n.name]
	if f == nil && !s.soft {
		fail(n.line, "No filter named '%s'.", n.name)
	}
	x := c.fold(n.x, s)
	args := c.foldArguments(n.arguments, s)
	return c.foldApplied(x, args, f != nil && !f.context, func(x expr, args argExprs) expr {
		return &filterExpr{line: n.line, name: n.name, filter: f, x: x, args: args}
	})
}

func (c *compiler) test(n *testNode, s scope) expr {
	t := tests[n.name]
	if t == nil && !s.soft {
		fail(n.line, "No test named '%s'.", n.name)
	}
	x := c.fold(n.x, s)
	args := c.foldArguments(n.arguments, s)
	return c.foldApplied(x, args, t != nil, func(x expr, args argExprs) expr {
		return &testExpr{line: n.line, name: n.name, test: t, x: x, args: args}
	})
}

// foldApplied applies a filter or test to x, at compile time if everything is constant.
func (c *compiler) foldApplied(x expr, args argExprs, foldable bool, apply func(expr, argExprs) expr) expr {
	var folded *constant
	if foldable && isConst(x) && args.constant() {
		folded = c.evaluate(apply(x, args))
	}
	if folded != nil && folded.runtime == nil {
		return folded
	}
	return folded.or(apply(c.use(x), c.usedArguments(args)))
}
