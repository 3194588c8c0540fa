package jinja

func (p *parser) nameTarget() *nameNode {
	t := p.expect("name")
	n := &nameNode{at{t.line}, t.text, 's'}
	checkTarget(n)
	return n
}

// assignTarget parses the target of an assignment: a name, a tuple of names, or with withNamespace also a namespace's
// attributes.
func (p *parser) assignTarget(withNamespace bool, end string) node {
	target := p.targetTuple(withNamespace, end)
	setContext(target, 's')
	checkTarget(target)
	return target
}

func setContext(n node, ctx byte) {
	switch n := n.(type) {
	case *nameNode:
		n.ctx = ctx
	case *tupleNode:
		for _, item := range n.items {
			setContext(item, ctx)
		}
	}
}

func checkTarget(n node) {
	switch n := n.(type) {
	case *nameNode:
		switch n.name {
		case "true", "false", "none", "True", "False", "None":
			fail(n.line, "can't assign to 'const'")
		}
		return
	case *tupleNode:
		for _, item := range n.items {
			checkTarget(item)
		}
		return
	case *nsRefNode:
		return
	}
	fail(n.lineOf(), "can't assign to this expression")
}
