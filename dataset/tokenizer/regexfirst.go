package tokenizer

import "unicode/utf8"

// byteSet is a set of bytes.
type byteSet [256]bool

// findFirst notes at each split which bytes its two ways may begin with, so that most need no try.
func findFirst(prog []regexStep) {
	for k := range prog {
		if prog[k].op != opSplit {
			continue
		}
		prog[k].firstX, prog[k].firstY = new(byteSet), new(byteSet)
		addFirst(prog, prog[k].x, prog[k].firstX, map[int]bool{})
		addFirst(prog, prog[k].y, prog[k].firstY, map[int]bool{})
	}
}

// addFirst adds the bytes that the text from step on may begin with: all of them where it may be empty.
func addFirst(prog []regexStep, step int, to *byteSet, seen map[int]bool) {
	if seen[step] {
		return
	}
	seen[step] = true
	switch p := prog[step]; p.op {
	case opSet, opRepeat:
		p.set.addFirst(to)
		if p.op == opRepeat && p.least == 0 {
			addFirst(prog, step+1, to, seen)
		}
	case opSplit:
		addFirst(prog, p.x, to, seen)
		addFirst(prog, p.y, to, seen)
	case opJump, opLook:
		addFirst(prog, p.x, to, seen)
	case opAtomic:
		addFirst(prog, p.y, to, seen)
	case opMatch:
		for b := range to {
			to[b] = true
		}
	default:
		addFirst(prog, step+1, to, seen)
	}
}

// addFirst adds the first bytes of the set's code points; a byte above ASCII stands for all.
func (f *fastSet) addFirst(to *byteSet) {
	for c := range rune(utf8.RuneSelf) {
		if f.has(c) {
			to[c] = true
		}
	}
	beyond := len(f.high) > 0
	for _, bits := range f.low[2:] {
		beyond = beyond || bits != 0
	}
	for b := utf8.RuneSelf; beyond && b < len(to); b++ {
		to[b] = true
	}
}
