package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Split patterns have Oniguruma's syntax, which Go's regexp cannot run: look-around, possessive repeats, nested
// classes. They are compiled to a program for a backtracking machine (regexrun.go). Syntax that no known pattern needs
// (references to groups, recursion, absent operators) is an error.

type regexOp uint8

const (
	opSet    regexOp = iota // one code point of set
	opRepeat                // least to most code points of set; a possessive repeat does not backtrack
	opSplit                 // continues at x, and if that fails at y
	opJump                  // continues at x
	// Continues if the program at y matches at this position, or behind it; negated inverts this.
	opLook
	opAtomic  // continues after the first match of the program at y
	opBegin   // \A
	opEnd     // \z
	opEndLine // \Z: the end, or before a newline at the end
	opLineBegin
	opLineEnd
	opWordBorder // negated: \B
	opMatch
)

type regexStep struct {
	op          regexOp
	set         *fastSet
	x, y        int
	least, most int // most < 0 = no limit
	lazy        bool
	possessive  bool
	negated     bool
	idle        bool     // opSplit: head of a loop whose body may match the empty text
	behind      int      // opLook: number of code points back at which the program begins, 0 = look ahead
	firstX      *byteSet // opSplit: bytes with which the text may continue for the way at x
	firstY      *byteSet // the same for the way at y
}

type regexParser struct {
	s       string
	i       int
	prog    []regexStep
	anyCase bool
	dotAll  bool
	depth   int
}

// Limits of a pattern that is compiled, far beyond any in use.
const (
	maxRegexSteps  = 2000
	maxRegexDepth  = 100
	maxRegexRepeat = 1000
)

func compileExpression(pattern string) (matcher, error) {
	p := &regexParser{s: pattern}
	err := p.alternatives()
	if err == nil && p.i < len(p.s) {
		err = p.wrong("a ) without its (")
	}
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	p.put(regexStep{op: opMatch})
	findFirst(p.prog)
	return &expression{prog: p.prog}, nil
}

func (p *regexParser) wrong(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", p.i, fmt.Sprintf(format, args...))
}

func (p *regexParser) put(s regexStep) int {
	p.prog = append(p.prog, s)
	return len(p.prog) - 1
}

func (p *regexParser) peek(s string) bool { return strings.HasPrefix(p.s[p.i:], s) }

func (p *regexParser) take(s string) bool {
	if !p.peek(s) {
		return false
	}
	p.i += len(s)
	return true
}

// rune reads the next code point.
func (p *regexParser) rune() (rune, error) {
	if p.i >= len(p.s) {
		return 0, p.wrong("the pattern ends too early")
	}
	r, n := utf8.DecodeRuneInString(p.s[p.i:])
	p.i += n
	return r, nil
}

// insert inserts a step and adjusts the targets after it.
func (p *regexParser) insert(at int, s regexStep) {
	p.prog = append(p.prog, regexStep{})
	copy(p.prog[at+1:], p.prog[at:])
	for k := range p.prog {
		if k == at {
			continue
		}
		t := &p.prog[k]
		if t.x >= at && k > at {
			t.x++
		}
		if t.y >= at && k > at {
			t.y++
		}
	}
	p.prog[at] = s
}

// alternatives parses up to the end or a closing bracket.
func (p *regexParser) alternatives() error {
	if p.depth++; p.depth > maxRegexDepth {
		return p.wrong("groups lie too deep")
	}
	defer func() { p.depth-- }()
	anyCase, dotAll := p.anyCase, p.dotAll
	defer func() { p.anyCase, p.dotAll = anyCase, dotAll }()
	var ends []int
	for {
		start := len(p.prog)
		if err := p.sequence(); err != nil {
			return err
		}
		if !p.take("|") {
			for _, e := range ends {
				p.prog[e].x = len(p.prog)
			}
			return nil
		}
		p.insert(start, regexStep{op: opSplit, x: start + 1})
		ends = append(ends, p.put(regexStep{op: opJump}))
		p.prog[start].y = len(p.prog)
	}
}

func (p *regexParser) sequence() error {
	for p.i < len(p.s) && !p.peek("|") && !p.peek(")") {
		if len(p.prog) > maxRegexSteps {
			return p.wrong("the pattern is too large")
		}
		start := len(p.prog)
		if err := p.atom(); err != nil {
			return err
		}
		for {
			least, most, ok, err := p.repeat()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if err := p.repeated(start, least, most); err != nil {
				return err
			}
		}
	}
	return nil
}

// repeat parses a quantifier.
func (p *regexParser) repeat() (least, most int, ok bool, err error) {
	switch {
	case p.take("*"):
		return 0, -1, true, nil
	case p.take("+"):
		return 1, -1, true, nil
	case p.take("?"):
		return 0, 1, true, nil
	case !p.peek("{"):
		return 0, 0, false, nil
	}
	end := strings.IndexByte(p.s[p.i:], '}')
	if end < 0 {
		return 0, 0, false, nil // a literal bracket
	}
	low, high, two := strings.Cut(p.s[p.i+1:p.i+end], ",")
	number := func(s string, otherwise int) int {
		if s == "" {
			return otherwise
		}
		n, e := strconv.Atoi(s)
		if e != nil || n < 0 || s[0] == '+' {
			return -2
		}
		return n
	}
	least, most = number(low, 0), number(high, -1)
	if !two {
		most = least
	}
	if least == -2 || most == -2 || low == "" && high == "" {
		return 0, 0, false, nil
	}
	if least > maxRegexRepeat || most > maxRegexRepeat || most >= 0 && most < least {
		return 0, 0, false, p.wrong("{%d,%d} cannot be run", least, most)
	}
	p.i += end + 1
	return least, most, true, nil
}

// repeated repeats the steps from start on.
func (p *regexParser) repeated(start, least, most int) error {
	braces := p.s[p.i-1] == '}'                       // {n}+ repeats {n}; the other forms are possessive
	lazy := !(braces && least == most) && p.take("?") // {n}? repeats {n} too
	possessive := !lazy && !braces && p.take("+")
	if n := len(p.prog); n == start+1 && p.prog[start].op == opSet {
		p.prog[start] = regexStep{op: opRepeat, set: p.prog[start].set, least: least, most: most, lazy: lazy, possessive: possessive}
		return nil
	}
	body := append([]regexStep(nil), p.prog[start:]...)
	p.prog = p.prog[:start]
	atomic := 0
	if possessive {
		atomic = p.put(regexStep{op: opAtomic})
		p.prog[atomic].y = atomic + 1
	}
	again := func() int { // appends another copy of the body
		at := len(p.prog)
		for _, s := range body {
			s.x, s.y = s.x+at-start, s.y+at-start
			p.prog = append(p.prog, s)
		}
		return at
	}
	split := func() int {
		return p.put(regexStep{op: opSplit, x: len(p.prog) + 1})
	}
	leave := func(at int) { // sets the target that leaves a split
		p.prog[at].y = len(p.prog)
		if lazy {
			p.prog[at].x, p.prog[at].y = p.prog[at].y, p.prog[at].x
		}
	}
	for range least {
		if again(); len(p.prog) > maxRegexSteps {
			return p.wrong("the pattern is too large")
		}
	}
	if most < 0 {
		at := split()
		again()
		p.put(regexStep{op: opJump, x: at})
		leave(at)
	} else {
		var splits []int
		for range most - least {
			splits = append(splits, split())
			if again(); len(p.prog) > maxRegexSteps {
				return p.wrong("the pattern is too large")
			}
		}
		for _, at := range splits {
			leave(at)
		}
	}
	if possessive {
		p.put(regexStep{op: opMatch})
		p.prog[atomic].x = len(p.prog)
	}
	return nil
}

func (p *regexParser) set(s runeSet) { p.put(regexStep{op: opSet, set: s.fast()}) }

// one appends a step for a character.
func (p *regexParser) one(r rune) {
	s := runeSet{{r, r}}
	if p.anyCase {
		s = s.anyCase()
	}
	p.set(s)
}

// atom parses a character, a class, a group or an assertion.
func (p *regexParser) atom() error {
	r, err := p.rune()
	if err != nil {
		return err
	}
	switch r {
	case '(':
		return p.group()
	case '[':
		s, negated, err := p.class()
		if err != nil {
			return err
		}
		if p.anyCase { // case is folded before the class is negated, and for the whole class
			s = s.anyCase()
		}
		if negated {
			s = s.not()
		}
		p.set(s)
	case '.':
		s := runeSet{{'\n', '\n'}}.not()
		if p.dotAll {
			s = runeSet{{0, maxRune}}
		}
		p.set(s)
	case '^':
		p.put(regexStep{op: opLineBegin})
	case '$':
		p.put(regexStep{op: opLineEnd})
	case '*', '+', '?':
		return p.wrong("%c with nothing before it", r)
	case '\\':
		return p.escape()
	default:
		p.one(r)
	}
	return nil
}

// escape parses the text after a backslash outside a class.
func (p *regexParser) escape() error {
	if p.i >= len(p.s) {
		return p.wrong("a backslash ends the pattern")
	}
	switch c := p.s[p.i]; c {
	case 'A', 'z', 'Z', 'b', 'B':
		p.i++
		p.put(map[byte]regexStep{
			'A': {op: opBegin}, 'z': {op: opEnd}, 'Z': {op: opEndLine}, 'b': {op: opWordBorder}, 'B': {op: opWordBorder, negated: true},
		}[c])
		return nil
	case 'R', 'X', 'G', 'K', 'k', 'g', 'y', 'Y', 'N', 'O', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.wrong("\\%c cannot be run", c)
	}
	s, err := p.escaped()
	if err != nil {
		return err
	}
	if len(s) == 1 && s[0][0] == s[0][1] {
		p.one(s[0][0])
	} else {
		p.set(s)
	}
	return nil
}
