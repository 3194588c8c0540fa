package dataset

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// promptedGroups are rows of 1 to 4 answers to one prompt each, of 1 to 30 and 1 to 20 tokens.
func promptedGroups(n int, seed uint64) []Row {
	r := newRandom(seed)
	rows := make([]Row, n)
	for i := range rows {
		row := Row{Index: i, Line: i + 1, Source: "made"}
		prompt := 1 + int(r.below(30))
		for s := range 1 + int(r.below(4)) {
			if s > 0 {
				row.Borders = append(row.Borders, int32(len(row.IDs)))
			}
			for t := range prompt {
				row.IDs, row.Labels = append(row.IDs, int32(100*i+t)), append(row.Labels, Ignore)
			}
			for t := range 1 + int(r.below(20)) {
				id := int32(100*i + 40 + 10*s + t)
				row.IDs, row.Labels = append(row.IDs, id), append(row.Labels, id)
			}
		}
		if i%3 == 0 {
			for t := range row.IDs {
				row.Weights = append(row.Weights, float32(t%5))
			}
		}
		rows[i] = row
	}
	return rows
}

// whole returns sequence s of a batch with the prefix that it continues.
func whole(b Batch, s int32) (ids, labels, positions []int32, weights []float32) {
	of := []int32{s}
	if b.Prefixes != nil && b.Prefixes[s] >= 0 {
		of = []int32{b.Prefixes[s], s}
	}
	for _, s := range of {
		from, to := b.CuSeqlens[s], b.CuSeqlens[s+1]
		ids, labels = append(ids, b.IDs[from:to]...), append(labels, b.Labels[from:to]...)
		positions = append(positions, b.Positions[from:to]...)
		if b.Weights != nil {
			weights = append(weights, b.Weights[from:to]...)
		}
	}
	return ids, labels, positions, weights
}

// TestSharedPrefixesAreTheRows checks that batches with shared prefixes hold the sequences of the rows, in every layout
// of batches.
func TestSharedPrefixesAreTheRows(t *testing.T) {
	for _, n := range []int{1, 9, 200} {
		for _, opt := range []Options{
			{BatchSize: 1, T: 200, Longest: 50}, {BatchSize: 4, T: 200, Longest: 50, Shuffle: true, Seed: 3},
			{BatchSize: 2, T: 256, Longest: 50, Packing: true}, {BatchSize: 3, T: 200, Longest: 50, Padded: true},
		} {
			t.Run(fmt.Sprintf("%d rows, %+v", n, opt), func(t *testing.T) {
				rows := Memory(promptedGroups(n, uint64(n)))
				l, err := NewLoader(share(rows, 3), opt)
				if err != nil {
					t.Fatal(err)
				}
				if !l.Shape().Prefixes {
					t.Error("the shape says that no segment continues another")
				}
				l.ChooseBudgets(n, MaxBudgets)
				seen := 0
				for b, err := range l.Epoch(0) {
					if err != nil {
						t.Fatal(err)
					}
					checkShared(t, rows, b)
					seen += len(b.Rows)
				}
				if want := n; opt.Packing && seen != want || seen < want/opt.BatchSize*opt.BatchSize {
					t.Errorf("%d rows in batches, want %d", seen, want)
				}
			})
		}
	}
}

// TestLongPrefixIsCountedOnce checks that a prefix longer than the answers does not count twice in the longest sequence,
// and that a cursor of a program that counted so is restored.
func TestLongPrefixIsCountedOnce(t *testing.T) {
	ids := make([]int32, 2*60)
	for i := range ids {
		ids[i] = int32(3 + i%60)
	}
	ids[115] = 99 // the second sequence differs from the 56th token on
	row := Row{IDs: ids, Labels: slices.Clone(ids), Borders: []int32{60}}
	for i := range row.Labels {
		if i%60 < 50 {
			row.Labels[i] = Ignore
		}
	}
	set := &Set{Config: Default(), Train: Memory{row, row, row}, Val: Memory(nil), Positions: 64}
	set.Config.MaxLength = 64
	whole := set.SequenceLength()
	set.SharePrefixes(1)
	if n := set.SequenceLength(); n != 64 || whole != 64 {
		t.Errorf("the longest sequence has %d tokens, without sharing %d, want 64", n, whole)
	}
	l, err := set.TrainLoader(1)
	if err != nil {
		t.Fatal(err)
	}
	state := l.State()
	if state.T = state.T + 30; l.Restore(state) != nil {
		t.Errorf("a cursor of longer sequences: %v", l.Restore(state))
	}
	if state.T = 1000; l.Restore(state) == nil {
		t.Error("a cursor of sequences of 1000 tokens is restored")
	}
}

// checkShared compares the sequences of a batch with those of the rows.
func checkShared(t *testing.T, rows Memory, b Batch) {
	t.Helper()
	groups, segments := b.Sequences()
	trained := 0
	for k, i := range b.Rows {
		row := rows[i]
		if n := int(groups[k+1] - groups[k]); n != row.Sequences() {
			t.Fatalf("row %d has %d sequences, want %d", i, n, row.Sequences())
		}
		for s := range row.Sequences() {
			ids, labels, positions, weights := whole(b, segments[int(groups[k])+s])
			from, to := sequenceSpan(row.Borders, s, len(row.IDs))
			if !slices.Equal(ids, row.IDs[from:to]) || !slices.Equal(labels, row.Labels[from:to]) {
				t.Fatalf("row %d, sequence %d: %v labelled %v", i, s, ids, labels)
			}
			for p, at := range positions {
				if int(at) != p {
					t.Fatalf("row %d, sequence %d has positions %v", i, s, positions)
				}
			}
			for p := range labels { // the weights of tokens that are not trained say nothing
				if row.Weights != nil && labels[p] != Ignore && weights[p] != row.Weights[from+p] {
					t.Fatalf("row %d, sequence %d has weights %v", i, s, weights)
				}
			}
		}
		trained += row.Trained()
	}
	if b.TrainedTokens != trained || b.Count() != len(segments) {
		t.Errorf("%d trained tokens and %d sequences, want %d and %d", b.TrainedTokens, b.Count(), trained,
			len(segments))
	}
}

// TestSharedViewAgrees checks what is known of rows with shared prefixes without reading them, and that the batches of
// recorded rows are the same.
func TestSharedViewAgrees(t *testing.T) {
	rows := Memory(promptedGroups(50, 1))
	s := share(rows, 2)
	saved := 0
	for i := range rows.Len() {
		row := s.Row(i)
		if s.Length(i) != len(row.IDs) || s.Trained(i) != row.Trained() || !slices.Equal(s.Borders(i), row.Borders) {
			t.Fatalf("row %d: %d tokens, %d trained, borders %v: it is %+v", i, s.Length(i), s.Trained(i),
				s.Borders(i), row)
		}
		if err := checkGroup(row.Borders, len(row.IDs)); err != nil {
			t.Fatal(err)
		}
		if s.Prefix(i) != row.prefixBefore(1) || hashOf(s, i) != hashOf(rows, i) {
			t.Fatalf("row %d: prefix of %d tokens, it is %+v", i, s.Prefix(i), row)
		}
		if alone := row.shared(commonPrefix(row)); row.Prefix && !reflect.DeepEqual(alone, row) {
			t.Fatal("a prefix is shared twice")
		}
		saved += rows.Length(i) - s.Length(i)
	}
	set := &Set{Train: rows, Val: Memory{}}
	before := set.Prefixes(2)
	set.SharePrefixes(2)
	if after := set.Prefixes(2); before != after || before.Saved != saved || saved == 0 {
		t.Errorf("measured %+v, shared %+v: %d tokens are saved", before, after, saved)
	}
	if digest(s) != digest(rows) {
		t.Error("the digest is another")
	}
	l, err := NewLoader(s, Options{BatchSize: 3, T: 200, Longest: 50})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range l.Epoch(0) {
		if err != nil {
			t.Fatal(err)
		}
		var recorded []Row
		for _, i := range b.Rows {
			recorded = append(recorded, s.Row(i))
		}
		again, err := l.Shape().Lay([][]Row{recorded}, 0)
		if err != nil || !slices.Equal(again.IDs, b.IDs) || !slices.Equal(again.Positions, b.Positions) ||
			!slices.Equal(again.Prefixes, b.Prefixes) {
			t.Fatalf("laid out again: %v", err)
		}
		plain := l.Shape()
		plain.Prefixes = false
		if _, err := plain.Lay([][]Row{recorded}, 0); err == nil && b.Prefixes != nil {
			t.Fatal("rows that share prefixes are laid out where no segment continues another")
		}
	}
}

// TestWhatIsShared lists rows and the prefixes that their sequences can share.
func TestWhatIsShared(t *testing.T) {
	x := Ignore
	for _, c := range []struct {
		what        string
		ids, labels []int32
		borders     []int32
		want        int
	}{
		{"a pair", []int32{1, 2, 3, 4, 1, 2, 3, 5}, []int32{x, x, x, 4, x, x, x, 5}, []int32{4}, 2},
		{"a prompt of one token", []int32{1, 4, 1, 5}, []int32{x, 4, x, 5}, []int32{2}, 0},
		{"answers that begin alike", []int32{1, 2, 7, 4, 1, 2, 7, 5}, []int32{x, x, 7, 4, x, x, 7, 5}, []int32{4}, 1},
		{"prompts of different lengths", []int32{1, 2, 3, 4, 1, 2, 5}, []int32{x, x, x, 4, x, x, 5}, []int32{4}, 1},
		{"other prompts", []int32{1, 2, 4, 3, 2, 5}, []int32{x, x, 4, x, x, 5}, []int32{3}, 0},
		{"a trained prompt", []int32{1, 2, 3, 1, 2, 4}, []int32{1, 2, 3, x, x, 4}, []int32{3}, 0},
		{"an empty answer", []int32{1, 2, 3, 1, 2, 3, 4}, []int32{x, x, x, x, x, x, 4}, []int32{3}, 2},
		{"one sequence", []int32{1, 2, 3}, []int32{x, x, 3}, nil, 0},
	} {
		if got := commonPrefix(Row{IDs: c.ids, Labels: c.labels, Borders: c.borders}); got != c.want {
			t.Errorf("%s: %d tokens, want %d", c.what, got, c.want)
		}
	}
}

// TestWorkOfSharedPrefixes checks that a token of an answer counts the prefix among what it sees.
func TestWorkOfSharedPrefixes(t *testing.T) {
	row := Row{IDs: make([]int32, 14), Labels: make([]int32, 14), Borders: []int32{7}}
	for i := range row.Labels {
		row.Labels[i] = Ignore
	}
	shared := Memory{row.shared(4)} // 4, 3 and 3 tokens
	if got, want := (Options{}).cost(shared, []int32{0}, 10), int64(10*10+4*4+2*(3*3+2*3*4)); got != want {
		t.Errorf("work %d, want %d", got, want)
	}
	if got, want := (Options{}).cost(Memory{row}, []int32{0}, 10), int64(14*10+2*7*7); got != want {
		t.Errorf("work without sharing %d, want %d", got, want)
	}
}
