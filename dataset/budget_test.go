package dataset

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// lengths are rows that are known by their number of tokens alone.
type lengths []int

func (l lengths) Len() int          { return len(l) }
func (l lengths) Length(i int) int  { return l[i] }
func (l lengths) Trained(i int) int { return l[i] - 1 }
func (l lengths) Row(i int) Row     { return Row{IDs: make([]int32, l[i]), Labels: make([]int32, l[i])} }

// madeLengths are uneven rows: short ones for the most part.
func madeLengths(n, longest int, seed uint64) lengths {
	r := newRandom(seed)
	rows := make(lengths, n)
	for i := range rows {
		rows[i] = 2 + int(r.below(r.below(uint64(longest-2))+1))
	}
	return rows
}

func computedWith(budgets, totals []int) int {
	sum := 0
	for _, n := range totals {
		i, _ := slices.BinarySearch(budgets, n)
		sum += budgets[i]
	}
	return sum
}

// TestPlacedBudgetsAreTheBest: no other budgets of the same number compute fewer tokens.
func TestPlacedBudgetsAreTheBest(t *testing.T) {
	r := newRandom(7)
	for range 200 {
		totals := make([]int, 1+r.below(12))
		for i := range totals {
			totals[i] = 1 + int(r.below(90))
		}
		most := 1 + int(r.below(4))
		counts := make([]int, slices.Max(totals)+1)
		for _, n := range totals {
			counts[n]++
		}
		got := placeBudgets(counts, 1, 8, most, 0)
		if len(got) > most || !slices.IsSorted(got) || got[len(got)-1] != (slices.Max(totals)+7)/8*8 {
			t.Fatalf("budgets %v of at most %d for %v", got, most, totals)
		}
		least := computedWith(got, totals)
		var try func(budgets []int, from int)
		try = func(budgets []int, from int) {
			if c := computedWith(append(slices.Clone(budgets), got[len(got)-1]), totals); c < least {
				t.Fatalf("%v computes %d tokens for %v, with %v it is %d", got, least, totals, budgets, c)
			}
			for b := from; b < got[len(got)-1] && len(budgets) < most-1; b += 8 {
				try(append(slices.Clone(budgets), b), b+8)
			}
		}
		try(nil, 8)
	}
}

// TestBudgetsHoldTheRun: every batch of the epochs that a run takes has a budget, each budget is used, the same options
// give the same ones, and the more batches there are, the less is padding.
func TestBudgetsHoldTheRun(t *testing.T) {
	rows := madeLengths(500, 300, 3)
	for _, size := range []int{1, 3, 16} {
		padding := 1.0
		for _, batches := range []int{1, 40, 400, 4000} {
			l, err := NewLoader(rows, Options{BatchSize: size, T: 304, Seed: 5, Shuffle: true})
			if err != nil {
				t.Fatal(err)
			}
			whole := l.Shape().Budgets[0]
			l.ChooseBudgets(batches, MaxBudgets)
			budgets := l.Shape().Budgets
			if !slices.IsSorted(budgets) || slices.Max(budgets) > whole || len(budgets) > MaxBudgets {
				t.Errorf("%d rows, %d batches: budgets %v, the largest batch there could be has %d", size, batches, budgets, whole)
			}
			used := map[int]bool{}
			computed, tokens := 0, 0
			for e := range (batches + l.Batches(0) - 1) / l.Batches(0) {
				for b := range l.Epoch(e) {
					used[len(b.IDs)] = true
					if e == 0 {
						computed, tokens = computed+len(b.IDs), tokens+b.Tokens
					}
				}
			}
			if len(used) != len(budgets) {
				t.Errorf("%d rows, %d batches: budgets %v, used are %v", size, batches, budgets, used)
			}
			if got := l.Efficiency(0); got != float64(tokens)/float64(computed) {
				t.Errorf("efficiency %v, %d of %d tokens are rows'", got, tokens, computed)
			}
			if left := 1 - l.Efficiency(0); left > padding+0.02 {
				t.Errorf("%d rows, %d batches: %.1f %% padding, with fewer batches %.1f %%", size, batches, 100*left, 100*padding)
			} else {
				padding = left
			}
			again, _ := NewLoader(rows, Options{BatchSize: size, T: 304, Seed: 5, Shuffle: true})
			again.ChooseBudgets(batches, MaxBudgets)
			if !slices.Equal(again.Shape().Budgets, budgets) {
				t.Errorf("budgets %v, then %v", budgets, again.Shape().Budgets)
			}
		}
		if padding > 0.17 {
			t.Errorf("%d rows: %.1f %% padding are left", size, 100*padding)
		}
	}
}

// TestEqualRowsHaveOneBudget: as many tokens as they have, rounded up to 8.
func TestEqualRowsHaveOneBudget(t *testing.T) {
	for _, c := range []struct{ length, batch, rows, want int }{{13, 4, 40, 56}, {16, 1, 9, 16}, {100, 32, 3200, 3200}, {1, 1, 5, 1}} {
		rows := make(lengths, c.rows)
		for i := range rows {
			rows[i] = c.length
		}
		l, err := NewLoader(rows, Options{BatchSize: c.batch, T: max(c.length, 1), Seed: 5, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		l.ChooseBudgets(100000, MaxBudgets)
		if got, want := fmt.Sprint(l.Shape().Budgets), fmt.Sprint([]int{min(c.want, c.batch*c.length)}); got != want {
			t.Errorf("%d rows of %d tokens, %d a batch: budgets %s, want %s", c.rows, c.length, c.batch, got, want)
		}
	}
}

// TestBudgetsChangeNoBatch: the rows, their order and their places are those of a loader with one budget.
func TestBudgetsChangeNoBatch(t *testing.T) {
	rows := madeRows(333, 40, 3)
	opt := Options{BatchSize: 4, T: 40, PadID: 9, Seed: 5, Shuffle: true}
	one, several := mustLoader(t, rows, opt), mustLoader(t, rows, opt)
	several.ChooseBudgets(2*several.Batches(0), MaxBudgets)
	if n := len(several.Shape().Budgets); n < 3 {
		t.Fatalf("%d budgets", n)
	}
	for range 2 * one.Batches(0) {
		a, b := next(one), next(several)
		checkBatch(t, one, a)
		checkBatch(t, several, b)
		if !reflect.DeepEqual(a.Rows, b.Rows) || !slices.Equal(a.IDs[:a.Tokens], b.IDs[:b.Tokens]) || !slices.Equal(a.CuSeqlens[:len(a.Rows)+1], b.CuSeqlens[:len(b.Rows)+1]) {
			t.Fatal("another batch")
		}
		if one.State() != several.State() {
			t.Fatalf("cursors %+v and %+v", one.State(), several.State())
		}
	}
}

// TestLongRunsHaveRoomForAnyBatch: of a run that is too long to be dealt beforehand.
func TestLongRunsHaveRoomForAnyBatch(t *testing.T) {
	l := mustLoader(t, madeRows(333, 40, 3), Options{BatchSize: 4, T: 40, Seed: 5, Shuffle: true})
	whole := l.Shape().Budgets[0]
	began := time.Now()
	l.ChooseBudgets(1<<40, MaxBudgets)
	if got := l.Shape().Budgets; slices.Max(got) != whole || len(got) < 3 {
		t.Errorf("budgets %v, the largest batch there could be has %d tokens", got, whole)
	}
	t.Logf("%v", time.Since(began))
}

func TestBudgetsStay(t *testing.T) {
	packed := mustLoader(t, madeRows(30, 40, 3), Options{BatchSize: 4, T: 40, Packing: true})
	packed.ChooseBudgets(1000, MaxBudgets)
	if got := packed.Shape().Budgets; !slices.Equal(got, []int{160}) {
		t.Errorf("packed: %v", got)
	}
	l := mustLoader(t, madeRows(333, 40, 3), Options{BatchSize: 4, T: 40, Seed: 5, Shuffle: true})
	l.ChooseBudgets(1000, MaxBudgets)
	largest := slices.Max(l.Shape().Budgets)
	l.UseBudgets([]int{largest})
	if b := next(l); len(b.IDs) != largest {
		t.Errorf("%d tokens, the one budget is %d", len(b.IDs), largest)
	}
	defer func() {
		if recover() == nil {
			t.Error("budgets that hold too little were taken")
		}
	}()
	l.UseBudgets([]int{largest - 8})
}

// TestEvaluationIsPacked: validation rows fill their batches, whatever training does.
func TestEvaluationIsPacked(t *testing.T) {
	for _, n := range []int{1, 5, 60, 1000} {
		set := &Set{Train: Memory(madeRows(5, 40, 1)), Val: Memory(madeRows(n, 40, 2)), Config: Default()}
		l, err := set.ValLoader(4, 0)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for b := range l.Epoch(0) {
			checkBatch(t, l, b)
			seen += len(b.Rows)
		}
		s := l.Shape()
		t.Logf("%d rows: %d batches of %d tokens, %.1f %% padding", n, l.Batches(0), s.Budgets[0], 100*(1-l.Efficiency(0)))
		if seen != n || s.Longest != 40 || s.Budgets[0] > 160 || n > 1 && l.Efficiency(0) < 0.9 {
			t.Errorf("%d rows: %d seen, %+v, efficiency %v", n, seen, s, l.Efficiency(0))
		}
	}
}

// TestShardsUseTheSameBudgets: the ranks' batches round by round are those of one rank, in the same budgets.
func TestShardsUseTheSameBudgets(t *testing.T) {
	rows := madeRows(333, 40, 3)
	loader := func() *Loader {
		l := mustLoader(t, rows, Options{BatchSize: 4, T: 40, PadID: 9, Seed: 5, Shuffle: true})
		l.ChooseBudgets(2*l.Batches(0), MaxBudgets)
		return l
	}
	one, ranks := loader(), []*Loader{mustShard(t, loader(), 0, 3), mustShard(t, loader(), 1, 3), mustShard(t, loader(), 2, 3)}
	used := map[int]bool{}
	for range one.Steps(2, 6) {
		want, divisor, _ := one.NextWindow(6)
		var shares [][]Batch
		for _, l := range ranks {
			window, trained, _ := l.NextWindow(2)
			if trained != divisor {
				t.Fatalf("divisor %d, want %d", trained, divisor)
			}
			shares = append(shares, window)
		}
		got := interleaved(shares)
		if !reflect.DeepEqual(got, want) {
			t.Fatal("the ranks' batches are not those of one rank")
		}
		for _, b := range got {
			used[len(b.IDs)] = true
		}
	}
	if len(used) < 3 {
		t.Errorf("budgets %v were used", used)
	}
}
