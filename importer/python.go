package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// call is a call in a program: the last parts of its name, and its arguments.
type call struct {
	name string
	args Map // a positional argument has the key ""
	line int
}

// program is what the parser finds in Python text. Nothing is run: a name stands for the literal that was assigned to
// it before, and every other expression stays Code.
type program struct {
	src    string
	toks   []token
	pos    int
	names  map[string]any
	values int
	work   int // tokens visited in arguments, counted again for calls inside calls
	calls  []call
}

// token is a token of a program. Its kind is 'n' for a name, 'd' for a number, 's' for a string, 'e' for the end of a
// line, else the sign itself.
type token struct {
	kind     byte
	text     string // value of a string
	from, to int
	line     int
	format   bool // an f-string, whose value is unknown
}

const (
	maxTokens  = 2_000_000
	maxLiteral = 10_000 // values in the arguments that are read
	maxWork    = 10_000_000
)

// parsePython finds the calls of a program.
func parsePython(src string) ([]call, error) {
	p := &program{src: src, names: map[string]any{}}
	if err := p.scan(); err != nil {
		return nil, err
	}
	start, depth := true, 0
	for p.pos < len(p.toks) {
		t := p.toks[p.pos]
		switch {
		case t.kind == 'e':
			start = depth == 0
			p.pos++
			continue
		case t.kind == 'n' && start && depth == 0 && p.sign(p.pos+1, '=') && !p.sign(p.pos+2, '='):
			p.assignment()
		case t.kind == 'n':
			p.call()
		default:
			switch t.kind {
			case '(', '[', '{':
				depth++
			case ')', ']', '}':
				depth = max(depth-1, 0)
			}
			p.pos++
		}
		start = false
	}
	if p.work >= maxWork || p.values > maxValues {
		return nil, errMany
	}
	return p.calls, nil
}

// sign reports whether token i is the given sign.
func (p *program) sign(i int, s byte) bool { return i < len(p.toks) && p.toks[i].kind == s }

// assignment reads NAME = literal.
func (p *program) assignment() {
	name := p.toks[p.pos].text
	p.pos += 2
	from := p.pos
	v, ok := p.literal(0)
	if ok && (p.pos >= len(p.toks) || p.toks[p.pos].kind == 'e' || p.toks[p.pos].kind == ';') {
		p.names[name] = v
		return
	}
	delete(p.names, name) // the name's value is now unknown
	p.pos = from
}

// call reads name.name(arguments) if the call is a known one.
func (p *program) call() {
	first := p.toks[p.pos]
	last, before := first.text, ""
	if p.pos > 0 && p.sign(p.pos-1, '.') {
		before = "." // a method of the result of another call
	}
	p.pos++
	for p.sign(p.pos, '.') && p.sign(p.pos+1, 'n') {
		before, last = last, p.toks[p.pos+1].text
		p.pos += 2
	}
	name := last
	if last == "from_pretrained" {
		name = before + "." + last
	}
	if class, of := strings.CutSuffix(name, ".from_pretrained"); of &&
		(strings.HasSuffix(class, "ForConditionalGeneration") || strings.HasSuffix(class, "ForImageTextToText")) {
		name = imageModel
	}
	if p.sign(p.pos, '(') && (otherTrainers.MatchString(name) || madeRows[name] && (before != "" || name != "map")) {
		p.calls = append(p.calls, call{name: name, line: first.line}) // the name of the call is enough
	}
	if !p.sign(p.pos, '(') || calls[name] == nil {
		return
	}
	inside := p.pos + 1
	if args, ok := p.arguments(); ok {
		p.calls = append(p.calls, call{name, args, first.line})
	}
	p.pos = inside - 1 // calls inside the arguments are read too; keyword arguments there are not assignments
}

// arguments reads (a, key=value, ...) up to the closing bracket.
func (p *program) arguments() (Map, bool) {
	p.pos++
	var args Map
	for p.pos < len(p.toks) && p.work < maxWork {
		p.skipLines()
		if p.sign(p.pos, ')') {
			p.pos++
			return args, true
		}
		if p.pos >= len(p.toks) {
			break
		}
		key, line := "", p.toks[p.pos].line
		if p.sign(p.pos, 'n') && p.sign(p.pos+1, '=') && !p.sign(p.pos+2, '=') {
			key = p.toks[p.pos].text
			p.pos += 2
		}
		args = append(args, Pair{key, p.value(), line})
		p.skipLines()
		if p.sign(p.pos, ',') {
			p.pos++
		}
		if len(args) > maxLiteral {
			return nil, false
		}
	}
	return nil, false
}

func (p *program) skipLines() {
	for p.sign(p.pos, 'e') {
		p.pos++
	}
}

// value reads an argument: a literal, or the text of an expression up to the next comma.
func (p *program) value() any {
	from := p.pos
	if v, ok := p.literal(0); ok {
		at := p.pos
		p.skipLines()
		if p.sign(p.pos, ',') || p.sign(p.pos, ')') {
			return v
		}
		p.pos = at
	}
	p.pos = from
	depth := 0
	for ; p.pos < len(p.toks) && p.work < maxWork; p.pos++ {
		p.work++
		k := p.toks[p.pos].kind
		if depth == 0 && (k == ',' || k == ')') {
			break
		}
		switch k {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
	}
	if p.pos == from {
		return Code("")
	}
	return Code(strings.Join(strings.Fields(p.src[p.toks[from].from:p.toks[p.pos-1].to]), " "))
}

// literal reads a number, string, True, False, None, a name that stands for one of these, or a list, tuple or dict of
// them.
func (p *program) literal(depth int) (any, bool) {
	if p.values++; depth > maxDepth || p.values > maxValues || p.pos >= len(p.toks) {
		return nil, false
	}
	t := p.toks[p.pos]
	p.pos++
	switch t.kind {
	case 'd':
		return number(t.text), true
	case 's':
		text, plain := t.text, !t.format
		for p.sign(p.pos, 's') { // adjacent strings are one string
			text, plain = text+p.toks[p.pos].text, plain && !p.toks[p.pos].format
			p.pos++
		}
		return text, plain
	case 'n':
		switch t.text {
		case "True":
			return true, true
		case "False":
			return false, true
		case "None":
			return nil, true
		}
		v, known := p.names[t.text]
		return v, known && !p.sign(p.pos, '.') && !p.sign(p.pos, '(') && !p.sign(p.pos, '[')
	case '-':
		v, ok := p.literal(depth + 1)
		switch n := v.(type) {
		case int64:
			return -n, ok
		case float64:
			return -n, ok
		}
		return nil, false
	case '[', '(':
		return p.items(depth, t.kind)
	case '{':
		return p.table(depth)
	}
	return nil, false
}

// items reads a list, a tuple, or an expression in brackets.
func (p *program) items(depth int, open byte) (any, bool) {
	list, closing, comma := []any{}, byte(']'), false
	if open == '(' {
		closing = ')'
	}
	for {
		p.skipLines()
		if p.sign(p.pos, closing) {
			p.pos++
			if open == '(' && len(list) == 1 && !comma {
				return list[0], true
			}
			return list, true
		}
		v, ok := p.literal(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, v)
		p.skipLines()
		if comma = p.sign(p.pos, ','); comma {
			p.pos++
		} else if !p.sign(p.pos, closing) {
			return nil, false
		}
	}
}

func (p *program) table(depth int) (any, bool) {
	m := Map{}
	for {
		p.skipLines()
		if p.sign(p.pos, '}') {
			p.pos++
			return m, true
		}
		line := p.pos
		k, ok := p.literal(depth + 1)
		key, text := k.(string)
		p.skipLines()
		if !ok || !text || !p.sign(p.pos, ':') {
			return nil, false
		}
		p.pos++
		p.skipLines()
		v, ok := p.literal(depth + 1)
		if !ok {
			return nil, false
		}
		m = append(m, Pair{key, v, p.toks[line].line})
		p.skipLines()
		if p.sign(p.pos, ',') {
			p.pos++
		} else if !p.sign(p.pos, '}') {
			return nil, false
		}
	}
}

// notebook returns the code of a Jupyter notebook. Lines that are not Python are left empty.
func notebook(text []byte) (string, error) {
	var nb struct {
		Cells []struct {
			Type   string          `json:"cell_type"`
			Source json.RawMessage `json:"source"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(text, &nb); err != nil {
		return "", fmt.Errorf("it is no notebook: %w", jsonerr.Explain(text, err))
	}
	var b strings.Builder
	for _, c := range nb.Cells {
		var lines []string
		if c.Type != "code" {
			continue
		}
		if json.Unmarshal(c.Source, &lines) != nil {
			var whole string
			if json.Unmarshal(c.Source, &whole) != nil {
				return "", errors.New("it is no notebook: a cell's source is neither a text nor a list of texts")
			}
			lines = strings.SplitAfter(whole, "\n")
		}
		for _, line := range lines {
			if t := strings.TrimSpace(line); strings.HasPrefix(t, "!") || strings.HasPrefix(t, "%") {
				line = "\n"
			}
			b.WriteString(line)
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "", errors.New("it is no notebook: it has no cells with code")
	}
	return b.String(), nil
}
