package dataset

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// work is what a batch costs, counted from its segments.
func work(l *Loader, b Batch) (sum int64) {
	for i := range len(b.CuSeqlens) - 1 {
		n := int64(b.CuSeqlens[i+1] - b.CuSeqlens[i])
		if row := int32(0); !l.opt.flat() || slices.ContainsFunc(b.Starts, func(at int) bool { row = b.CuSeqlens[i]; return int32(at) == row }) {
			sum += n * n
		}
	}
	if l.opt.flat() {
		sum += int64(b.Tokens * l.tokenCost)
	}
	return sum
}

func sortedRows(batches []Batch) (rows []int) {
	for _, b := range batches {
		rows = append(rows, b.Rows...)
	}
	slices.Sort(rows)
	return rows
}

// TestStepsAreEven: a step has the rows that it has as they come; its largest batch is no larger; its batches come in the
// order of their work; each is whole and has no more sequences than it may. In steps of one batch nothing changes.
func TestStepsAreEven(t *testing.T) {
	variants(t, func(t *testing.T, rows []Row, opt Options) {
		for _, step := range []int{1, 2, 8, 100} {
			for _, pieces := range []int{1, 2} {
				came, even := mustLoader(t, rows, opt), mustLoader(t, rows, opt)
				if opt.BatchSize%pieces != 0 {
					continue
				}
				even.Even(step, 50)
				if err := even.Split(pieces); err != nil {
					t.Fatal(err)
				}
				came.tokenCost = even.tokenCost // for work
				for at := range 2 * (came.Batches(0) + step - 1) / step {
					a, trained, _ := came.NextWindow(step)
					b, sameTrained, _ := even.NextWindow(step)
					if !slices.Equal(sortedRows(a), sortedRows(b)) || trained != sameTrained {
						t.Fatalf("step %d has rows %v, want %v", at, sortedRows(b), sortedRows(a))
					}
					if step*pieces == 1 && !reflect.DeepEqual(a, b) {
						t.Fatalf("step %d of one batch is another", at)
					}
					most := func(batches []Batch) (most int64) {
						for _, b := range batches {
							most = max(most, work(came, b))
						}
						return most
					}
					if most(b) > most(a) {
						t.Errorf("step %d: the largest batch has work %d, as they came %d", at, most(b), most(a))
					}
					for i, batch := range b {
						checkBatch(t, even, batch)
						if pieces == 1 && step > 1 && i > 0 && i < len(b)-1 && work(even, batch) > work(even, b[i-1]) {
							t.Errorf("step %d: batch %d has more work than the one before", at, i)
						}
					}
				}
			}
		}
	})
}

// TestEvenIsNearlyEven: of uneven rows, a step's largest batch is hardly larger than the mean.
func TestEvenIsNearlyEven(t *testing.T) {
	rows := madeLengths(4096, 500, 3)
	for _, c := range []struct {
		size, step int
		most       float64 // what the largest of a step's batches may be, of their mean
	}{{2, 8, 1.65}, {4, 2, 1.04}, {4, 8, 1.06}, {8, 8, 1.005}, {4, 64, 1.15}} {
		l, err := NewLoader(rows, Options{BatchSize: c.size, T: 500, Seed: 5, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		came := unevenness(t, l, c.step, 1)
		l.Even(c.step, 1000)
		even := unevenness(t, l, c.step, 1)
		t.Logf("%d batches of %d: the largest is %.3f of the mean, as they come %.3f", c.step, c.size, even, came)
		if even > c.most || even >= came {
			t.Errorf("%d batches of %d: the largest is %.3f of the mean, want %.3f", c.step, c.size, even, c.most)
		}
	}
}

// unevenness returns the time of an epoch relative to that of ranks with equal work. A step has step batches, in rounds
// of step/rounds; a round takes as long as its largest batch.
func unevenness(t *testing.T, l *Loader, step, rounds int) float64 {
	t.Helper()
	if l.tokenCost == 0 {
		l.tokenCost = 1000 // for work
		defer func() { l.tokenCost = 0 }()
	}
	var waited, sum float64
	var batches []int64
	for b := range l.Epoch(0) {
		batches = append(batches, work(l, b))
	}
	for one := range slices.Chunk(batches, step) {
		if len(one) < step {
			continue
		}
		for round := range slices.Chunk(one, step/rounds) {
			waited += float64(slices.Max(round)) * float64(len(round))
			for _, w := range round {
				sum += float64(w)
			}
		}
	}
	return waited / sum
}

// TestAlikeStaysAsItCame: rows of one length are not dealt anew.
func TestAlikeStaysAsItCame(t *testing.T) {
	rows := slices.Repeat(lengths{17}, 99)
	opt := Options{BatchSize: 4, T: 24, Seed: 5, Shuffle: true}
	came, _ := NewLoader(rows, opt)
	even, _ := NewLoader(rows, opt)
	even.Even(8, 50)
	for range 20 {
		if a, b := next(came), next(even); !slices.Equal(a.Rows, b.Rows) {
			t.Fatalf("rows %v, want %v", b.Rows, a.Rows)
		}
	}
}

// TestEvenResumes: the cursor of an older program goes on at the start of a step, and nowhere else.
func TestEvenResumes(t *testing.T) {
	rows := madeRows(47, 20, 3)
	opt := Options{BatchSize: 2, T: 20, Seed: 5, Shuffle: true}
	old, even := mustLoader(t, rows, opt), mustLoader(t, rows, opt)
	even.Even(3, 50)
	old.NextWindow(3)
	if err := even.Restore(old.State()); err != nil {
		t.Fatal(err)
	}
	a, _, _ := old.NextWindow(3)
	b, _, _ := even.NextWindow(3)
	if !slices.Equal(sortedRows(a), sortedRows(b)) {
		t.Errorf("rows %v follow, want %v", sortedRows(b), sortedRows(a))
	}
	old.NextWindow(1)
	err := even.Restore(old.State())
	const want = "batch 7 of epoch 0 is not the first of its step, and steps of 0 batches were made even with a token cost of 0, now 3 with 50"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	again := mustLoader(t, rows, opt)
	again.Even(3, 50)
	even.NextWindow(1)
	if err := again.Restore(even.State()); err != nil {
		t.Errorf("within a step: %v", err)
	}
	if a, b := next(again), next(even); !reflect.DeepEqual(a.Rows, b.Rows) {
		t.Errorf("rows %v, want %v", a.Rows, b.Rows)
	}
}
