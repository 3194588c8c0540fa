package tokenizer

import "unicode/utf8"

// byteSet is a set of bytes.
type byteSet [256]bool

// findFirst records at each split with which bytes its two ways may begin, so that most ways need no attempt.
func findFirst(prog []regexStep) {
	f := firstFinder{prog: prog, seen: make([]int, len(prog))}
	for k := range prog {
		if p := &prog[k]; p.op == opSplit {
			p.firstX, p.firstY = f.from(p.x), f.from(p.y)
		}
	}
	for k := range prog {
		if j := prog[k]; j.op == opJump && j.x < k {
			prog[j.x].idle = prog[j.x].idle || f.idles(j.x)
		}
	}
}

// idles reports whether the body of the loop at a split may return to it without consuming a code point.
func (f *firstFinder) idles(head int) bool {
	f.count++
	for f.todo = append(f.todo[:0], f.prog[head].x, f.prog[head].y); len(f.todo) > 0; {
		step := f.todo[len(f.todo)-1]
		f.todo = f.todo[:len(f.todo)-1]
		if step == head {
			return true
		}
		if f.seen[step] == f.count {
			continue
		}
		f.seen[step] = f.count
		switch p := &f.prog[step]; p.op {
		case opSet, opMatch:
		case opRepeat:
			if p.least == 0 {
				f.todo = append(f.todo, step+1)
			}
		case opSplit:
			f.todo = append(f.todo, p.x, p.y)
		case opJump, opLook, opAtomic:
			f.todo = append(f.todo, p.x)
		default:
			f.todo = append(f.todo, step+1)
		}
	}
	return false
}

type firstFinder struct {
	prog  []regexStep
	seen  []int // by step: the number of the search that visited it last
	count int
	todo  []int
}

// from returns the bytes with which the text from a step on may begin: any byte if that text may be empty.
func (f *firstFinder) from(step int) *byteSet {
	to := new(byteSet)
	f.count++
	for f.todo = append(f.todo[:0], step); len(f.todo) > 0; {
		step := f.todo[len(f.todo)-1]
		f.todo = f.todo[:len(f.todo)-1]
		if f.seen[step] == f.count {
			continue
		}
		f.seen[step] = f.count
		switch p := &f.prog[step]; p.op {
		case opSet, opRepeat:
			p.set.addFirst(to)
			if p.op == opRepeat && p.least == 0 {
				f.todo = append(f.todo, step+1)
			}
		case opSplit:
			f.todo = append(f.todo, p.x, p.y)
		case opJump, opLook:
			f.todo = append(f.todo, p.x)
		case opAtomic:
			f.todo = append(f.todo, p.y)
		case opMatch:
			for b := range to {
				to[b] = true
			}
			return to
		default:
			f.todo = append(f.todo, step+1)
		}
	}
	return to
}

// addFirst adds the first bytes of the set's code points; a byte above ASCII adds all such bytes.
func (f *fastSet) addFirst(to *byteSet) {
	for c := range rune(utf8.RuneSelf) {
		if f.has(c) {
			to[c] = true
		}
	}
	for b := utf8.RuneSelf; f.beyond && b < len(to); b++ {
		to[b] = true
	}
}
