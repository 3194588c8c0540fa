package dataset

import (
	"slices"
	"sort"
	"testing"
	"time"
)

// bestFit is pack in plain words: of the sequences with room, the fullest one, of equals the one that became so last.
func bestFit(rows Rows, order []int32, T, most int) [][]int32 {
	type open struct{ sequence, free, since int }
	var all [][]int32
	for window := range slices.Chunk(order, packWindow) {
		longest := slices.Clone(window)
		sort.SliceStable(longest, func(a, b int) bool { return rows.Length(int(longest[a])) > rows.Length(int(longest[b])) })
		var opened []open
		for now, i := range longest {
			n, best := rows.Length(int(i)), -1
			for j, o := range opened {
				if o.free >= n && (best < 0 || o.free < opened[best].free || o.free == opened[best].free && o.since > opened[best].since) {
					best = j
				}
			}
			if best < 0 {
				best = len(opened)
				opened, all = append(opened, open{len(all), T, 0}), append(all, nil)
			}
			o := &opened[best]
			all[o.sequence] = append(all[o.sequence], i)
			if o.free, o.since = o.free-n, now; len(all[o.sequence]) == most {
				o.free = -1
			}
		}
	}
	return all
}

func TestPackIsBestFit(t *testing.T) {
	for _, c := range []struct{ rows, longest, T, most int }{{1, 20, 20, 9}, {50, 20, 20, 9}, {500, 20, 64, 3}, {5000, 90, 100, 9}, {9000, 30, 640, 1000}} {
		rows := madeLengths(c.rows, c.longest, 9)
		order := upTo(c.rows)
		shuffle(newRandom(3), order)
		got, want := pack(rows, order, c.T, c.most, 1, packWindow), bestFit(rows, order, c.T, c.most)
		if got.len() != len(want) {
			t.Fatalf("%+v: %d sequences, want %d", c, got.len(), len(want))
		}
		for s := range want {
			if !slices.Equal(got.part(s, s+1), want[s]) {
				t.Fatalf("%+v: sequence %d is %v, want %v", c, s, got.part(s, s+1), want[s])
			}
		}
		mixed, again := slices.Clone(want), got.shuffled(newRandom(4))
		shuffle(newRandom(4), mixed)
		for s := range mixed {
			if !slices.Equal(again.part(s, s+1), mixed[s]) {
				t.Fatalf("%+v: shuffled, sequence %d is %v, want %v", c, s, again.part(s, s+1), mixed[s])
			}
		}
	}
}

// BenchmarkDeal deals an epoch of ten million rows.
func BenchmarkDeal(b *testing.B) {
	rows := madeLengths(10_000_000, 500, 1)
	for name, step := range map[string]int{"packed": 1, "end to end": 1, "end to end, even in steps of 8": 8, "packed, even in steps of 8": 8} {
		b.Run(name, func(b *testing.B) {
			l, err := NewLoader(rows, Options{BatchSize: 8, T: 512, Shuffle: true, Packing: name[0] == 'p'})
			if err != nil {
				b.Fatal(err)
			}
			l.Even(step, 12288)
			b.ReportAllocs()
			for i := range b.N {
				began := time.Now()
				d := l.preview(i)
				b.ReportMetric(float64(rows.Len())/time.Since(began).Seconds()/1e6, "Mrows/s")
				b.ReportMetric(100*l.Efficiency(i), "%rows")
				_ = d
			}
		})
	}
}
