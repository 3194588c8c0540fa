package dataset

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestFewRowsArePackedShort: packed sequences are as long as the rows fill them, and no batch more or less is made of them.
func TestFewRowsArePackedShort(t *testing.T) {
	for _, c := range []struct {
		name              string
		rows, batch, most int // rows of 2 to 40 tokens; batch size; max_length
		batches           int
		short             bool
	}{
		{"one batch of one sequence", 38, 1, 4096, 1, true},
		{"one batch of four sequences", 38, 4, 4096, 1, true},
		{"a little more than one batch", 60, 1, 1024, 2, true},
		{"a row", 1, 1, 4096, 1, true},
		{"rows that fill three batches and a half", 170, 1, 1024, 4, false},
		{"rows that fill a batch", 44, 1, 1024, 1, false},
		{"rows that fill many batches", 2000, 2, 1024, 21, false},
	} {
		set := &Set{Config: Default(), Train: Memory(madeRows(c.rows, 40, 20)), Val: Memory(madeRows(c.rows, 40, 20))}
		set.Config.Packing, set.Config.MaxLength, set.Config.Seed = true, c.most, 3
		plain := set.options(c.batch)
		plain.Shuffle = true
		before := mustLoader(t, set.Train.(Memory), plain)
		l, err := set.TrainLoader(c.batch)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		was, now := before.Shape(), l.Shape()
		if n := before.Batches(0); l.Batches(0) != n || l.Batches(1) != n || n != c.batches {
			t.Errorf("%s: %d batches, before %d", c.name, l.Batches(0), n)
		}
		report := l.Report()
		if !c.short {
			if !reflect.DeepEqual(was, now) || !reflect.DeepEqual(before.State(), l.State()) || report.Sequence != 0 || before.Efficiency(0) < 0.75 {
				t.Errorf("%s: %+v, before %+v, %.2f filled", c.name, now, was, before.Efficiency(0))
			}
			continue
		}
		if now.T >= was.T || now.Sequences != was.Sequences || now.Budgets[0] != now.T*c.batch || c.rows > 1 && l.Efficiency(0) < 0.85 || before.Efficiency(0) > 0.75 {
			t.Errorf("%s: %+v, before %+v, %.2f filled, before %.2f", c.name, now, was, l.Efficiency(0), before.Efficiency(0))
		}
		if report.Sequence != now.T || !strings.Contains(report.String(), " tokens, as there are too few to fill max_length, ") {
			t.Errorf("%s: %v", c.name, report)
		}
		var seen []int
		for b := range l.Epoch(1) {
			checkBatch(t, l, b)
			seen = append(seen, b.Rows...)
		}
		slices.Sort(seen)
		if len(seen) != c.rows || seen[len(seen)-1] != c.rows-1 {
			t.Errorf("%s: an epoch has the rows %v", c.name, seen)
		}
		val, err := set.ValLoader(c.batch, 0)
		if err != nil || val.Shape().T > now.T || val.Batches(0) != c.batches {
			t.Errorf("%s: validation: %+v, %v", c.name, val.Shape(), err)
		}
		// A checkpoint of longer sequences goes on where an epoch is one batch: its rows are the same.
		state := before.State()
		state.Epoch = 2
		if err := l.Restore(state); (err == nil) != (c.batches == 1) {
			t.Errorf("%s: resumed: %v", c.name, err)
		}
	}
	set := &Set{Config: Default(), Train: Memory(madeRows(38, 40, 20)), Val: Memory(nil)}
	set.Config.MaxLength = 4096
	l, err := set.TrainLoader(64)
	if err != nil {
		t.Fatal(err)
	}
	if largest := l.Shape().Budgets[0]; largest > 38*40+63 { // rows end to end need no more than there is
		t.Errorf("unpacked rows are computed for %d tokens", largest)
	}
}
