package graph

import (
	"math/bits"
	"slices"
)

// predecessors lists, for every call, those of its segment that must have run: the makers of what it reads, and the
// readers of what it writes over.
func predecessors(calls []*call) map[*call][]*call {
	readers := readersOf(calls, nil)
	d := make(map[*call][]*call, len(calls))
	for _, c := range calls {
		for _, v := range c.in {
			if v.call != nil && v.call.segment == c.segment {
				d[c] = append(d[c], v.call)
			}
		}
		for _, a := range overwrites(c) {
			for _, i := range readers[c.in[a.In]] {
				if r := calls[i]; r != c && r.segment == c.segment {
					d[c] = append(d[c], r)
				}
			}
		}
	}
	return d
}

// waits knows, for every call, all that must have run before it, directly or not. It is worked out once and kept
// up while calls are united: at the size of a model's step, to begin again each time would take seconds.
type waits struct {
	number map[*call]int
	on     []bitset // by number
}

func waitsOf(calls []*call) waits {
	d := predecessors(calls)
	w := waits{make(map[*call]int, len(calls)), make([]bitset, len(calls))}
	for i, c := range calls {
		w.number[c] = i
	}
	var visit func(c *call) bitset
	visit = func(c *call) bitset {
		i := w.number[c]
		if w.on[i] == nil {
			w.on[i] = newBitset(len(calls))
			for _, p := range d[c] {
				w.on[i].join(visit(p))
				w.on[i].add(w.number[p])
			}
		}
		return w.on[i]
	}
	for _, c := range calls {
		visit(c)
	}
	return w
}

// waitsFor tells whether a call is another or runs only after it; a nil call is one of no computation.
func (w waits) waitsFor(c, earlier *call) bool {
	return c != nil && (c == earlier || w.on[w.number[c]].has(w.number[earlier]))
}

// also notes that a call, and so all that wait for it, waits for others of its segment too.
func (w waits) also(c *call, needs ...*call) {
	all := newBitset(len(w.on))
	for _, n := range needs {
		if n != nil && n.segment == c.segment {
			all.join(w.on[w.number[n]])
			all.add(w.number[n])
		}
	}
	for i, x := range w.on {
		if i == w.number[c] || x.has(w.number[c]) {
			x.join(all)
		}
	}
}

// unite notes that calls, none of which waits for another, run as one from now on.
func (w waits) unite(calls []*call, one *call) {
	all := newBitset(len(w.on))
	numbers := make([]int, len(calls))
	for i, c := range calls {
		numbers[i] = w.number[c]
		all.join(w.on[numbers[i]])
	}
	w.number[one] = numbers[0]
	w.on[numbers[0]].join(all)
	for _, i := range numbers {
		all.add(i)
	}
	for _, x := range w.on {
		if slices.ContainsFunc(numbers, x.has) {
			x.join(all)
		}
	}
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 == 1 }

func (b bitset) join(c bitset) {
	for w, x := range c {
		b[w] |= x
	}
}

// members lists the numbers in order.
func (b bitset) members() []int {
	var all []int
	for w, x := range b {
		for ; x != 0; x &= x - 1 {
			all = append(all, w*64+bits.TrailingZeros64(x))
		}
	}
	return all
}

// ordered keeps the calls' order but for those that must come earlier.
func ordered(calls []*call) []*call {
	d := predecessors(calls)
	done := map[*call]bool{}
	out := make([]*call, 0, len(calls))
	var visit func(c *call)
	visit = func(c *call) {
		if done[c] {
			return
		}
		done[c] = true
		for _, p := range d[c] {
			visit(p)
		}
		out = append(out, c)
	}
	for _, c := range calls {
		visit(c)
	}
	return out
}
