package dataset

import (
	"reflect"
	"slices"
	"testing"
)

// TestSplitBatches: batches in pieces hold the same rows in the same order, step by step, with the same divisor, over the
// ends of epochs and behind any cursor; and the cursor is that of whole batches.
func TestSplitBatches(t *testing.T) {
	rows := madeRows(23, 40, 5)
	for _, packing := range []bool{false, true} {
		opt := Options{BatchSize: 4, T: 64, Seed: 3, Shuffle: true, Packing: packing}
		for _, accumulate := range []int{1, 2} {
			for _, pieces := range []int{1, 2, 4} {
				whole, err := NewLoader(Memory(rows), opt)
				if err != nil {
					t.Fatal(err)
				}
				split, err := NewLoader(Memory(rows), opt)
				if err == nil {
					err = split.Split(pieces)
				}
				if err != nil {
					t.Fatal(err)
				}
				steps := whole.Steps(3, accumulate)
				if n := split.Steps(3, accumulate); n != steps || split.Batches(0) != whole.Batches(0) {
					t.Errorf("%d steps and %d batches, want %d and %d", n, split.Batches(0), steps, whole.Batches(0))
				}
				whole.ChooseBudgets(steps*accumulate, MaxBudgets)
				split.ChooseBudgets(steps*accumulate*pieces, MaxBudgets)
				if got, want := split.Shape().Sequences, 4/pieces; got != want {
					t.Errorf("%d sequences, want %d", got, want)
				}
				for step := range steps {
					if a, b := whole.State(), split.State(); a != b || whole.Progress() != split.Progress() {
						t.Fatalf("step %d: the cursors are %+v and %+v", step, a, b)
					}
					if step == 3 { // behind a cursor of the other
						if err := split.Restore(whole.State()); err != nil {
							t.Fatal(err)
						}
					}
					a, n, err := whole.NextWindow(accumulate)
					if err != nil {
						t.Fatal(err)
					}
					b, m, err := split.NextWindow(accumulate)
					if err != nil {
						t.Fatal(err)
					}
					if n != m || !reflect.DeepEqual(segmentsOf(a), segmentsOf(b)) || len(b) < len(a) || len(b) > pieces*len(a) {
						t.Fatalf("packing %v, %d pieces, step %d: %d micro-batches of %d trained tokens, want %d of %d", packing, pieces, step, len(b), m, len(a), n)
					}
					last := func(x []Batch) []bool {
						var out []bool
						for _, y := range x {
							out = append(out, y.Last)
						}
						return out
					}
					if slices.Contains(last(a), true) != slices.Contains(last(b), true) || slices.Contains(last(b)[:len(b)-1], true) {
						t.Errorf("step %d: the last of an epoch is marked %v, whole %v", step, last(b), last(a))
					}
				}
			}
		}
	}
	l, err := NewLoader(Memory(rows), Options{BatchSize: 6, T: 64})
	if err != nil {
		t.Fatal(err)
	}
	for _, pieces := range []int{0, 4, 7, -1} {
		if err := l.Split(pieces); err == nil {
			t.Errorf("batches of 6 are split in %d", pieces)
		}
	}
}

// segmentsOf are the sequences of batches one after the other, without padding.
func segmentsOf(batches []Batch) [][]int32 {
	var all [][]int32
	for _, b := range batches {
		for i := range len(b.CuSeqlens) - 1 {
			from, to := b.CuSeqlens[i], b.CuSeqlens[i+1]
			if ids := b.IDs[from:to]; slices.ContainsFunc(b.Labels[from:to], func(l int32) bool { return l != Ignore }) {
				all = append(all, slices.Clone(ids))
			}
		}
	}
	return all
}
