package jsonform

import "slices"

// maxStates is the most alternative readings of one text. Further ones are dropped; each of the kept ones can be
// completed by itself.
const maxStates = 64

// Acceptor is a position in a text that must match a Schema. It is a value: copies advance independently.
//
// Where a schema has alternatives (anyOf), an Acceptor follows all of them until a byte tells them apart; others holds
// all but the first.
type Acceptor struct {
	state
	others []state // immutable: copies share it
}

// Start returns the Acceptor of the empty text.
func (s *Schema) Start() Acceptor { return Acceptor{state: state{node: s.root, mode: mValue}} }

// Done reports whether the text is a complete value.
func (a *Acceptor) Done() bool { return a.mode == mDone }

// Next advances by a byte and reports whether the byte can follow. After false the Acceptor is invalid.
func (a *Acceptor) Next(c byte) bool {
	if len(a.others) == 0 && !a.branches(c) {
		return a.next(c)
	}
	from := *a
	a.others = nil
	return a.follow(&from, c)
}

// after sets a to the position that follows from after the byte c. It reuses the memory of a.others.
func (a *Acceptor) after(from *Acceptor, c byte) bool {
	a.others = a.others[:0]
	if len(from.others) == 0 && !from.branches(c) {
		a.state = from.state
		return a.next(c)
	}
	return a.follow(from, c)
}

// branches reports whether a byte begins a value that has alternatives.
func (a *state) branches(c byte) bool {
	return a.node != nil && a.node.any != nil && (a.mode == mValue || a.mode == mFirst && c != ']') && !isBlank(c)
}

func (a *Acceptor) follow(from *Acceptor, c byte) bool {
	n := 0
	add := func(s state) {
		if !s.next(c) {
			return
		}
		if s.mode <= mAfter && n > 0 { // in other modes, states that differed before the byte differ after it
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

// equal reports whether the same texts can follow both states. It compares open lists and objects only by their frames'
// fields, so it may return false for states that are in fact equal.
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

// takesText reports whether n bytes of any string content without quotes and escapes can follow, character by
// character.
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
