package tokenizer

import "strings"

// group parses the text after an opening bracket.
func (p *regexParser) group() error {
	before := len(p.prog)
	step := regexStep{}
	switch {
	case !p.take("?"):
	case p.take(":"):
	case p.take(">"):
		step.op = opAtomic
	case p.take("="), p.take("<="):
		step.op = opLook
	case p.take("!"), p.take("<!"):
		step = regexStep{op: opLook, negated: true}
	case p.peek("<"):
		end := strings.IndexByte(p.s[p.i:], '>')
		if end < 0 {
			return p.wrong("the name of a group does not end")
		}
		p.i += end + 1 // a named group
	default:
		return p.options()
	}
	behind := step.op == opLook && p.s[p.i-2] == '<'
	if step.op == opAtomic || step.op == opLook {
		step.y = before + 1
		p.put(step)
	}
	inner := len(p.prog)
	if err := p.alternatives(); err != nil {
		return err
	}
	if !p.take(")") {
		return p.wrong("a group does not end")
	}
	if step.op != opAtomic && step.op != opLook {
		return nil
	}
	if behind {
		n, ok := p.length(inner, len(p.prog))
		if !ok || n == 0 {
			return p.wrong("a look behind of no fixed length cannot be run")
		}
		p.prog[before].behind = n
	}
	p.put(regexStep{op: opMatch})
	p.prog[before].x = len(p.prog)
	return nil
}

// length returns the number of code points that the steps [from,to) consume, if that is constant.
func (p *regexParser) length(from, to int) (n int, ok bool) {
	for k := from; k < to; {
		switch s := p.prog[k]; s.op {
		case opSet:
			n++
			k++
		case opRepeat:
			if s.least != s.most {
				return 0, false
			}
			n += s.least
			k++
		case opSplit: // alternatives: each ends with a jump to the same step
			if s.x != k+1 || s.y <= k || s.y > to || p.prog[s.y-1].op != opJump || p.prog[s.y-1].x > to || p.prog[s.y-1].x < s.y {
				return 0, false
			}
			end := p.prog[s.y-1].x
			a, ok1 := p.length(s.x, s.y-1)
			b, ok2 := p.length(s.y, end)
			if !ok1 || !ok2 || a != b {
				return 0, false
			}
			n += a
			k = end
		case opBegin, opEnd, opEndLine, opLineBegin, opLineEnd, opWordBorder:
			k++
		case opLook, opAtomic:
			if s.op == opAtomic {
				return 0, false
			}
			k = s.x
		default:
			return 0, false
		}
	}
	return n, true
}

// options parses (?im-im) for the rest of the group, or (?im-im:...).
func (p *regexParser) options() error {
	anyCase, dotAll := p.anyCase, p.dotAll
	for on := true; ; {
		r, err := p.rune()
		if err != nil {
			return err
		}
		switch r {
		case '-':
			on = false
		case 'i':
			p.anyCase = on
		case 'm':
			p.dotAll = on
		case ')':
			// The rest of the group, including alternatives, is a group of its own.
			return p.alternatives()
		case ':':
			err := p.alternatives()
			p.anyCase, p.dotAll = anyCase, dotAll
			if err == nil && !p.take(")") {
				err = p.wrong("a group does not end")
			}
			return err
		default:
			return p.wrong("the option %q cannot be run", r)
		}
	}
}
