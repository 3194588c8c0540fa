package reward

import (
	"errors"
	"math"
	"math/cmplx"
	"strconv"
	"strings"
)

// Bounds of expressions: longer ones are compared as texts.
const (
	maxMath      = 2048 // bytes
	maxMathDepth = 40
	maxMathParts = 64 // members of a list
)

// errMath marks a text that is no expression that evaluate knows.
var errMath = errors.New("not an expression")

// expression is a node of a parsed expression.
type expression struct {
	// op is '#' for a number, 'v' for a variable, 'i' for an inverse, '-' for a negation, 'f' for a function, '!' for a
	// factorial, '|' for an absolute value, else the sign itself: '+', '*' or '^'.
	op   byte
	x    float64
	name string
	of   []*expression
}

// functions are the functions of one argument.
var functions = map[string]func(complex128) complex128{
	"sin": cmplx.Sin, "cos": cmplx.Cos, "tan": cmplx.Tan, "cot": cmplx.Cot, "exp": cmplx.Exp, "ln": cmplx.Log,
	"log": cmplx.Log10, "sinh": cmplx.Sinh, "cosh": cmplx.Cosh, "tanh": cmplx.Tanh, "arcsin": cmplx.Asin,
	"arccos": cmplx.Acos, "arctan": cmplx.Atan, "sec": func(z complex128) complex128 { return 1 / cmplx.Cos(z) },
	"csc": func(z complex128) complex128 { return 1 / cmplx.Sin(z) },
}

// value evaluates an expression where variables have values that depend on their names and on seed alone.
func (e *expression) value(seed int) complex128 {
	switch e.op {
	case '#':
		return complex(e.x, 0)
	case 'v':
		return variable(e.name, seed)
	}
	first := e.of[0].value(seed)
	switch e.op {
	case '+':
		for _, x := range e.of[1:] {
			first += x.value(seed)
		}
	case '*':
		for _, x := range e.of[1:] {
			first *= x.value(seed)
		}
	case '-':
		return -first
	case 'i':
		return 1 / first
	case '|':
		return complex(cmplx.Abs(first), 0)
	case '^':
		return power(first, e.of[1].value(seed))
	case '!':
		if n := real(first); imag(first) == 0 && n >= 0 && n <= 170 && n == math.Trunc(n) {
			return complex(math.Round(math.Gamma(n+1)), 0)
		}
		return cmplx.NaN()
	case 'f':
		return functions[e.name](first)
	}
	return first
}

// power returns x to the y; real numbers have real powers where there is one.
func power(x, y complex128) complex128 {
	if imag(x) == 0 && imag(y) == 0 {
		if z := math.Pow(real(x), real(y)); z == z {
			return complex(z, 0)
		}
	}
	return cmplx.Pow(x, y)
}

// variable returns the value of a name: constants have theirs, others one between 0.3 and 1.7 by name and seed.
func variable(name string, seed int) complex128 {
	switch name {
	case "pi":
		return math.Pi
	case "e":
		return math.E
	case "i":
		return 1i
	}
	h := uint64(seed)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 0xbf58476d1ce4e5b9
		h ^= h >> 31
	}
	return complex(0.3+1.4*float64(h>>11)/(1<<53), 0)
}

// sameExpression reports whether two expressions have the same values at several points. Numbers may differ by a
// millionth, so that 0.333333 is one third.
func sameExpression(a, b *expression) bool {
	known := 0
	for seed := range 6 {
		x, y := a.value(seed), b.value(seed)
		if cmplx.IsNaN(x) || cmplx.IsNaN(y) || cmplx.IsInf(x) || cmplx.IsInf(y) {
			continue
		}
		if known++; cmplx.Abs(x-y) > 1e-6*cmplx.Abs(y) && cmplx.Abs(x-y) > 1e-12 {
			return false
		}
	}
	return known > 0
}

// parseMath parses an expression in LaTeX or plain text.
func parseMath(text string) (*expression, error) {
	p := &mathParser{rest: text}
	e, err := p.sum(0)
	if err == nil && p.peek() != "" {
		err = errMath
	}
	return e, err
}

// mathParser reads an expression from left to right. Its text is at most maxMath bytes long.
type mathParser struct {
	rest string
	bars int // absolute values that are open
}

// peek returns the next token without taking it: a number, a letter, a command with its backslash, or a sign; "" at the
// end.
func (p *mathParser) peek() string {
	p.rest = strings.TrimLeft(p.rest, " \t\n~")
	if p.rest == "" {
		return ""
	}
	digits := func(c byte) bool { return c >= '0' && c <= '9' }
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	n := 1
	switch c := p.rest[0]; {
	case digits(c) || c == '.' && len(p.rest) > 1 && digits(p.rest[1]):
		for point := false; n < len(p.rest) && (digits(p.rest[n]) || p.rest[n] == '.' && !point && c != '.'); n++ {
			point = point || p.rest[n] == '.'
		}
		if p.rest[n-1] == '.' {
			n--
		}
	case c == '\\':
		for n < len(p.rest) && letter(p.rest[n]) {
			n++
		}
		n = min(max(n, 2), len(p.rest))
	case p.rest[0] == '*' && strings.HasPrefix(p.rest, "**"):
		n = 2
	case c >= 0x80:
		for n < len(p.rest) && p.rest[n] >= 0x80 && p.rest[n] < 0xc0 {
			n++
		}
	}
	return p.rest[:n]
}

// take takes a token if it comes next.
func (p *mathParser) take(tokens ...string) bool {
	next := p.peek()
	for _, t := range tokens {
		if next == t && t != "" {
			p.rest = p.rest[len(t):]
			return true
		}
	}
	return false
}

// sum reads terms with signs between them.
func (p *mathParser) sum(depth int) (*expression, error) {
	if depth > maxMathDepth {
		return nil, errMath
	}
	sum := &expression{op: '+'}
	for {
		negative := false
		for {
			if p.take("-", "−") {
				negative = !negative
			} else if !p.take("+") {
				break
			}
		}
		term, err := p.product(depth + 1)
		if err != nil {
			return nil, err
		}
		if negative {
			term = &expression{op: '-', of: []*expression{term}}
		}
		sum.of = append(sum.of, term)
		if next := p.peek(); next != "+" && next != "-" && next != "−" {
			return sum, nil
		}
	}
}

// product reads factors, with signs between them or side by side.
func (p *mathParser) product(depth int) (*expression, error) {
	first, err := p.factor(depth)
	if err != nil {
		return nil, err
	}
	all := &expression{op: '*', of: []*expression{first}}
	for {
		divide := false
		switch {
		case p.take("/", `\div`, "÷"):
			divide = true
		case p.take("*", `\cdot`, `\times`, "×", "·"):
		case !p.begins():
			return all, nil
		case first.op == '#' && len(all.of) == 1 && (p.peek() == `\frac`):
			// a mixed number: 3\frac{1}{2}
			part, err := p.factor(depth)
			if err != nil {
				return nil, err
			}
			if isFraction(part) && first.x == math.Trunc(first.x) {
				all.of[0] = &expression{op: '+', of: []*expression{first, part}}
			} else {
				all.of = append(all.of, part)
			}
			continue
		}
		negative := p.take("-", "−")
		next, err := p.factor(depth)
		if err != nil {
			return nil, err
		}
		if divide {
			next = &expression{op: 'i', of: []*expression{next}}
		}
		if negative {
			next = &expression{op: '-', of: []*expression{next}}
		}
		all.of = append(all.of, next)
	}
}

// isFraction reports whether an expression is \frac of two whole numbers.
func isFraction(e *expression) bool {
	if e.op != '*' || len(e.of) != 2 || e.of[1].op != 'i' {
		return false
	}
	whole := func(e *expression) bool {
		for e.op == '+' || e.op == '*' {
			if len(e.of) != 1 {
				return false
			}
			e = e.of[0]
		}
		return e.op == '#' && e.x == math.Trunc(e.x)
	}
	return whole(e.of[0]) && whole(e.of[1].of[0])
}

// begins reports whether a factor comes next.
func (p *mathParser) begins() bool {
	switch t := p.peek(); t {
	case "", ")", "]", "}", "+", "-", "−", ",", "=", "&", "!", "^", "_", "<", ">", `\}`, ";", ":", "*", "**", "/":
		return false
	case "|":
		return p.bars == 0
	}
	return true
}

// factor reads an atom with its powers and factorials.
func (p *mathParser) factor(depth int) (*expression, error) {
	if depth > maxMathDepth {
		return nil, errMath
	}
	e, err := p.atom(depth)
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.take("!"):
			e = &expression{op: '!', of: []*expression{e}}
		case p.take("^", "**"):
			exponent, err := p.argument(depth + 1)
			if err != nil {
				return nil, err
			}
			return &expression{op: '^', of: []*expression{e, exponent}}, nil
		default:
			return e, nil
		}
	}
}

// argument reads what belongs to a command or a power: a group in braces, or a single token.
func (p *mathParser) argument(depth int) (*expression, error) {
	if depth > maxMathDepth {
		return nil, errMath
	}
	if p.take("-", "−") {
		e, err := p.argument(depth + 1)
		return &expression{op: '-', of: []*expression{e}}, err
	}
	if t := p.peek(); t != "" && t[0] >= '0' && t[0] <= '9' && len(t) > 1 && !strings.Contains(t, ".") {
		p.rest = p.rest[1:] // \frac12 has the arguments 1 and 2
		return number(t[:1])
	}
	return p.atom(depth + 1)
}

// number returns a number's expression.
func number(text string) (*expression, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errMath
	}
	return &expression{op: '#', x: x}, nil
}

// closing are the tokens that end what an opening one begins.
var closing = map[string]string{"(": ")", "[": "]", "{": "}", `\{`: `\}`}

// atom reads a number, a variable, a group, or a command with its arguments.
func (p *mathParser) atom(depth int) (*expression, error) {
	if depth > maxMathDepth {
		return nil, errMath
	}
	t := p.peek()
	if t == "" {
		return nil, errMath
	}
	p.rest = p.rest[len(t):]
	c := t[0]
	switch {
	case closing[t] != "":
		e, err := p.sum(depth + 1)
		if err == nil && !p.take(closing[t]) {
			err = errMath
		}
		return e, err
	case t == "|":
		p.bars++
		e, err := p.sum(depth + 1)
		p.bars--
		if err == nil && !p.take("|") {
			err = errMath
		}
		return &expression{op: '|', of: []*expression{e}}, err
	case c >= '0' && c <= '9' || c == '.':
		return number(t)
	case t == "π":
		return &expression{op: 'v', name: "pi"}, nil
	case t == "√":
		return p.root(depth, 2)
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return p.named(t, depth)
	case c == '\\':
		return p.command(t[1:], depth)
	}
	return nil, errMath
}

// named reads a variable with its index, or a function that is written without a backslash.
func (p *mathParser) named(letter string, depth int) (*expression, error) {
	for _, name := range []string{"sqrt", "sin", "cos", "tan", "log", "ln", "exp", "pi"} {
		if rest, ok := strings.CutPrefix(letter+p.rest, name); ok {
			p.rest = rest
			return p.command(name, depth)
		}
	}
	if !p.take("_") {
		return &expression{op: 'v', name: letter}, nil
	}
	before := p.rest
	if _, err := p.argument(depth + 1); err != nil {
		return nil, err
	}
	index := strings.Trim(strings.ReplaceAll(before[:len(before)-len(p.rest)], " ", ""), "{}")
	return &expression{op: 'v', name: letter + "_" + index}, nil
}

// command reads the arguments of a command.
func (p *mathParser) command(name string, depth int) (*expression, error) {
	switch name {
	case "frac", "dfrac", "tfrac":
		top, err := p.argument(depth)
		if err != nil {
			return nil, err
		}
		bottom, err := p.argument(depth)
		return &expression{op: '*', of: []*expression{top, {op: 'i', of: []*expression{bottom}}}}, err
	case "sqrt":
		degree := 2.0
		if p.peek() == "[" {
			inside, rest, ok := strings.Cut(p.rest[1:], "]")
			n, err := strconv.Atoi(strings.TrimSpace(inside))
			if !ok || err != nil || n == 0 {
				return nil, errMath
			}
			degree, p.rest = float64(n), rest
		}
		return p.root(depth, degree)
	case "log", "ln":
		return p.logarithm(name, depth)
	}
	if functions[name] != nil {
		return p.function(name, depth)
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return nil, errMath
		}
	}
	switch name {
	case "", "pm", "mp", "infty", "text", "mbox", "begin", "end", "cup", "cap", "in",
		"le", "ge", "leq", "geq", "neq", "lt", "gt":
		return nil, errMath
	}
	return &expression{op: 'v', name: name}, nil // a Greek letter
}

// root reads what a root is of.
func (p *mathParser) root(depth int, degree float64) (*expression, error) {
	of, err := p.argument(depth)
	return &expression{op: '^', of: []*expression{of, {op: '#', x: 1 / degree}}}, err
}

// logarithm reads a logarithm, perhaps with a base.
func (p *mathParser) logarithm(name string, depth int) (*expression, error) {
	if !p.take("_") {
		return p.function(name, depth)
	}
	base, err := p.argument(depth)
	if err != nil {
		return nil, err
	}
	of, err := p.factor(depth + 1)
	if err != nil {
		return nil, err
	}
	ln := func(e *expression) *expression { return &expression{op: 'f', name: "ln", of: []*expression{e}} }
	return &expression{op: '*', of: []*expression{ln(of), {op: 'i', of: []*expression{ln(base)}}}}, nil
}

// function reads the argument of a function, and a power between its name and the argument: \sin^2 x. The argument
// without parentheses is the factors up to the next sign or function.
func (p *mathParser) function(name string, depth int) (*expression, error) {
	var exponent *expression
	var err error
	if p.take("^") {
		if exponent, err = p.argument(depth); err != nil {
			return nil, err
		}
	}
	of, err := p.factor(depth + 1)
	if err != nil {
		return nil, err
	}
	for of.op == '#' && p.begins() && functions[strings.TrimPrefix(p.peek(), `\`)] == nil { // \sin 2x
		more, err := p.factor(depth + 1)
		if err != nil {
			return nil, err
		}
		of = &expression{op: '*', of: []*expression{of, more}}
	}
	e := &expression{op: 'f', name: name, of: []*expression{of}}
	if exponent != nil {
		e = &expression{op: '^', of: []*expression{e, exponent}}
	}
	return e, nil
}
