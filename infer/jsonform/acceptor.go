package jsonform

import "slices"

// maxStates bounds the alternatives that one text is followed as; those beyond it are left out, and each of the others
// can be ended by itself.
const maxStates = 64

// Acceptor is how far a text is. It is a value: a copy goes on by itself.
//
// Where a schema leaves alternatives (anyOf), a text is followed as each of them until a byte tells them apart: others
// holds those beside the first.
type Acceptor struct {
	state
	others []state // never changed: copies share it
}

// Start is before the first byte.
func (s *Schema) Start() Acceptor { return Acceptor{state: state{node: s.root, mode: mValue}} }

// Done tells whether the value is whole.
func (a *Acceptor) Done() bool { return a.mode == mDone }

// Next takes a byte and tells whether it can follow; a is of no use where it can't.
func (a *Acceptor) Next(c byte) bool {
	if len(a.others) == 0 && !a.branches(c) {
		return a.next(c)
	}
	from := *a
	a.others = nil
	return a.follow(&from, c)
}

// after makes a what another is behind a byte, in the memory that a's others have.
func (a *Acceptor) after(from *Acceptor, c byte) bool {
	a.others = a.others[:0]
	if len(from.others) == 0 && !from.branches(c) {
		a.state = from.state
		return a.next(c)
	}
	return a.follow(from, c)
}

// branches tells whether a byte begins a value that has alternatives.
func (a *state) branches(c byte) bool {
	return a.node != nil && a.node.any != nil && (a.mode == mValue || a.mode == mFirst && c != ']') && !isBlank(c)
}

func (a *Acceptor) follow(from *Acceptor, c byte) bool {
	n := 0
	add := func(s state) {
		if !s.next(c) {
			return
		}
		if s.mode <= mAfter && n > 0 { // elsewhere those that were not alike before the byte are not behind it
			if s.equal(&a.state) || slices.ContainsFunc(a.others, func(o state) bool { return s.equal(&o) }) {
				return
			}
		}
		switch {
		case n == 0:
			a.state = s
		case n < maxStates:
			a.others = append(a.others, s)
		}
		n++
	}
	for i := -1; i < len(from.others); i++ {
		s := from.state
		if i >= 0 {
			s = from.others[i]
		}
		if !s.branches(c) {
			add(s)
			continue
		}
		for _, one := range s.node.any {
			t := s
			t.node = one
			add(t)
		}
	}
	return n > 0
}

// equal tells whether the same can follow, as far as it is cheap to see: lists and objects that are open count by what
// is noted of them.
func (a *state) equal(b *state) bool {
	x, y := *a, *b
	x.top, y.top = nil, nil
	if x != y {
		return false
	}
	for f, g := a.top, b.top; f != g; f, g = f.up, g.up {
		if f == nil || g == nil {
			return false
		}
		h := *f
		if h.up = g.up; h != *g {
			return false
		}
	}
	return true
}

// takesText tells whether n bytes of any text without quotes and escapes can follow, character by character.
func (a *Acceptor) takesText(n int) bool {
	if a.state.takesText(n) {
		return true
	}
	for i := range a.others {
		if a.others[i].takesText(n) {
			return true
		}
	}
	return false
}
