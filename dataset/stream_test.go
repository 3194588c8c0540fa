package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// streamLines are JSONL rows from, from+1, ... of varying lengths; some have no text and are dropped.
func streamLines(from, n int) string {
	var b strings.Builder
	r := newRandom(uint64(from + 1))
	for i := from; i < from+n; i++ {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("x", int(r.below(40))))
		if i%701 == 700 {
			text = ""
		}
		fmt.Fprintf(&b, "{\"text\": %q}\n", text)
	}
	return b.String()
}

func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// streamConfig streams two files of 6,000 and 3,500 rows: three windows, of which one has rows of both.
func streamConfig(t testing.TB) Config {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, "a.jsonl", streamLines(0, 6000))
	writeFile(t, dir, "b.jsonl", streamLines(6000, 3500))
	cfg := Default()
	cfg.Path, cfg.MaxLength, cfg.Streaming, cfg.Seed = dir, 64, true, 3
	return cfg
}

func openStreamLoader(t testing.TB, cfg Config, batch int) *Loader {
	t.Helper()
	set, _, err := Load(context.Background(), cfg, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := set.TrainLoader(batch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// streamVariants are the ways in which rows become batches.
func streamVariants(t *testing.T, test func(t *testing.T, cfg Config, batch int)) {
	base := streamConfig(t)
	for _, batch := range []int{1, 7, 300} {
		for _, shuffled := range []bool{false, true} {
			for _, how := range []string{"end to end", "packed", "padded"} {
				cfg := base
				cfg.Shuffle, cfg.Packing = shuffled, how == "packed"
				if how == "padded" {
					cfg.PadTo = PadMaxLength
				}
				t.Run(fmt.Sprintf("batch=%d,shuffle=%v,%s", batch, shuffled, how), func(t *testing.T) { test(t, cfg, batch) })
			}
		}
	}
}

func mustNext(t testing.TB, l *Loader, n int) []Batch {
	t.Helper()
	window, trained, err := l.NextWindow(n)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, b := range window {
		sum += b.TrainedTokens
	}
	if sum != trained {
		t.Fatalf("%d trained tokens in the batches, the divisor is %d", sum, trained)
	}
	return window
}

// TestStreamedRowsOnceAnEpoch: every row is in one batch of each epoch, whole; all batches but an epoch's last are full;
// epochs differ if they are shuffled.
func TestStreamedRowsOnceAnEpoch(t *testing.T) {
	streamVariants(t, func(t *testing.T, cfg Config, batch int) {
		whole := cfg
		whole.Streaming = false
		set, _, err := Load(context.Background(), whole, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, r := range all(set.Train) {
			want = append(want, r.Where())
		}
		var totals []*Report
		cfg.EndOfEpoch = func(epoch int, r *Report) {
			if epoch != len(totals)+1 {
				t.Errorf("the report of epoch %d comes behind those of %d", epoch, len(totals))
			}
			totals = append(totals, r)
		}
		l := openStreamLoader(t, cfg, batch)
		l.ChooseBudgets(1000, 4)
		var orders [][]string
		progress := 0.0
		for epoch := range 2 {
			var got []string
			for last := false; !last; {
				b := mustNext(t, l, 1)[0]
				checkBatch(t, l, b)
				got = append(got, b.Where()...)
				if last = b.Last; b.Epoch != epoch || !last && !cfg.Packing && len(b.Rows) != batch {
					t.Fatalf("a batch of %d rows of epoch %d in epoch %d", len(b.Rows), b.Epoch, epoch)
				}
				if now := l.Progress(); now < progress || now > float64(epoch+1) || last && now != float64(epoch+1) {
					t.Fatalf("progress %v behind %v", now, progress)
				}
				progress = l.Progress()
			}
			orders = append(orders, slices.Clone(got))
			if !cfg.Shuffle && !cfg.Packing && !slices.Equal(got, want) {
				t.Error("rows that are neither shuffled nor packed are not in the order of the files")
			}
			sorted := slices.Clone(want)
			slices.Sort(sorted)
			if slices.Sort(got); !slices.Equal(got, sorted) {
				t.Fatalf("epoch %d has %d rows, want %d, each once", epoch, len(got), len(want))
			}
		}
		if slices.Equal(orders[0], orders[1]) == cfg.Shuffle {
			t.Errorf("shuffle %v: the epochs are equal or not", cfg.Shuffle)
		}
		if len(totals) != 2 || totals[0].Kept != len(want) || totals[0].Rows != 9500 || totals[0].DroppedRows() != 9500-len(want) {
			t.Errorf("totals %v", totals)
		}
	})
}

// TestStreamedBatchesAreFull: packed windows are cut where they fill their batches, so no more are dealt than of a set.
func TestStreamedBatchesAreFull(t *testing.T) {
	for _, batch := range []int{1, 7, 300, 3000} { // the sequences of a window are fewer than the last
		cfg := streamConfig(t)
		cfg.Packing = true
		l := openStreamLoader(t, cfg, batch)
		n, tokens := 0, 0
		for last := false; !last; {
			b := mustNext(t, l, 1)[0]
			n, tokens, last = n+1, tokens+b.Tokens, b.Last
		}
		if least := (tokens + 64*batch - 1) / (64 * batch); n > least+least/20+1 {
			t.Errorf("batches of %d sequences: %d of them, %d would do", batch, n, least)
		}
	}
}

// TestStreamResumes: from any state a new loader deals on with the same bytes, whatever the number of workers.
func TestStreamResumes(t *testing.T) {
	streamVariants(t, func(t *testing.T, cfg Config, batch int) {
		cfg.Workers = 1
		l := openStreamLoader(t, cfg, batch)
		l.ChooseBudgets(1000, 4)
		var states []State
		var windows [][]Batch
		var progress []float64
		for l.at.epoch < 2 {
			states = append(states, l.State())
			windows = append(windows, mustNext(t, l, 3))
			progress = append(progress, l.Progress())
		}
		cfg.Workers = 3
		for k := 0; k < len(states); k += max(len(states)/7, 1) {
			again := openStreamLoader(t, cfg, batch)
			again.ChooseBudgets(1000, 4)
			if err := again.Restore(states[k]); err != nil {
				t.Fatal(err)
			}
			for i := k; i < min(k+len(states)/6+2, len(states)); i++ {
				if s := again.State(); s != states[i] {
					t.Fatalf("from state %d on, state %d is %+v, want %+v", k, i, s, states[i])
				}
				got := mustNext(t, again, 3)
				for j := range got {
					got[j].of, windows[i][j].of = nil, nil
				}
				if !reflect.DeepEqual(got, windows[i]) {
					t.Fatalf("from state %d on, step %d has other batches", k, i)
				}
				if again.Progress() != progress[i] {
					t.Fatalf("from state %d on, progress %v in step %d, was %v", k, again.Progress(), i, progress[i])
				}
			}
			again.Close()
		}
	})
}

// TestStreamInTheMiddleOfARow: a window may begin in the middle of a text that became several rows.
func TestStreamInTheMiddleOfARow(t *testing.T) {
	cfg := Default()
	cfg.Path = writeFile(t, t.TempDir(), "long.txt", strings.Repeat("abcdefgh ", 40000)+"\nshort\n"+strings.Repeat("ijklmn ", 30000)+"\n")
	cfg.MaxLength, cfg.Streaming, cfg.Shuffle = 50, true, false
	l := openStreamLoader(t, cfg, 5)
	var states []State
	var batches []Batch
	for l.at.epoch < 1 {
		states = append(states, l.State())
		batches = append(batches, mustNext(t, l, 1)...)
	}
	parts := 0
	for i, s := range states {
		if s.Stream.Part == 0 || s.Position > 0 {
			continue
		}
		parts++
		again := openStreamLoader(t, cfg, 5)
		if err := again.Restore(s); err != nil {
			t.Fatal(err)
		}
		if got := mustNext(t, again, 1)[0]; !slices.Equal(got.IDs, batches[i].IDs) {
			t.Errorf("state %+v continues with another batch", s)
		}
	}
	if parts < 2 {
		t.Errorf("%d windows begin in the middle of a row, the test wants some", parts)
	}
}

// TestStreamShards: the shares of all ranks are the windows of one that accumulates.
func TestStreamShards(t *testing.T) {
	cfg := streamConfig(t)
	cfg.Packing = true
	one := openStreamLoader(t, cfg, 7)
	source := openStreamLoader(t, cfg, 7)
	var ranks []*Loader
	for rank := range 3 {
		l, err := source.Shard(rank, 3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		ranks = append(ranks, l)
	}
	for one.at.epoch < 1 {
		want, divisor, err := one.NextWindow(6)
		if err != nil {
			t.Fatal(err)
		}
		var shares [][]Batch
		for _, l := range ranks {
			share, trained, err := l.NextWindow(2)
			if err != nil || trained != divisor {
				t.Fatalf("divisor %d, want %d: %v", trained, divisor, err)
			}
			shares = append(shares, share)
		}
		got := interleaved(shares)
		if len(got) != len(want) {
			t.Fatalf("%d batches, want %d", len(got), len(want))
		}
		for i := range want {
			if !slices.Equal(got[i].IDs, want[i].IDs) {
				t.Fatal("the ranks deal other batches")
			}
		}
	}
}

// TestStreamEndsItsGoroutines: closing or cancelling ends all reading.
func TestStreamEndsItsGoroutines(t *testing.T) {
	cfg := streamConfig(t)
	before := runtime.NumGoroutine()
	ended := func(what string) {
		t.Helper()
		for range 200 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		buf := make([]byte, 1<<16)
		t.Fatalf("%s: %d goroutines, %d before\n%s", what, runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	}
	l := openStreamLoader(t, cfg, 4)
	ended("planned and never read")
	for range 3 {
		mustNext(t, l, 2)
	}
	l.Close()
	ended("closed")
	mustNext(t, l, 2) // reads on from where it is
	l.Close()
	l.Close()
	ended("closed again")

	ctx, cancel := context.WithCancel(context.Background())
	set, _, err := Load(ctx, cfg, bytesTokenizer{})
	if err != nil {
		t.Fatal(err)
	}
	l, _ = set.TrainLoader(4)
	mustNext(t, l, 2)
	cancel()
	ended("cancelled")
	for range 3000 {
		if _, _, err = l.NextWindow(2); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("after cancelling: %v", err)
	}
}

// TestStreamIsFlatInMemory streams 100 MB of rows.
func TestStreamIsFlatInMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("streams 50 MB")
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	for i := range n {
		fmt.Fprintf(f, "{\"prompt\": \"row %d %s\", \"completion\": \"%s\"}\n", i, strings.Repeat("q", 250), strings.Repeat("a", 200))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.Path, cfg.Streaming, cfg.Packing = path, true, true
	set, _, err := Load(context.Background(), cfg, newQuietTokenizer())
	if err != nil {
		t.Fatal(err)
	}
	l, err := set.TrainLoader(32)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var halves [2]uint64
	rows, batches := 0, 0
	for rows < n {
		b := mustNext(t, l, 1)[0]
		rows += len(b.Rows)
		if batches++; batches%100 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			half := &halves[2*rows/(n+1)]
			*half = max(*half, m.HeapInuse)
		}
	}
	t.Logf("at most %d and %d MB in the two halves of the file", halves[0]>>20, halves[1]>>20)
	if halves[1] > halves[0]+halves[0]/4 || halves[1] > 96<<20 {
		t.Errorf("memory grows: %d bytes in the first half, %d in the second", halves[0], halves[1])
	}
}
