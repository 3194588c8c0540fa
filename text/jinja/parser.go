package jinja

import (
	"fmt"
	"strings"
)

// maxDepth is the largest depth of nested statements and expressions.
const maxDepth = 150

type parser struct {
	tokens []token
	pos    int
	depth  int
	tags   []string   // open tags
	ends   [][]string // tags that end each open tag
	loops  []int      // number of enclosing loops, one count for each enclosing macro, call block or generation block
}

// parse returns the tree of a template.
func parse(source string) []node {
	p := &parser{tokens: lex(source), loops: []int{0}}
	return p.body(nil)
}

func (p *parser) cur() *token { return &p.tokens[p.pos] }

func (p *parser) next() *token {
	t := p.cur()
	if t.kind != "eof" {
		p.pos++
	}
	return t
}

func (p *parser) peek() *token { return &p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (t *token) isName(word string) bool { return t.kind == "name" && t.text == word }

func (p *parser) skip(kind string) bool {
	if p.cur().kind == kind {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(word string) bool {
	if p.cur().isName(word) {
		p.next()
		return true
	}
	return false
}

var tokenNames = map[string]string{
	"begin": "begin of statement block", "end": "end of statement block", "print": "begin of print statement",
	"endprint": "end of print statement", "data": "template data / text", "eof": "end of template",
}

func describe(t *token) string {
	if name := tokenNames[t.kind]; name != "" {
		return name
	}
	if t.kind == "string" || t.kind == "number" {
		return t.kind
	}
	return t.text
}

func (p *parser) expect(kind string) *token {
	t := p.cur()
	if t.kind != kind {
		want := kind
		if name := tokenNames[kind]; name != "" {
			want = name
		}
		p.unexpected(want)
	}
	return p.next()
}

func (p *parser) unexpected(want string) {
	t := p.cur()
	if t.kind == "eof" {
		fail(t.line, "unexpected end of template, expected '%s'", want)
	}
	fail(t.line, "expected token '%s', got %s", want, quote(describe(t)))
}

func (p *parser) expectName(word string) *token {
	if !p.cur().isName(word) {
		p.unexpected(word)
	}
	return p.next()
}

// down counts a level of nesting; the caller defers p.up().
func (p *parser) down() {
	p.depth++
	if p.depth > maxDepth {
		fail(p.cur().line, "the template nests more than %d deep", maxDepth)
	}
}

func (p *parser) up() { p.depth-- }

// body parses up to one of the tags that end it; that tag's name is then the current token. nil = up to the end.
func (p *parser) body(ends []string) []node {
	p.down()
	defer p.up()
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var all []node
	var out *outputNode
	add := func(n node) {
		if out == nil {
			out = &outputNode{at: at{n.lineOf()}}
			all = append(all, out)
		}
		out.items = append(out.items, n)
	}
	for {
		t := p.cur()
		switch t.kind {
		case "eof":
			if ends != nil {
				p.failTag("", t.line)
			}
			return all
		case "data":
			add(&dataNode{at{t.line}, t.text})
			p.next()
		case "print":
			p.next()
			add(p.tuple(true, false, ""))
			p.expect("endprint")
		default: // begin
			out = nil
			p.next()
			if t := p.cur(); t.kind == "name" {
				for _, end := range ends {
					if t.text == end {
						return all
					}
				}
			}
			if n := p.statement(); n != nil {
				all = append(all, n)
			}
			p.expect("end")
		}
	}
}

// block parses the rest of a tag and its body, and returns the body and the name of the tag that ends it.
func (p *parser) block(ends ...string) ([]node, string) {
	p.skip(":")
	p.expect("end")
	body := p.body(ends)
	return body, p.next().text
}

func (p *parser) failTag(name string, line int) {
	message := "Unexpected end of template."
	if name != "" {
		message = fmt.Sprintf("Encountered unknown tag '%s'.", name)
	}
	if len(p.ends) > 0 {
		quoted := "'" + strings.Join(p.ends[len(p.ends)-1], "' or '") + "'"
		message += fmt.Sprintf(" Jinja was looking for the following tags: %s.", quoted)
	}
	if len(p.tags) > 0 {
		message += fmt.Sprintf(" The innermost block that needs to be closed is '%s'.", p.tags[len(p.tags)-1])
	}
	fail(line, "%s", message)
}

func (p *parser) statement() node {
	t := p.cur()
	if t.kind != "name" {
		fail(t.line, "tag name expected")
	}
	parse := map[string]func(*parser) node{
		"for": (*parser).forStatement, "if": (*parser).ifStatement, "set": (*parser).setStatement,
		"macro": (*parser).macroStatement, "call": (*parser).callStatement, "filter": (*parser).filterStatement,
		"with": (*parser).withStatement, "print": (*parser).printStatement,
		"generation": (*parser).generationStatement, "break": (*parser).loopControl, "continue": (*parser).loopControl,
	}[t.text]
	switch t.text {
	case "include", "import", "from", "extends", "block", "autoescape":
		fail(t.line, "{%% %s %%} has no place in a chat template: it is one text without other files, and not HTML", t.text)
	}
	if parse == nil {
		p.failTag(t.text, t.line)
	}
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	return parse(p)
}

// maxLoops is Python's largest depth of nested loops within one function.
const maxLoops = 20

func (p *parser) forStatement() node {
	n := &forNode{at: at{p.next().line}}
	n.target = p.assignTarget(false, "in")
	p.expectName("in")
	n.iter = p.tuple(false, false, "recursive")
	if p.skipName("if") {
		n.test = p.expression()
	}
	n.recursive = p.skipName("recursive")
	if n.recursive {
		p.loops = append(p.loops, 0)
	}
	in := &p.loops[len(p.loops)-1]
	if *in++; *in > maxLoops {
		fail(n.line, "too many statically nested blocks: more than %d loops", maxLoops)
	}
	var end string
	n.body, end = p.block("endfor", "else")
	p.loops[len(p.loops)-1]--
	if end == "else" {
		n.els, _ = p.block("endfor")
	}
	if n.recursive {
		p.loops = p.loops[:len(p.loops)-1]
	}
	return n
}

func (p *parser) loopControl() node {
	t := p.next()
	if p.loops[len(p.loops)-1] == 0 {
		if t.text == "break" {
			fail(t.line, "'break' outside loop")
		}
		fail(t.line, "'continue' not properly in loop")
	}
	return &loopControlNode{at{t.line}, t.text == "break"}
}

func (p *parser) ifStatement() node {
	first := &ifNode{at: at{p.next().line}}
	n := first
	for {
		n.test = p.tuple(false, false, "")
		var end string
		n.body, end = p.block("elif", "else", "endif")
		switch end {
		case "elif":
			n = &ifNode{at: at{p.cur().line}}
			first.elifs = append(first.elifs, n)
			continue
		case "else":
			first.els, _ = p.block("endif")
		}
		return first
	}
}

func (p *parser) setStatement() node {
	line := p.next().line
	target := p.assignTarget(true, "")
	if p.skip("=") {
		return &setNode{at{line}, target, p.tuple(true, false, "")}
	}
	n := &setBlockNode{at: at{line}, target: target}
	n.filter = p.filters(nil)
	n.body, _ = p.block("endset")
	return n
}

func (p *parser) withStatement() node {
	n := &withNode{at: at{p.next().line}}
	for p.cur().kind != "end" {
		if len(n.targets) > 0 {
			p.expect(",")
		}
		target := p.assignTarget(false, "")
		setContext(target, 'p')
		n.targets = append(n.targets, target)
		p.expect("=")
		n.values = append(n.values, p.expression())
	}
	n.body, _ = p.block("endwith")
	return n
}

func (p *parser) printStatement() node {
	n := &outputNode{at: at{p.next().line}}
	for p.cur().kind != "end" {
		if len(n.items) > 0 {
			p.expect(",")
		}
		n.items = append(n.items, p.expression())
	}
	return n
}

func (p *parser) macroStatement() node {
	n := &macroNode{at: at{p.next().line}}
	n.name = p.nameTarget().name
	p.signature(n)
	p.function(n, "endmacro")
	return n
}

// function parses the body of a macro or call block, which cannot leave a loop around it.
func (p *parser) function(n *macroNode, end string) {
	p.loops = append(p.loops, 0)
	n.body, _ = p.block(end)
	p.loops = p.loops[:len(p.loops)-1]
	seen := map[string]bool{}
	for _, a := range n.args {
		if seen[a.name] {
			fail(n.line, "duplicate argument '%s' in function definition", a.name)
		}
		seen[a.name] = true
	}
}

func (p *parser) signature(n *macroNode) {
	p.expect("(")
	for p.cur().kind != ")" {
		if len(n.args) > 0 {
			p.expect(",")
		}
		arg := p.nameTarget()
		arg.ctx = 'p'
		if p.skip("=") {
			n.defaults = append(n.defaults, p.expression())
		} else if len(n.defaults) > 0 {
			fail(p.cur().line, "non-default argument follows default argument")
		}
		n.args = append(n.args, arg)
	}
	p.expect(")")
}

func (p *parser) callStatement() node {
	n := &callBlockNode{at: at{p.next().line}}
	n.macroNode = &macroNode{at: n.at}
	if p.cur().kind == "(" {
		p.signature(n.macroNode)
	}
	call, ok := p.expression().(*callNode)
	if !ok {
		fail(n.line, "expected call")
	}
	n.call = call
	for _, k := range call.keys {
		if k == "caller" {
			fail(n.line, "keyword argument repeated: caller")
		}
	}
	p.function(n.macroNode, "endcall")
	return n
}

func (p *parser) generationStatement() node {
	n := &callBlockNode{at: at{p.next().line}, generation: true}
	n.macroNode = &macroNode{at: n.at}
	p.function(n.macroNode, "endgeneration")
	return n
}

func (p *parser) filterStatement() node {
	n := &filterBlockNode{at: at{p.next().line}}
	n.filter = p.filters(p.filter(nil))
	n.body, _ = p.block("endfilter")
	return n
}
