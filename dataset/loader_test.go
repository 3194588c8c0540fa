package dataset

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// madeRows are rows of 2 to longest tokens with a masked prefix; ids tell the row.
func madeRows(n, longest int, seed uint64) []Row {
	r := newRandom(seed)
	rows := make([]Row, n)
	for i := range rows {
		length := 2 + int(r.below(uint64(longest-1)))
		masked := 1 + int(r.below(uint64(length-1)))
		row := Row{Index: i, Line: i + 1, Source: "made"}
		for t := range length {
			row.IDs = append(row.IDs, int32(1000*(i+1)+t))
			row.Labels = append(row.Labels, Ignore)
			if t >= masked {
				row.Labels[t] = row.IDs[t]
			}
		}
		rows[i] = row
	}
	return rows
}

// next is the next batch.
func next(l *Loader) Batch {
	window, _, _ := l.NextWindow(1)
	return window[0]
}

func mustLoader(t testing.TB, rows []Row, opt Options) *Loader {
	t.Helper()
	l, err := NewLoader(Memory(rows), opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// variants runs a test on shuffled and unshuffled, packed and unpacked loaders of several sizes.
func variants(t *testing.T, test func(t *testing.T, rows []Row, opt Options)) {
	for _, n := range []int{1, 7, 64, 333} {
		for _, batch := range []int{1, 4} {
			for _, shuffled := range []bool{false, true} {
				opt := Options{BatchSize: batch, T: 64, PadID: 9, Seed: 5, Shuffle: shuffled}
				packed, segmented, padded := opt, opt, opt
				packed.Packing, segmented.Packing, segmented.Longest, padded.Padded = true, true, 40, true
				for name, opt := range map[string]Options{"end to end": opt, "packed": packed, "packed, short padding": segmented, "padded": padded} {
					t.Run(fmt.Sprintf("rows=%d,batch=%d,shuffle=%v,%s", n, batch, shuffled, name), func(t *testing.T) {
						test(t, madeRows(n, 40, uint64(n)), opt)
					})
				}
			}
		}
	}
}

// checkBatch proves that a batch is its rows and nothing else.
func checkBatch(t *testing.T, l *Loader, b Batch) {
	t.Helper()
	shape := l.Shape()
	M, T := len(b.IDs), shape.T
	if shape.Flat {
		T = M
	}
	if !slices.Contains(shape.Budgets, M) || len(b.Labels) != M || len(b.Positions) != M || len(b.CuSeqlens) != shape.Borders {
		t.Fatalf("%d %d %d ids, labels, positions, %d borders: want %+v", len(b.IDs), len(b.Labels), len(b.Positions), len(b.CuSeqlens), shape)
	}
	if b.CuSeqlens[0] != 0 || b.CuSeqlens[shape.Borders-1] != int32(M) || !slices.IsSorted(b.CuSeqlens) {
		t.Fatalf("borders %v", b.CuSeqlens)
	}
	placed, tokens := 0, 0
	for s := range shape.Borders - 1 {
		from, to := int(b.CuSeqlens[s]), int(b.CuSeqlens[s+1])
		if to-from > shape.Longest {
			t.Fatalf("segment %d..%d is longer than %d", from, to, shape.Longest)
		}
		if from == to {
			continue
		}
		if from/T != (to-1)/T {
			t.Fatalf("segment %d..%d crosses the end of a sequence", from, to)
		}
		for i := from; i < to; i++ {
			if b.Positions[i] != int32(i-from) {
				t.Fatalf("position %d at %d in segment %d..%d", b.Positions[i], i, from, to)
			}
		}
		if placed < len(b.Rows) {
			// padding has no trained token and a row has one, so they cannot be mistaken
			if row := b.of.Row(b.Rows[placed]); slices.Equal(row.IDs, b.IDs[from:to]) && slices.Equal(row.Labels, b.Labels[from:to]) {
				placed, tokens = placed+1, tokens+to-from
				continue
			}
		}
		for i := from; i < to; i++ {
			if b.IDs[i] != l.opt.PadID || b.Labels[i] != Ignore {
				t.Fatalf("segment %d..%d is neither the next row nor padding: id %d, label %d", from, to, b.IDs[i], b.Labels[i])
			}
		}
	}
	if placed != len(b.Rows) || tokens != b.Tokens || countTrained(b.Labels) != b.TrainedTokens {
		t.Fatalf("%d of %d rows, %d of %d tokens, %d of %d trained", placed, len(b.Rows), tokens, b.Tokens, countTrained(b.Labels), b.TrainedTokens)
	}
}

func TestEveryRowOnceAnEpoch(t *testing.T) {
	variants(t, func(t *testing.T, rows []Row, opt Options) {
		l := mustLoader(t, rows, opt)
		want := 0
		for _, r := range rows {
			want += r.Trained()
		}
		for epoch := range 3 {
			var seen []int
			trained, batches := 0, 0
			for {
				b := next(l)
				if b.Epoch != epoch {
					t.Fatalf("epoch %d, want %d", b.Epoch, epoch)
				}
				checkBatch(t, l, b)
				seen, trained, batches = append(seen, b.Rows...), trained+b.TrainedTokens, batches+1
				if b.Last {
					break
				}
			}
			if inOrder := slices.IsSorted(seen); !opt.Packing && len(rows) > 10 && inOrder == opt.Shuffle {
				t.Errorf("shuffle %v, but in order %v", opt.Shuffle, inOrder)
			}
			slices.Sort(seen)
			for i := range rows {
				if len(seen) != len(rows) || seen[i] != i {
					t.Fatalf("epoch %d: rows %v, want each of %d once", epoch, seen, len(rows))
				}
			}
			if trained != want {
				t.Errorf("epoch %d trains %d tokens, the rows have %d", epoch, trained, want)
			}
			if batches != l.Batches(epoch) {
				t.Errorf("epoch %d has %d batches, Batches says %d", epoch, batches, l.Batches(epoch))
			}
		}
	})
}

func TestEpochsDiffer(t *testing.T) {
	rows := madeRows(50, 20, 1)
	l := mustLoader(t, rows, Options{BatchSize: 50, T: 20, Seed: 1, Shuffle: true})
	a := next(l)
	b := next(l)
	other := mustLoader(t, rows, Options{BatchSize: 50, T: 20, Seed: 2, Shuffle: true})
	c := next(other)
	if slices.Equal(a.Rows, b.Rows) || slices.Equal(a.Rows, c.Rows) {
		t.Errorf("the order does not depend on epoch and seed: %v %v %v", a.Rows, b.Rows, c.Rows)
	}
}

// TestOrderIsFixed keeps the order of old runs: a resumed run needs it whatever the version.
func TestOrderIsFixed(t *testing.T) {
	l := mustLoader(t, madeRows(10, 20, 1), Options{BatchSize: 10, T: 20, Seed: 42, Shuffle: true})
	for _, want := range []string{"[8 6 5 4 0 3 1 2 7 9]", "[4 5 9 8 1 2 3 0 6 7]"} {
		b := next(l)
		if got := fmt.Sprint(b.Rows); got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	}
}

// TestSplitMix compares with the published first outputs of SplitMix64 for seed 1234567.
func TestSplitMix(t *testing.T) {
	r := random{1234567}
	for _, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := r.next(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	counts := make([]int, 7)
	for range 70000 {
		counts[r.below(7)]++
	}
	for i, n := range counts {
		if n < 9600 || n > 10400 {
			t.Errorf("%d came up %d times in 70000", i, n)
		}
	}
}

func TestRestoreAnywhere(t *testing.T) {
	variants(t, func(t *testing.T, rows []Row, opt Options) {
		l := mustLoader(t, rows, opt)
		steps := l.Batches(0) + l.Batches(1) + 2
		states := make([]State, steps)
		stream := make([]Batch, steps)
		for i := range steps {
			states[i] = l.State()
			stream[i] = next(l)
		}
		for i := 0; i < steps; i += max(1, steps/9) {
			text, err := json.Marshal(states[i])
			if err != nil {
				t.Fatal(err)
			}
			var s State
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			again := mustLoader(t, rows, opt)
			next(again) // a cursor that is somewhere else
			if err := again.Restore(s); err != nil {
				t.Fatal(err)
			}
			for j := i; j < steps; j++ {
				if b := next(again); !reflect.DeepEqual(b, stream[j]) {
					t.Fatalf("restored at %d: batch %d differs", i, j)
				}
			}
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	rows := madeRows(9, 20, 1)
	opt := Options{BatchSize: 2, T: 20, Seed: 1, Shuffle: true}
	l := mustLoader(t, rows, opt)
	state := l.State()
	for _, c := range []struct {
		name   string
		change func(s *State)
		want   string
	}{
		{"all differences at once", func(s *State) { s.BatchSize, s.Seed, s.Rows = 4, 2, 10 },
			"resume the data order: batch_size was 4, now it is 2\nresume the data order: seed was 2, now it is 1\nresume the data order: the number of rows was 10, now it is 9"},
		{"other data", func(s *State) { s.Data = "x" }, "resume the data order: the data or the tokenizer has changed"},
		{"behind the end", func(s *State) { s.Position = 5 }, "resume the data order: batch 5 does not exist, epoch 0 has 5"},
		{"before the start", func(s *State) { s.Position = -1 }, "resume the data order: batch -1 does not exist, epoch 0 has 5"},
		{"negative epoch", func(s *State) { s.Epoch = -1 }, "resume the data order: epoch -1 does not exist"},
	} {
		s := state
		c.change(&s)
		if err := l.Restore(s); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
	if l.State() != state {
		t.Error("a refused state moved the cursor")
	}
}

func TestWindows(t *testing.T) {
	rows := madeRows(10, 20, 3)
	l := mustLoader(t, rows, Options{BatchSize: 1, T: 20, Seed: 1, Shuffle: true})
	total := 0
	for i, want := range []int{4, 4, 2, 4, 4, 2} {
		window, trained, _ := l.NextWindow(4)
		sum := 0
		for _, b := range window {
			sum += b.TrainedTokens
		}
		if len(window) != want || sum != trained || window[0].Epoch != i/3 {
			t.Errorf("window %d: %d batches, want %d; %d trained tokens, want %d", i, len(window), want, trained, sum)
		}
		total += trained
	}
	want := 0
	for _, r := range rows {
		want += 2 * r.Trained()
	}
	if total != want {
		t.Errorf("two epochs train %d tokens, want %d", total, want)
	}
	if n := l.Steps(2, 4); n != 6 {
		t.Errorf("Steps says %d, want 6", n)
	}
}

func TestEpochLeavesTheCursor(t *testing.T) {
	l := mustLoader(t, madeRows(10, 20, 3), Options{BatchSize: 3, T: 20})
	next(l)
	before, n := l.State(), 0
	for b := range l.Epoch(0) {
		checkBatch(t, l, b)
		n += len(b.Rows)
	}
	if n != 10 || l.State() != before {
		t.Errorf("%d rows, cursor %v, was %v", n, l.State(), before)
	}
}

func TestPackingFills(t *testing.T) {
	rows := madeRows(9000, 200, 11)
	l := mustLoader(t, rows, Options{BatchSize: 4, T: 512, Seed: 1, Shuffle: true, Packing: true})
	tokens, room := 0, 0
	for b := range l.Epoch(0) {
		tokens, room = tokens+b.Tokens, room+len(b.IDs)
	}
	if share := float64(tokens) / float64(room); share < 0.98 {
		t.Errorf("packing fills %.1f %%, want 98 %%", 100*share)
	} else {
		t.Logf("packing fills %.2f %%", 100*share)
	}
}

func TestLoaderRefuses(t *testing.T) {
	rows := madeRows(3, 20, 1)
	for _, c := range []struct {
		rows []Row
		opt  Options
		want string
	}{
		{nil, Options{BatchSize: 1, T: 8}, "load batches: there are no rows"},
		{rows, Options{BatchSize: 0, T: 8}, "load batches: batch size 0 and sequence length 8: want both positive"},
		{rows, Options{BatchSize: 1 << 62, T: 8}, "want both positive and at most"},
		{[]Row{{IDs: make([]int32, 9), Labels: make([]int32, 9), Source: "x", Line: 3}}, Options{BatchSize: 1, T: 8}, "load batches: x:3: the row has 9 tokens, a sequence has 8"},
	} {
		if _, err := NewLoader(Memory(c.rows), c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestSegmentsStayBounded: many short rows among long ones reach the bound on rows a sequence, and CuSeqlens still holds
// every border.
func TestSegmentsStayBounded(t *testing.T) {
	rows := madeRows(500, 2, 1)
	for i, long := range madeRows(100, 64, 2) {
		for len(long.IDs) < 64 {
			long.IDs, long.Labels = append(long.IDs, 7), append(long.Labels, 7)
		}
		rows[5*i] = long
	}
	l := mustLoader(t, rows, Options{BatchSize: 2, T: 64, Seed: 1, Packing: true})
	if l.most >= 64/2 {
		t.Fatalf("the bound %d is never reached", l.most)
	}
	n, fullest := 0, 0
	for b := range l.Epoch(0) {
		checkBatch(t, l, b)
		n, fullest = n+len(b.Rows), max(fullest, len(b.Rows))
	}
	if n != 500 || fullest != 2*l.most {
		t.Errorf("%d rows, %d in the fullest batch, want 500 and %d", n, fullest, 2*l.most)
	}
}

// TestPackedEpochIsMixed: packing sorts by length, the order of training does not.
func TestPackedEpochIsMixed(t *testing.T) {
	rows := madeRows(333, 60, 5)
	l := mustLoader(t, rows, Options{BatchSize: 1, T: 64, Seed: 1, Shuffle: true, Packing: true})
	var first [2][]int
	for epoch := range first {
		var lengths []int
		for b := range l.Epoch(epoch) {
			first[epoch] = append(first[epoch], b.Rows...)
			longest := 0
			for _, r := range b.Rows {
				longest = max(longest, len(rows[r].IDs))
			}
			lengths = append(lengths, -longest)
		}
		if slices.IsSorted(lengths) {
			t.Errorf("epoch %d runs from long rows to short ones", epoch)
		}
	}
	if slices.Equal(first[0], first[1]) {
		t.Error("two epochs have the same order")
	}
}
