package tokenizer

import "unicode/utf8"

// expression runs a pattern by backtracking: the first way that matches counts (as in Oniguruma and Perl).
type expression struct {
	prog []regexStep
}

func (e *expression) matches(s string, w *work, out []cut) []cut {
	r := regexRun{prog: e.prog, s: s, work: w}
	last := -1
	for i := 0; i <= len(s); {
		start, end := r.find(i)
		if start < 0 {
			break
		}
		if start == end {
			if end != last { // an empty match directly after the previous match does not count
				out = append(out, cut{start, end})
			}
			last = end
			_, n := utf8.DecodeRuneInString(s[end:])
			i = end + max(n, 1)
			continue
		}
		out = append(out, cut{start, end})
		i, last = end, end
	}
	return out
}

// regexRun is the state of running a program over one text.
type regexRun struct {
	prog  []regexStep
	s     string
	tries []regexTry
	work  *work
	inner map[int]*seenStates // by the first step of a nested program
}

// regexTry is a way that is still to be tried: from step on at position at, and then at each code point before it down
// to least.
type regexTry struct {
	step, at, least int32
	lazy            int32 // for a lazy repeat: 1 + its step, which consumes one more code point each time
	left            int32 // how many more code points it may consume, -1 = no limit
}

// find returns the first match at or after i.
func (r *regexRun) find(i int) (start, end int) {
	seen := &seenStates{from: i, steps: len(r.prog), size: len(r.s) - i + 1}
	for {
		if end = r.match(0, i, seen); end >= 0 {
			return i, end
		}
		if i >= len(r.s) {
			return -1, -1
		}
		_, n := utf8.DecodeRuneInString(r.s[i:])
		i += n
	}
}

// seenStates records the pairs of step and position that failed. None needs a second attempt, which bounds the work on
// any text. Recording begins once a search has taken long.
type seenStates struct {
	from, steps, size int
	spent             int
	bits              []uint64
	idle              map[int]bool // heads of idle loops that were passed, recorded from the beginning
}

// waits counts the memory of one more way that is still to be tried.
func (r *regexRun) waits() {
	if len(r.tries) == cap(r.tries) {
		r.work.spend(4 * len(r.tries))
	}
}

// passed calls seenStates.passed and counts its memory.
func (r *regexRun) passed(seen *seenStates, step, at int) bool {
	r.work.spend(16)
	return seen.passed(step, at)
}

// again calls seenStates.again and counts the memory of the states.
func (r *regexRun) again(seen *seenStates, step, at int) bool {
	if seen.bits != nil {
		return seen.again(step, at)
	}
	tried := seen.again(step, at)
	r.work.spend(8 * len(seen.bits))
	return tried
}

// passed records the head of an idle loop and reports whether it was recorded before: then nothing was consumed since,
// or the way has failed.
func (n *seenStates) passed(step, at int) bool {
	k := (at-n.from)*n.steps + step
	if n.idle[k] {
		return true
	}
	if n.idle == nil {
		n.idle = map[int]bool{}
	}
	n.idle[k] = true
	return false
}

// maxSeen is the largest number of recorded states.
const maxSeen = 1 << 28

// again records a state and reports whether it was recorded before.
func (n *seenStates) again(step, at int) bool {
	if n.bits == nil {
		if n.spent++; n.spent < 1<<12 || n.spent < n.size*n.steps/64 {
			return false
		}
		if n.size > maxSeen/n.steps {
			return n.spent > maxSeen // text and pattern are too large to record states, so the search ends
		}
		n.bits = make([]uint64, n.size*n.steps/64+1)
	}
	k := (at-n.from)*n.steps + step
	if n.bits[k>>6]>>(k&63)&1 == 1 {
		return true
	}
	n.bits[k>>6] |= 1 << (k & 63)
	return false
}

// within runs the program at step for a look-around or an atomic group. Ways that fail in one run need no attempt in
// the next.
func (r *regexRun) within(step, at int) int {
	seen := r.inner[step]
	if seen == nil {
		if r.inner == nil {
			r.inner = map[int]*seenStates{}
		}
		seen = &seenStates{steps: len(r.prog), size: len(r.s) + 1}
		r.inner[step] = seen
	}
	end := r.match(step, at, seen)
	if end >= 0 && (seen.bits != nil || seen.idle != nil) { // some of the recorded ways have not failed
		delete(r.inner, step)
	}
	return end
}

// match runs the program from step on at a position and returns the end of the match, -1 for none.
func (r *regexRun) match(step, at int, seen *seenStates) int {
	base := len(r.tries)
	defer func() { r.tries = r.tries[:base] }()
	for {
		r.work.spend(1)
		ok := true
		switch p := &r.prog[step]; p.op {
		case opMatch:
			return at
		case opSet:
			if at, ok = r.one(p.set, at); ok {
				step++
			}
		case opRepeat:
			step, at, ok = r.repeat(p, step, at)
		case opSplit:
			if p.idle && r.passed(seen, step, at) {
				ok = false
				break
			}
			if at < len(r.s) {
				c := r.s[at]
				if !p.firstX[c] {
					step, ok = p.y, p.firstY[c]
					break
				}
				if !p.firstY[c] {
					step = p.x
					break
				}
			}
			if ok = !r.again(seen, step, at); ok {
				r.waits()
				r.tries = append(r.tries, regexTry{step: int32(p.y), at: int32(at), least: int32(at)})
				step = p.x
			}
		case opJump:
			step = p.x
		case opLook:
			ok = r.look(p, at) != p.negated
			step = p.x
		case opAtomic:
			if end := r.within(p.y, at); end >= 0 {
				step, at = p.x, end
			} else {
				ok = false
			}
		default:
			ok = r.holds(p, at)
			step++
		}
		for !ok {
			r.work.spend(1)
			n := len(r.tries) - 1
			if n < base {
				return -1
			}
			step, at, ok = r.next(n)
			ok = ok && !(r.prog[step].op != opSplit && r.again(seen, step, at))
		}
	}
}

// next takes the last way that is still to be tried.
func (r *regexRun) next(n int) (step, at int, ok bool) {
	t := &r.tries[n]
	step, at = int(t.step), int(t.at)
	if t.lazy > 0 {
		repeat := &r.prog[t.lazy-1]
		to, more := r.one(repeat.set, at)
		if !more || t.left == 0 {
			r.tries = r.tries[:n]
			return 0, 0, false
		}
		t.at = int32(to)
		if t.left > 0 {
			t.left--
		}
		return step, to, true
	}
	if t.at <= t.least {
		r.tries = r.tries[:n]
	} else {
		_, width := utf8.DecodeLastRuneInString(r.s[:at])
		t.at -= int32(width)
	}
	return step, at, true
}

// one consumes a code point of a set.
func (r *regexRun) one(set *fastSet, at int) (int, bool) {
	if at >= len(r.s) {
		return at, false
	}
	if c := r.s[at]; c < utf8.RuneSelf {
		return at + 1, set.low[c>>6]>>(c&63)&1 == 1
	}
	c, n := utf8.DecodeRuneInString(r.s[at:])
	return at + n, set.has(c)
}

// repeat consumes code points of a set, as many as possible or, if lazy, as few as possible, and records the other ways
// to be tried.
func (r *regexRun) repeat(p *regexStep, step, at int) (int, int, bool) {
	count := 0
	for ; count < p.least; count++ {
		to, ok := r.one(p.set, at)
		if !ok {
			return step, at, false
		}
		at = to
	}
	r.work.spend(count)
	if p.lazy {
		left := int32(-1)
		if p.most >= 0 {
			left = int32(p.most - count)
		}
		r.waits()
		r.tries = append(r.tries, regexTry{step: int32(step + 1), at: int32(at), lazy: int32(step + 1), left: left})
		return step + 1, at, true
	}
	least, width := at, 0
	for ; p.most < 0 || count < p.most; count++ {
		to, ok := r.one(p.set, at)
		if !ok {
			break
		}
		at, width = to, to-at
	}
	r.work.spend(at - least)
	if at > least && !p.possessive {
		r.waits()
		r.tries = append(r.tries, regexTry{step: int32(step + 1), at: int32(at - width), least: int32(least)})
	}
	return step + 1, at, true
}

// look reports whether a look-around's program matches.
func (r *regexRun) look(p *regexStep, at int) bool {
	from := at
	r.work.spend(p.behind)
	for range p.behind {
		if from == 0 {
			return false
		}
		_, n := utf8.DecodeLastRuneInString(r.s[:from])
		from -= n
	}
	if q := &r.prog[p.y]; q.op == opSet && r.prog[p.y+1].op == opMatch {
		_, ok := r.one(q.set, from)
		return ok // for a look-behind, the code point before
	}
	end := r.within(p.y, from)
	return end >= 0 && (p.behind == 0 || end == at)
}

// holds reports whether an assertion is true at a position.
func (r *regexRun) holds(p *regexStep, at int) bool {
	switch p.op {
	case opBegin:
		return at == 0
	case opEnd:
		return at == len(r.s)
	case opEndLine:
		return at == len(r.s) || r.s[at:] == "\n"
	case opLineBegin:
		return at == 0 || r.s[at-1] == '\n' && at < len(r.s)
	case opLineEnd:
		return at == len(r.s) || r.s[at] == '\n'
	}
	before, after := false, false
	if at > 0 {
		c, _ := utf8.DecodeLastRuneInString(r.s[:at])
		before = wordTable().has(c)
	}
	if at < len(r.s) {
		c, _ := utf8.DecodeRuneInString(r.s[at:])
		after = wordTable().has(c)
	}
	return (before != after) != p.negated
}
