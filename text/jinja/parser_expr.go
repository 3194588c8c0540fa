package jinja

import "strings"

// tuple parses one expression, or several with commas between them as a tuple. condexpr allows a if b; parens says that
// it is in brackets, so that it may be empty; end is a name that ends it.
func (p *parser) tuple(condexpr, parens bool, end string) node {
	return p.tupleOf(parens, end, func() node {
		if condexpr {
			return p.expression()
		}
		return p.or()
	})
}

func (p *parser) targetTuple(withNamespace bool, end string) node {
	return p.tupleOf(false, end, func() node { return p.primary(withNamespace) })
}

func (p *parser) tupleOf(parens bool, end string, item func() node) node {
	line := p.cur().line
	var items []node
	isTuple := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		t := p.cur()
		if t.kind == "endprint" || t.kind == "end" || t.kind == ")" || end != "" && t.isName(end) {
			break
		}
		items = append(items, item())
		if p.cur().kind != "," {
			break
		}
		isTuple = true
		line = p.cur().line
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !parens {
			fail(p.cur().line, "Expected an expression, got %s", quote(describe(p.cur())))
		}
	}
	return &tupleNode{at{line}, items}
}

func (p *parser) expression() node {
	p.down()
	defer p.up()
	line := p.cur().line
	yes := p.or()
	for p.skipName("if") {
		test := p.or()
		var no node
		if p.skipName("else") {
			no = p.expression()
		}
		yes = &condNode{at{line}, test, yes, no}
		line = p.cur().line
	}
	return yes
}

func (p *parser) or() node {
	line := p.cur().line
	left := p.and()
	for n := 0; p.skipName("or"); n++ {
		p.long(n)
		left = &boolNode{at{line}, false, left, p.and()}
		line = p.cur().line
	}
	return left
}

func (p *parser) and() node {
	line := p.cur().line
	left := p.not()
	for n := 0; p.skipName("and"); n++ {
		p.long(n)
		left = &boolNode{at{line}, true, left, p.not()}
		line = p.cur().line
	}
	return left
}

// maxChain is the largest number of operators in a row; each is a level of the tree.
const maxChain = 900

func (p *parser) long(n int) {
	if n > maxChain {
		fail(p.cur().line, "an expression has more than %d operators in a row", maxChain)
	}
}

func (p *parser) not() node {
	if t := p.cur(); t.isName("not") {
		p.down()
		defer p.up()
		p.next()
		return &unaryNode{at{t.line}, '!', p.not()}
	}
	return p.compare()
}

func (p *parser) compare() node {
	n := &compareNode{at: at{p.cur().line}, first: p.sum()}
	for {
		t := p.cur()
		op := t.kind
		switch {
		case op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=":
			p.next()
		case t.isName("in"):
			op = "in"
			p.next()
		case t.isName("not") && p.peek().isName("in"):
			op = "not in"
			p.next()
			p.next()
		default:
			if len(n.ops) == 0 {
				return n.first
			}
			return n
		}
		n.ops = append(n.ops, op)
		n.rest = append(n.rest, p.sum())
	}
}

// chain parses operators of one precedence from left to right.
func (p *parser) chain(ops string, operand func() node) node {
	line := p.cur().line
	left := operand()
	for n := 0; ; n++ {
		p.long(n)
		kind := p.cur().kind
		if kind == "eof" || !strings.Contains(ops, " "+kind+" ") {
			return left
		}
		p.next()
		op := kind[0]
		switch kind {
		case "//":
			op = 'f'
		case "**":
			op = '^'
		}
		left = &binaryNode{at{line}, op, left, operand()}
		line = p.cur().line
	}
}

func (p *parser) sum() node { return p.chain(" + - ", p.concat) }

func (p *parser) concat() node {
	line := p.cur().line
	items := []node{p.term()}
	for p.skip("~") {
		items = append(items, p.term())
	}
	if len(items) == 1 {
		return items[0]
	}
	return &concatNode{at{line}, items}
}

func (p *parser) term() node { return p.chain(" * / // % ", p.power) }

func (p *parser) power() node { return p.chain(" ** ", func() node { return p.unary(true) }) }

func (p *parser) unary(withFilter bool) node {
	p.down()
	defer p.up()
	t := p.cur()
	var n node
	if t.kind == "-" || t.kind == "+" {
		p.next()
		n = &unaryNode{at{t.line}, t.kind[0], p.unary(false)}
	} else {
		n = p.primary(false)
	}
	n = p.postfix(n)
	if withFilter {
		n = p.filtersAndTests(n)
	}
	return n
}

func (p *parser) primary(withNamespace bool) node {
	t := p.cur()
	switch t.kind {
	case "name":
		p.next()
		switch t.text {
		case "true", "True", "false", "False":
			return &constNode{at{t.line}, Bool(t.text[0]|0x20 == 't')}
		case "none", "None":
			return &constNode{at{t.line}, None{}}
		}
		if withNamespace && p.skip(".") {
			return &nsRefNode{at{t.line}, t.text, p.expect("name").text}
		}
		return &nameNode{at{t.line}, t.text, 'l'}
	case "string":
		var parts []string
		for p.cur().kind == "string" {
			parts = append(parts, p.next().text)
		}
		return &constNode{at{t.line}, Str(strings.Join(parts, ""))}
	case "number":
		p.next()
		return &constNode{at{t.line}, t.value}
	case "(":
		p.next()
		n := p.tuple(true, true, "")
		p.expect(")")
		return n
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	fail(t.line, "unexpected %s", quote(describe(t)))
	return nil
}

func (p *parser) list() node {
	n := &listNode{at: at{p.next().line}}
	for p.cur().kind != "]" {
		if len(n.items) > 0 {
			p.expect(",")
		}
		if p.cur().kind == "]" {
			break
		}
		n.items = append(n.items, p.expression())
	}
	p.expect("]")
	return n
}

func (p *parser) dict() node {
	n := &dictNode{at: at{p.next().line}}
	for p.cur().kind != "}" {
		if len(n.keys) > 0 {
			p.expect(",")
		}
		if p.cur().kind == "}" {
			break
		}
		n.keys = append(n.keys, p.expression())
		p.expect(":")
		n.values = append(n.values, p.expression())
	}
	p.expect("}")
	return n
}

func (p *parser) postfix(n node) node {
	for i := 0; ; i++ {
		p.long(i)
		switch p.cur().kind {
		case ".", "[":
			n = p.subscript(n)
		case "(":
			n = p.call(n)
		default:
			return n
		}
	}
}

func (p *parser) filtersAndTests(n node) node {
	for i := 0; ; i++ {
		p.long(i)
		switch t := p.cur(); {
		case t.kind == "|":
			n = p.filters(n)
		case t.isName("is"):
			n = p.test(n)
		case t.kind == "(":
			n = p.call(n)
		default:
			return n
		}
	}
}

func (p *parser) subscript(x node) node {
	t := p.next()
	if t.kind == "." {
		switch name := p.next(); {
		case name.kind == "name":
			return &getattrNode{at{t.line}, x, name.text}
		case name.kind == "number" && isInt(name.value):
			return &getitemNode{at{t.line}, x, &constNode{at{name.line}, name.value}}
		default:
			fail(name.line, "expected name or number")
		}
	}
	var args []node
	for p.cur().kind != "]" {
		if len(args) > 0 {
			p.expect(",")
		}
		args = append(args, p.subscribed())
	}
	p.expect("]")
	if len(args) == 1 {
		return &getitemNode{at{t.line}, x, args[0]}
	}
	for _, a := range args {
		if _, ok := a.(*sliceNode); ok {
			fail(t.line, "a slice stands among several subscripts")
		}
	}
	return &getitemNode{at{t.line}, x, &tupleNode{at{t.line}, args}}
}

func (p *parser) subscribed() node {
	n := &sliceNode{at: at{p.cur().line}}
	if p.cur().kind != ":" {
		n.start = p.expression()
		if p.cur().kind != ":" {
			return n.start
		}
	}
	p.next()
	part := func() node {
		if k := p.cur().kind; k == ":" || k == "]" || k == "," {
			return nil
		}
		return p.expression()
	}
	n.stop = part()
	if p.skip(":") {
		if p.cur().kind == ":" { // x[::: has no third part
			n.step = p.expression()
		}
		n.step = part()
	}
	return n
}
