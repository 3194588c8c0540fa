package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hashBatch adds every field of a batch that a run reads.
func hashBatch(h hash.Hash, b Batch) {
	fmt.Fprintln(h, b.IDs, b.Labels, b.Positions, b.CuSeqlens, b.Real, b.Rows, b.Starts,
		b.TrainedTokens, b.Tokens, b.Epoch, b.Last)
}

// hashLoader adds the shape of a loader, and its windows and states over some steps.
func hashLoader(t *testing.T, h hash.Hash, l *Loader, steps, window int) {
	t.Helper()
	s := l.Shape()
	fmt.Fprintln(h, s.Sequences, s.T, s.Budgets, s.Borders, s.Longest, s.Flat, l.Batches(0), l.Efficiency(0))
	for range steps {
		state, err := json.Marshal(l.State())
		if err != nil {
			t.Fatal(err)
		}
		h.Write(state)
		batches, trained, err := l.NextWindow(window)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(h, len(batches), trained, l.Progress())
		for _, b := range batches {
			hashBatch(h, b)
		}
	}
}

// singleRowsCases are the ways in which rows of one sequence become batches, each with a hash over what they become.
func singleRowsCases(t *testing.T) (lines []string) {
	t.Helper()
	add := func(name string, write func(h hash.Hash)) {
		h := sha256.New()
		write(h)
		lines = append(lines, name+" "+hex.EncodeToString(h.Sum(nil))[:24])
	}
	for _, n := range []int{1, 7, 64, 333} {
		rows := madeRows(n, 40, uint64(n))
		for _, batch := range []int{1, 4} {
			base := Options{BatchSize: batch, T: 64, PadID: 9, Seed: 5, Shuffle: n != 64}
			flat, packed, segmented, padded := base, base, base, base
			flat.T, packed.Packing, segmented.Packing, segmented.Longest, padded.Padded = 40, true, true, 40, true
			for i, opt := range []Options{flat, packed, segmented, padded} {
				name := fmt.Sprintf("%s/rows=%d/batch=%d", []string{"flat", "packed", "segmented", "padded"}[i], n, batch)
				add(name, func(h hash.Hash) {
					l := mustLoader(t, rows, opt)
					l.ChooseBudgets(2*l.Batches(0), 4)
					hashLoader(t, h, l, 2*l.Batches(0)+3, 1)
				})
				add(name+"/even", func(h hash.Hash) {
					l := mustLoader(t, rows, opt)
					l.Even(6, 100)
					l.ChooseBudgets(2*l.Batches(0), 3)
					hashLoader(t, h, l, 7, 6)
				})
				if batch > 1 {
					add(name+"/split", func(h hash.Hash) {
						l := mustLoader(t, rows, opt)
						l.Even(4, 3)
						if err := l.Split(2); err != nil {
							t.Fatal(err)
						}
						hashLoader(t, h, l, 7, 4)
					})
				}
				for _, world := range []int{2, 3, 4} {
					add(fmt.Sprintf("%s/ranks=%d", name, world), func(h hash.Hash) {
						l := mustLoader(t, rows, opt)
						for rank := range world {
							share, err := l.Shard(rank, world)
							if err != nil {
								t.Fatal(err)
							}
							hashLoader(t, h, share, 5, 2)
						}
					})
				}
			}
		}
	}
	load := func(change func(*Config)) *Set {
		cfg := streamConfig(t)
		cfg.Streaming = false
		change(&cfg)
		set, report, err := Load(context.Background(), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		report.Source, report.SHA256 = "", ""
		return set
	}
	for _, how := range []string{"flat", "packed", "padded"} {
		change := func(c *Config) {
			c.Packing = how == "packed"
			if how == "padded" {
				c.PadTo = PadMaxLength
			}
		}
		add("stream/"+how, func(h hash.Hash) {
			cfg := streamConfig(t)
			change(&cfg)
			l := openStreamLoader(t, cfg, 7)
			l.Even(4, 10)
			hashLoader(t, h, l, 400, 4)
		})
		add("set/"+how, func(h hash.Hash) {
			set := load(func(c *Config) { change(c); c.ValSplit = 0.01 })
			fmt.Fprintln(h, set.SequenceLength(), digest(set.Train), digest(set.Val),
				duplicates(set.Train), leaked(set.Train, set.Val))
			l, err := set.TrainLoader(7)
			if err != nil {
				t.Fatal(err)
			}
			l.Even(4, 10)
			l.ChooseBudgets(l.Batches(0), 5)
			hashLoader(t, h, l, 50, 4)
			if l, err = set.ValLoader(4, 0); err != nil {
				t.Fatal(err)
			}
			hashLoader(t, h, l, 3, 1)
		})
	}
	add("cache", func(h hash.Hash) {
		dir := t.TempDir()
		load(func(c *Config) { c.CacheDir = dir })
		entries, err := filepath.Glob(filepath.Join(dir, "*.tokens"))
		if err != nil || len(entries) != 2 {
			t.Fatal(entries, err)
		}
		for _, path := range entries {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(h, filepath.Base(path), len(text))
			h.Write(text)
		}
	})
	return lines
}

// TestSingleRowsKeepTheirBytes: rows of one sequence make the batches, cursors and cache files that they made before a
// row could be a group of sequences. The hashes were written by that program.
func TestSingleRowsKeepTheirBytes(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "single_rows.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(want)), "\n")
	got := singleRowsCases(t)
	if len(known) != len(got) {
		t.Fatalf("%d cases, want %d", len(got), len(known))
	}
	for i, line := range got {
		if line != known[i] {
			t.Errorf("got %s, want %s", line, known[i])
		}
	}
}
