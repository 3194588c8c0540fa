package graph

import (
	"sort"

	"github.com/tierlora/tierlora/kernel"
)

// sinkWide moves calls that make a much wider value than they read, such as the gradient of a slice of columns, to just
// before the sum that is all that reads it. The slices' gradients come layer by layer and are summed at the end: as
// they come they are a matrix in all, spread out a matrix each. Numbers stay as they are.
func sinkWide(c *compilation) error {
	key, writers := orderOf(c.calls)
	readers := readersOf(c.calls, c.outputs)
	for _, p := range c.calls {
		if !p.backward || len(p.out) != 1 || len(overwrites(p)) > 0 || isTransfer(p.kernel) || !wide(p) {
			continue
		}
		if r := readers[p.out[0]]; len(r) == 1 && r[0] < len(c.calls) {
			q := c.calls[r[0]]
			if _, sum := q.kernel.(kernel.Add); sum && q.segment == p.segment && undisturbed(writers, key, p, q) {
				key[p] = key[q] - 0.5
			}
		}
	}
	sort.SliceStable(c.calls, func(i, j int) bool { return key[c.calls[i]] < key[c.calls[j]] })
	return nil
}

// wide tells whether a call's output has at least four times the numbers that it reads.
func wide(c *call) bool {
	read := 0
	for _, v := range c.in {
		if root(v).kind != Computed {
			return false
		}
		read += v.Type.Elems()
	}
	return read > 0 && c.out[0].Type.Elems() >= 4*read
}
