package graph

import (
	"slices"
	"sort"

	"github.com/tierlora/tierlora/kernel"
)

// orderSums moves a GEMM behind a much smaller one that it is summed with, such as a layer's behind its
// low-rank update: accumulate then adds the large one to the small one's result, where the reading of that
// costs next to nothing, and not the other way round. Where the sum is no more than the target's sameSum it is
// the small one, itself the end of a chain, that goes behind the large one.
func orderSums(c *compilation) error {
	calls, t := c.calls, c.target
	uses := uses(calls, c.outputs)
	key, writers := orderOf(calls)
	for _, c := range calls {
		if _, ok := c.kernel.(kernel.Add); !ok || c.in[0] == c.in[1] {
			continue
		}
		first, second := c.in[0], c.in[1]
		if first.call == nil || second.call == nil || uses[first] != 1 || uses[second] != 1 {
			continue
		}
		if key[first.call] > key[second.call] {
			first, second = second, first
		}
		p, q := first.call, second.call
		large, small := depth(p, t), depth(q, t)
		if c.out[0].Type.Bytes() <= t.sameSum() {
			large, small = small, large
		}
		if p.segment != q.segment || large <= 4*small || small == 0 || len(overwrites(p)) > 0 ||
			!undisturbed(writers, key, p, q) {
			continue
		}
		key[p] = key[q] + 0.5
	}
	sort.SliceStable(calls, func(i, j int) bool { return key[calls[i]] < key[calls[j]] })
	return nil
}

// depth returns the inner size of a GEMM that can add to memory; 0 of anything else.
func depth(c *call, t target) int {
	if _, ok := t.accumulate(c.kernel); !ok || len(c.out) != 1 || len(c.in[0].Type.Shape) != 2 {
		return 0
	}
	if m, ok := c.kernel.(kernel.MatMul); ok && m.TransA {
		return c.in[0].Type.Shape[0]
	}
	return c.in[0].Type.Shape[1]
}

// orderOf returns each call's place among the calls, and who writes over memory, by the value it was first.
func orderOf(calls []*call) (key map[*call]float64, writers map[*Value][]*call) {
	key, writers = map[*call]float64{}, map[*Value][]*call{}
	for i, c := range calls {
		key[c] = float64(i)
		for _, a := range overwrites(c) {
			writers[root(c.in[a.In])] = append(writers[root(c.in[a.In])], c)
		}
	}
	return key, writers
}

// undisturbed tells whether nothing that p reads is written over before q has run; writers are the calls that write
// over memory, by the value it was first.
func undisturbed(writers map[*Value][]*call, key map[*call]float64, p, q *call) bool {
	for _, v := range p.in {
		for _, c := range writers[root(v)] {
			if key[c] > key[p] && key[c] <= key[q] {
				return false
			}
		}
	}
	return true
}

// accumulate merges sums into the GEMM that makes one of their terms: where the later of two terms is
// computed for the sum alone, by a kernel that can add to memory, and nobody else reads the earlier one by
// then, the GEMM is added to the earlier term in its memory and the sum disappears.
func accumulate(c *compilation) error {
	calls, t := c.calls, c.target
	uses, readers, index := uses(calls, c.outputs), readersOf(calls, c.outputs), placesOf(calls)
	at := func(v *Value) int {
		if v.call == nil {
			return -1
		}
		return index[v.call]
	}
	trains := false
	for _, c := range calls {
		trains = trains || c.backward
	}
	// free tells whether nobody but the sum reads v from call p on. In training a forward call that reads v may be
	// recomputed for the backward pass (recompute), and so counts in every mode: modes must not differ by a bit.
	free := func(v *Value, sum, p *call) bool {
		for _, r := range readers[v] {
			if r == len(calls) || calls[r] != sum && (r >= index[p] || trains && !calls[r].backward && !sum.backward) {
				return false
			}
		}
		return true
	}
	removed := map[*call]bool{}
	for _, c := range calls {
		var onto, term *Value
		switch c.kernel.(type) {
		case kernel.Add:
			onto, term = c.in[0], c.in[1]
			if at(onto) > at(term) {
				onto, term = term, onto
			}
			if root(onto).kind != Computed {
				continue
			}
		case kernel.AddTo:
			onto, term = c.in[0], c.in[1]
			if at(onto) > at(term) {
				continue
			}
		default:
			continue
		}
		p := term.call
		if p == nil || onto == term || uses[term] != 1 || len(p.out) != 1 || p.segment != c.segment ||
			!free(onto, c, p) {
			continue
		}
		variant, ok := t.accumulate(p.kernel)
		if !ok || reads(p, root(onto)) || !onto.Type.Equal(term.Type) {
			continue
		}
		p.kernel = variant
		p.in = append(p.in, onto)
		readers[onto] = append(readers[onto], index[p])
		result := c.out[0]
		result.call, result.out, p.out = p, 0, []*Value{result}
		removed[c] = true
	}
	c.calls = slices.DeleteFunc(calls, func(c *call) bool { return removed[c] })
	return nil
}

// reads tells whether a call reads memory that r is the first value of.
func reads(c *call, r *Value) bool {
	for _, v := range c.in {
		if root(v) == r {
			return true
		}
	}
	return false
}
