package dataset_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// hiddenCost is the token cost of a model with a hidden size of 2,048.
const hiddenCost = 6 * 2048

// waited is how long the ranks of an epoch take, each round as long as its slowest rank, where 1 is what it would be if all
// had the same: by the estimate that batches are formed by, and by the tokens that are computed. Of the last step of an epoch
// nothing is counted.
func waited(t *testing.T, l *dataset.Loader, ranks, rounds int) (work, tokens float64) {
	t.Helper()
	var batches [2][]float64
	for b, err := range l.Epoch(0) {
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i := range len(b.CuSeqlens) - 1 {
			n := float64(b.CuSeqlens[i+1] - b.CuSeqlens[i])
			sum += n * n
		}
		sum += hiddenCost * float64(len(b.IDs))
		batches[0], batches[1] = append(batches[0], sum), append(batches[1], float64(len(b.IDs)))
	}
	of := func(all []float64) float64 {
		most, sum := 0.0, 0.0
		for step := range slices.Chunk(all, ranks*rounds) {
			if len(step) < ranks*rounds {
				continue
			}
			for round := range slices.Chunk(step, ranks) {
				most += slices.Max(round) * float64(ranks)
				for _, w := range round {
					sum += w
				}
			}
		}
		if sum == 0 {
			return 0
		}
		return most / sum
	}
	return of(batches[0]), of(batches[1])
}

// TestRealStepsAreEven: what ranks wait for one another with real rows, as they come and with even batches.
func TestRealStepsAreEven(t *testing.T) {
	dir := shared(t)
	tok, err := tokenizer.Load(filepath.Join(dir, "data/tokenizers/tinyllama-1.1b-chat"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		template   string
		length     int
		packing    bool
	}{
		{"gsm8k", "gsm8k/train.jsonl", "", 512, false},
		{"gsm8k packed", "gsm8k/train.jsonl", "", 2048, true},
		{"LLaMA-Factory's chats", "llamafactory/v1_sft_demo.jsonl", "zephyr", 2048, false},
		{"FastChat", "fastchat/dummy_conversation.json", "zephyr", 2048, false},
	} {
		cfg := dataset.Default()
		cfg.Path, cfg.ChatTemplate, cfg.MaxLength, cfg.Packing, cfg.Seed = filepath.Join(dir, "data/datasets", c.path), c.template, c.length, c.packing, 42
		set, _, err := dataset.Load(context.Background(), cfg, tok)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, size := range []int{1, 4, 8} {
			for _, over := range [][2]int{{2, 1}, {8, 1}, {2, 4}, {8, 4}} {
				var seen []string
				var before, after float64
				for _, step := range []int{1, over[0] * over[1]} {
					l, err := set.TrainLoader(size)
					if err != nil {
						t.Fatal(err)
					}
					l.Even(step, hiddenCost)
					l.ChooseBudgets(3*l.Batches(0), dataset.MaxBudgets)
					work, tokens := waited(t, l, over[0], over[1])
					before, after = after, work
					seen = append(seen, fmt.Sprintf("%.3f %.3f, largest budget %d", work, tokens, slices.Max(l.Shape().Budgets)))
				}
				t.Logf("%s, batches of %d, %d ranks x %d: as they come %s; even %s", c.name, size, over[0], over[1], seen[0], seen[1])
				if after > before+1e-9 {
					t.Errorf("%s, batches of %d, %d ranks x %d: even batches wait longer", c.name, size, over[0], over[1])
				}
			}
		}
	}
}
