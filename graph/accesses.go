package graph

import "slices"

// access is a range of addresses that a call reads or writes.
type access struct {
	from, to uint64 // [from, to)
	write    bool
}

// strip is a range of addresses with one history.
type strip struct {
	from, to uint64
	writer   int   // last call that wrote it; -1 = none
	readers  []int // since then
}

// dependencies tells for calls that run in some order which earlier calls each must wait for, given what they
// read and write: those whose results it reads, and those that read or write what it overwrites. Calls that
// others of the list wait for already are left out.
func dependencies(calls [][]access) [][]int {
	strips := []strip{}
	needs := make([][]int, len(calls))
	before := make([]bitset, len(calls)) // all that a call waits for, directly or not
	for i, accesses := range calls {
		want := newBitset(len(calls))
		for _, a := range accesses {
			if a.from < a.to {
				strips = touch(strips, a, i, want)
			}
		}
		covered := newBitset(len(calls))
		for _, d := range slices.Backward(want.members()) { // latest first: it may wait for earlier ones
			if !covered.has(d) {
				needs[i] = append(needs[i], d)
			}
			covered.join(before[d])
		}
		want.join(covered)
		before[i] = want
	}
	return needs
}

// touch notes in want whom call i must wait for over one access, and the access in the strips, which are in
// order and do not overlap.
func touch(strips []strip, a access, i int, want bitset) []strip {
	at, _ := slices.BinarySearchFunc(strips, a.from, func(s strip, from uint64) int {
		if s.to <= from {
			return -1
		}
		return 1
	})
	need := func(call int) {
		if call >= 0 && call != i {
			want.add(call)
		}
	}
	next := a.from
	for next < a.to {
		if at == len(strips) || strips[at].from >= a.to || strips[at].from > next { // never touched so far
			end := a.to
			if at < len(strips) {
				end = min(end, strips[at].from)
			}
			strips = slices.Insert(strips, at, strip{from: next, to: end, writer: -1})
		}
		s := &strips[at]
		if s.from < next { // split before the access
			head := *s
			head.to, head.readers = next, slices.Clone(s.readers)
			s.from = next
			strips = slices.Insert(strips, at, head)
			at++
			s = &strips[at]
		}
		if s.to > a.to { // and behind it
			rest := *s
			rest.from, rest.readers = a.to, slices.Clone(s.readers)
			s.to = a.to
			strips = slices.Insert(strips, at+1, rest)
			s = &strips[at]
		}
		need(s.writer)
		if a.write {
			for _, r := range s.readers {
				need(r)
			}
			s.writer, s.readers = i, s.readers[:0]
		} else if !slices.Contains(s.readers, i) {
			s.readers = append(s.readers, i)
		}
		next = s.to
		at++
	}
	return strips
}
