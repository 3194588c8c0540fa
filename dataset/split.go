package dataset

import (
	"fmt"
	"math"
	"slices"
)

// hold marks round(part*n) of n source rows for validation, at least one, chosen by the seed; nil if part is 0. All
// rows made from one source row are on the same side.
func hold(rows Rows, part float64, seed uint64) ([]bool, error) {
	if part == 0 {
		return nil, nil
	}
	n := 0
	for i := range rows.Len() {
		if !continues(rows, i) {
			n++
		}
	}
	k := max(int(math.Round(part*float64(n))), 1)
	if k >= n {
		return nil, fmt.Errorf("val_split %v of %d rows leaves no row to train on", part, n)
	}
	chosen := make([]bool, n)
	for _, i := range choose(newRandom(seed, streamSplit), n, k) {
		chosen[i] = true
	}
	if n == rows.Len() {
		return chosen, nil
	}
	held, at := make([]bool, rows.Len()), -1
	for i := range held {
		if !continues(rows, i) {
			at++
		}
		held[i] = chosen[at]
	}
	return held, nil
}

// continues reports whether a row was made from the same source row as the one before it.
func continues(rows Rows, i int) bool {
	if i == 0 {
		return false
	}
	if r, ok := rows.(split); ok {
		return r.Continues(i)
	}
	a, b := rows.Row(i-1), rows.Row(i)
	return a.Index == b.Index && a.Source == b.Source
}

// choose returns k different numbers below n, in no meaningful order.
func choose(r *random, n, k int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	shuffle(r, order)
	return order[:k]
}

// weigh joins the rows of all parts and separates those held out. Of the n training rows of a part with weight w, it
// takes each floor(w) times, and round((w - floor(w))*n) of them once more. The seed and the part's number choose
// these, the same ones in every epoch. The part's report records how many rows were taken. The rows of a part stay in
// file order, and copies of a row are adjacent.
func weigh(parts []part, held []bool, seed uint64) (train, val Rows) {
	for _, p := range parts {
		p.report.Taken = p.rows.Len()
	}
	rows := joinParts(parts)
	if !slices.ContainsFunc(parts, func(p part) bool { return p.source.Weight != 1 }) {
		return apart(rows, held)
	}
	var trained, kept []int32
	first := 0
	for number, p := range parts {
		var own []int32
		for i := first; i < first+p.rows.Len(); i++ {
			if held != nil && held[i] {
				kept = append(kept, int32(i))
			} else {
				own = append(own, int32(i))
			}
		}
		own = repeat(own, p.source.Weight, newRandom(seed, streamWeight+uint64(number)))
		trained, p.report.Taken = append(trained, own...), len(own)
		first += p.rows.Len()
	}
	return selected{rows, trained}, selected{rows, kept}
}

// apart returns the rows that are not held out and those that are.
func apart(rows Rows, held []bool) (train, val Rows) {
	if held == nil {
		return rows, Memory(nil)
	}
	var kept []int32
	for i, h := range held {
		if h {
			kept = append(kept, int32(i))
		}
	}
	return subset{rows, kept}, selected{rows, kept}
}

// repeat takes each index floor(weight) times, and the rest of the weight's share once more.
func repeat(indices []int32, weight float64, r *random) []int32 {
	whole, part := math.Modf(weight)
	extra := make([]bool, len(indices))
	if k := int(math.Round(part * float64(len(indices)))); k > 0 {
		for _, i := range choose(r, len(indices), k) {
			extra[i] = true
		}
	}
	var out []int32
	for i, index := range indices {
		for range int(whole) {
			out = append(out, index)
		}
		if extra[i] {
			out = append(out, index)
		}
	}
	return out
}
