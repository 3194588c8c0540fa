package jinja

func (p *parser) arguments() arguments {
	line := p.expect("(").line
	var a arguments
	ensure := func(ok bool) {
		if !ok {
			fail(line, "invalid syntax for function call expression")
		}
	}
	for first := true; p.cur().kind != ")"; first = false {
		if !first {
			p.expect(",")
			if p.cur().kind == ")" {
				break
			}
		}
		switch {
		case p.cur().kind == "*":
			ensure(a.star == nil && a.starStar == nil)
			p.next()
			a.star = p.expression()
		case p.cur().kind == "**":
			ensure(a.starStar == nil)
			p.next()
			a.starStar = p.expression()
		case p.cur().kind == "name" && p.peek().kind == "=":
			ensure(a.starStar == nil)
			key := p.next().text
			p.next()
			for _, k := range a.keys {
				if k == key {
					fail(line, "keyword argument repeated: %s", key)
				}
			}
			a.keys = append(a.keys, key)
			a.values = append(a.values, p.expression())
		default:
			ensure(a.star == nil && a.starStar == nil && len(a.keys) == 0)
			a.args = append(a.args, p.expression())
		}
	}
	p.expect(")")
	return a
}

func (p *parser) call(x node) node {
	line := p.cur().line
	return &callNode{at{line}, x, p.arguments()}
}

// filters parses any number of |name.
func (p *parser) filters(x node) node {
	for n := 0; p.skip("|"); n++ {
		p.long(n)
		x = p.filter(x)
	}
	return x
}

func (p *parser) dottedName() (string, int) {
	t := p.expect("name")
	name := t.text
	for p.skip(".") {
		name += "." + p.expect("name").text
	}
	return name, t.line
}

func (p *parser) filter(x node) node {
	n := &filterNode{x: x}
	n.name, n.line = p.dottedName()
	if p.cur().kind == "(" {
		n.arguments = p.arguments()
	}
	return n
}

func (p *parser) test(x node) node {
	line := p.next().line
	negated := p.skipName("not")
	n := &testNode{at: at{line}, x: x}
	n.name, _ = p.dottedName()
	switch t := p.cur(); t.kind {
	case "(":
		n.arguments = p.arguments()
	case "name", "string", "number", "[", "{":
		if t.isName("else") || t.isName("or") || t.isName("and") {
			break
		}
		if t.isName("is") {
			fail(t.line, "You cannot chain multiple tests with is")
		}
		n.args = []node{p.postfix(p.primary(false))}
	}
	if negated {
		return &unaryNode{at{line}, '!', n}
	}
	return n
}
