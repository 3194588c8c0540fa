package dataset

import (
	"fmt"
	"reflect"
	"testing"
)

func mustShard(t *testing.T, l *Loader, rank, world int) *Loader {
	t.Helper()
	s, err := l.Shard(rank, world)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// splits are ways to share a step's micro-batches: world ranks, each accumulating over n.
var splits = []struct{ world, n int }{{1, 1}, {1, 6}, {2, 3}, {3, 2}, {6, 1}, {2, 1}, {4, 2}, {7, 3}, {64, 1}}

// interleaved is the ranks' lists round by round.
func interleaved(ranks [][]Batch) (all []Batch) {
	for round := 0; ; round++ {
		before := len(all)
		for _, list := range ranks {
			if round < len(list) {
				all = append(all, list[round])
			}
		}
		if len(all) == before {
			return all
		}
	}
}

// TestShardsAreOneWindow: at every step the ranks' batches round by round are the window of one rank that accumulates over
// all of it, under the same divisor, over epochs whose ends are uneven. A rank that asks for it sees the whole window.
func TestShardsAreOneWindow(t *testing.T) {
	variants(t, func(t *testing.T, rows []Row, opt Options) {
		for _, split := range splits {
			t.Run(fmt.Sprintf("%dx%d", split.world, split.n), func(t *testing.T) {
				loader := func() *Loader {
					l := mustLoader(t, rows, opt)
					l.Even(split.world*split.n, 50)
					return l
				}
				one := loader()
				ranks := make([]*Loader, split.world)
				for r := range ranks {
					ranks[r] = mustShard(t, loader(), r, split.world)
				}
				steps := one.Steps(2, split.world*split.n)
				if got := ranks[0].Steps(2, split.n); got != steps {
					t.Fatalf("%d steps, want %d", got, steps)
				}
				for step := range steps {
					want, divisor, _ := one.NextWindow(split.world * split.n)
					var got [][]Batch
					for r, l := range ranks {
						dealt, err := l.NextStep(split.n, r == split.world-1)
						if err != nil {
							t.Fatal(err)
						}
						window, trained := dealt.Batches, dealt.Trained
						if rounds := (len(want) + split.world - 1) / split.world; dealt.Rounds != rounds || r == split.world-1 && !reflect.DeepEqual(dealt.All, want) {
							t.Fatalf("step %d, rank %d: %d rounds, want %d; or the whole window is another", step, r, dealt.Rounds, rounds)
						}
						if trained != divisor || l.State() != one.State() || l.Progress() != one.Progress() {
							t.Fatalf("step %d, rank %d: divisor %d, want %d; cursor %+v, want %+v", step, r, trained, divisor, l.State(), one.State())
						}
						if least := len(want) / split.world; len(window) < least || len(window) > least+1 || len(window) > split.n {
							t.Fatalf("step %d, rank %d takes %d of %d batches", step, r, len(window), len(want))
						}
						got = append(got, window)
					}
					if !reflect.DeepEqual(interleaved(got), want) {
						t.Fatalf("step %d: the ranks' batches are not those of one rank", step)
					}
				}
				if one.State().Epoch != 2 || one.State().Position != 0 {
					t.Errorf("the cursor is %+v behind two epochs", one.State())
				}
			})
		}
	})
}

// TestResumeAtAnotherWorldSize: the cursor of one world size resumes in another with the batches that were next.
func TestResumeAtAnotherWorldSize(t *testing.T) {
	rows := madeRows(47, 20, 3)
	opt := Options{BatchSize: 2, T: 20, Seed: 5, Shuffle: true}
	const window = 6
	loader := func() *Loader {
		l := mustLoader(t, rows, opt)
		l.Even(window, 50)
		return l
	}
	for _, before := range []int{1, 2, 3} {
		for _, after := range []int{1, 2, 6} {
			old := mustShard(t, loader(), before-1, before)
			for range 5 {
				old.NextWindow(window / before)
			}
			one := loader()
			for range 5 {
				one.NextWindow(window)
			}
			want, _, _ := one.NextWindow(window)
			var got [][]Batch
			for rank := range after {
				l := mustShard(t, loader(), rank, after)
				if err := l.Restore(old.State()); err != nil {
					t.Fatal(err)
				}
				window, _, _ := l.NextWindow(window / after)
				got = append(got, window)
			}
			if !reflect.DeepEqual(interleaved(got), want) {
				t.Errorf("%d ranks, then %d: other batches follow", before, after)
			}
		}
	}
}

func TestShardKeepsThePlace(t *testing.T) {
	l := mustLoader(t, madeRows(20, 20, 3), Options{BatchSize: 1, T: 20, Seed: 1, Shuffle: true})
	l.NextWindow(3)
	before := l.State()
	a, b := mustShard(t, l, 0, 2), mustShard(t, l, 1, 2)
	a.NextWindow(2)
	if l.State() != before || b.State() != before || a.State().Position != before.Position+4 {
		t.Errorf("cursors %+v %+v %+v, before %+v", l.State(), a.State(), b.State(), before)
	}
}

// TestEpochOfShards: the ranks' parts of an evaluation round by round are the whole.
func TestEpochOfShards(t *testing.T) {
	l := mustLoader(t, madeRows(23, 20, 3), Options{BatchSize: 2, T: 20})
	var want []Batch
	for b := range l.Epoch(0) {
		want = append(want, b)
	}
	for _, world := range []int{1, 2, 5, 12, 30} {
		got := make([][]Batch, world)
		for rank := range world {
			for b := range mustShard(t, l, rank, world).Epoch(0) {
				got[rank] = append(got[rank], b)
			}
		}
		if !reflect.DeepEqual(interleaved(got), want) {
			t.Errorf("%d ranks: %d batches, want %d", world, len(got), len(want))
		}
	}
}

func TestProgress(t *testing.T) {
	l := mustLoader(t, madeRows(10, 20, 3), Options{BatchSize: 1, T: 20})
	for i, want := range []float64{0, 0.4, 0.8, 1, 1.4, 1.8, 2} {
		if got := l.Progress(); got != want {
			t.Errorf("%d windows: %v epochs, want %v", i, got, want)
		}
		l.NextWindow(4)
	}
}

// TestPiecesAreDealtRoundByRound: where batches are dealt in pieces, these are what the ranks take in turn.
func TestPiecesAreDealtRoundByRound(t *testing.T) {
	rows := madeRows(23, 20, 3)
	opt := Options{BatchSize: 4, T: 20, Seed: 2, Shuffle: true}
	split := func(l *Loader) *Loader {
		if err := l.Split(2); err != nil {
			t.Fatal(err)
		}
		return l
	}
	one := split(mustLoader(t, rows, opt))
	var ranks []*Loader
	for r := range 3 {
		ranks = append(ranks, mustShard(t, split(mustLoader(t, rows, opt)), r, 3))
	}
	for one.at.epoch < 2 {
		want, divisor, err := one.NextWindow(3)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]Batch
		for _, l := range ranks {
			window, trained, err := l.NextWindow(1)
			if err != nil || trained != divisor {
				t.Fatalf("divisor %d, want %d: %v", trained, divisor, err)
			}
			got = append(got, window)
		}
		if !reflect.DeepEqual(interleaved(got), want) {
			t.Fatal("the ranks' pieces are not those of one rank")
		}
	}
}

func TestShardRefuses(t *testing.T) {
	l := mustLoader(t, madeRows(3, 20, 1), Options{BatchSize: 1, T: 20})
	for _, c := range [][2]int{{0, 0}, {1, 1}, {-1, 2}, {2, 2}, {0, -1}, {0, 1 << 40}} {
		want := fmt.Sprintf("share out batches: rank %d of %d: want ranks from 0 to one less than their number, which is 1 to 65536", c[0], c[1])
		if _, err := l.Shard(c[0], c[1]); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if window, _, _ := l.NextWindow(1 << 62); len(window) != 3 {
		t.Errorf("a huge window has %d batches, want the epoch's 3", len(window))
	}
}
