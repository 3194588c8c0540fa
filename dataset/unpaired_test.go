package dataset

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// ktoGolden is testdata/kto_trl.json.gz: labelled answers and pairs as texts, and what TRL's KTOTrainer makes of them.
type ktoGolden struct {
	MaxLength int `json:"max_length"`
	Answers   []json.RawMessage
	Tokenised []struct {
		Prompt     []int32 `json:"prompt_ids"`
		Completion []int32 `json:"completion_ids"`
		Other      []int32 `json:"KL_completion_ids"`
		Label      bool
	}
	Pairs     []json.RawMessage
	FromPairs struct {
		Batch  int
		Labels []bool `json:"labels_in_order"`
		Pairs  []int  `json:"pair_in_order"`
		Other  []int  `json:"KL_answer_is_that_of_row"`
	} `json:"from_pairs"`
}

func readKTO(t *testing.T) (g ktoGolden, tok Tokenizer) {
	t.Helper()
	text := golden.Unpacked(t, filepath.Join("testdata", "kto_trl.json.gz"))
	err := json.Unmarshal(text, &g)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := configs.Model("stories260K")
	if err != nil {
		t.Fatal(err)
	}
	if tok, err = tokenizer.LoadFS(folder, "."); err != nil {
		t.Fatal(err)
	}
	return g, tok
}

// loadKTO reads rows as KTO does.
func loadKTO(t *testing.T, rows []json.RawMessage, tok Tokenizer, among int, change func(*Config)) (*Set, *Report) {
	t.Helper()
	var text []string
	for _, r := range rows {
		text = append(text, string(r))
	}
	c := Default()
	c.Path, c.Preferences, c.Unpaired, c.Mismatched, c.CacheDir = "d.jsonl", true, true, among, ""
	if change != nil {
		change(&c)
	}
	fsys := fstest.MapFS{"d.jsonl": {Data: []byte(strings.Join(text, "\n"))}}
	set, report, err := LoadFS(context.Background(), fsys, c, tok)
	if err != nil {
		t.Fatal(err)
	}
	return set, report
}

// TestMismatchedEqualsTRL checks both sequences of labelled answers, cut at max_length and whole: the answer's own, and
// the prompt with the answer of the row before. A cut answer lends all of its tokens.
func TestMismatchedEqualsTRL(t *testing.T) {
	g, tok := readKTO(t)
	for _, limit := range []int{g.MaxLength, 512} {
		set, report := loadKTO(t, g.Answers, tok, len(g.Answers), func(c *Config) { c.MaxLength = limit })
		total := 0
		for i, want := range g.Tokenised {
			r := set.Train.Row(i)
			for k, answer := range [][]int32{want.Completion, want.Other} {
				ids, labels := r.Sequence(k)
				all := slices.Concat(want.Prompt, answer)
				all = all[:min(len(all), limit)]
				if !slices.Equal(ids, all) {
					t.Errorf("limit %d: sequence %d of row %d is %v, TRL has %v", limit, k, i, ids, all)
				}
				if n := maskedPrefix(labels); n != len(want.Prompt) || slices.Contains(labels[n:], Ignore) {
					t.Errorf("limit %d: sequence %d of row %d is trained from %d, TRL from %d", limit, k, i, n,
						len(want.Prompt))
				}
				if k == 0 {
					total += len(all)
				}
			}
			if (r.Desirable == Desirable) != want.Label || r.Trained() != set.Train.Trained(i) ||
				len(r.IDs) != set.Train.Length(i) || !slices.Equal(r.Borders, bordersOf(set.Train, i)) {
				t.Errorf("limit %d: row %d is %v and does not fit its counts", limit, i, r)
			}
		}
		if report.TotalTokens != int64(total) || report.Groups.Desirable != 3 || report.Groups.Undesirable != 2 {
			t.Errorf("limit %d: the report has %d tokens and %+v, want %d", limit, report.TotalTokens, report.Groups,
				total)
		}
		if cut := limit < 512; cut != (report.Truncated.Count > 0) {
			t.Errorf("limit %d: %d rows are cut", limit, report.Truncated.Count)
		}
	}
}

// TestPairsBecomeAnswersOfTRL checks the order of the answers that pairs become, their labels, and which answers they
// exchange.
func TestPairsBecomeAnswersOfTRL(t *testing.T) {
	g, tok := readKTO(t)
	want := g.FromPairs
	single, report := loadKTO(t, g.Pairs, tok, 0, nil)
	set, _ := loadKTO(t, g.Pairs, tok, want.Batch, nil)
	if report.Format != "preference" || report.Rows != 4 || report.Kept != 8 || set.Train.Len() != len(want.Labels) {
		t.Fatalf("%d rows of format %s, kept %d", set.Train.Len(), report.Format, report.Kept)
	}
	answer := func(i int) []int32 {
		r := single.Train.Row(i)
		return r.IDs[maskedPrefix(r.Labels):]
	}
	for i, label := range want.Labels {
		r := set.Train.Row(i)
		own, labels := r.Sequence(0)
		other, _ := r.Sequence(1)
		if (r.Desirable == Desirable) != label || r.Index != want.Pairs[i] || single.Train.Row(i).Index != r.Index {
			t.Errorf("row %d is the answer %v of pair %d, TRL has %v of %d", i, r.Desirable, r.Index, label,
				want.Pairs[i])
		}
		prompt := own[:maskedPrefix(labels)]
		if !slices.Equal(other, slices.Concat(prompt, answer(want.Other[i]))) {
			t.Errorf("row %d has another mismatched answer than that of row %d", i, want.Other[i])
		}
	}
}

// TestPairsBecomeAnswers checks pairs that TRL's goldens don't have: tokens, more of them than a block of TRL has, a
// pair of which one answer is cut off, and held out rows, whose answers stay together.
func TestPairsBecomeAnswers(t *testing.T) {
	_, tok := readKTO(t)
	var rows []json.RawMessage
	for i := range 1203 {
		id := 10 + i%400
		line, err := json.Marshal(map[string]any{
			"chosen_input_ids": []int{1, id, 5, 2}, "chosen_labels": []int{-100, -100, 5, 2},
			"rejected_input_ids": []int{1, id, 6, 2}, "rejected_labels": []int{-100, -100, 6, 2}})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, line)
	}
	set, report := loadKTO(t, rows, tok, 4, nil)
	if report.Groups.Desirable != 1203 || report.Groups.Undesirable != 1203 || report.Groups.Rows != 0 {
		t.Errorf("the report has %+v", report.Groups)
	}
	for i := range set.Train.Len() {
		at, label := i%1000, Desirable
		if i >= 1000 && i < 2000 || i >= 2203 {
			label = Undesirable
		}
		switch {
		case i >= 2203:
			at = 1000 + i - 2203
		case i >= 2000:
			at = 1000 + i - 2000
		}
		if r := set.Train.Row(i); r.Index != at || r.Desirable != label {
			t.Fatalf("row %d is the %v answer of pair %d, want the %v one of %d", i, r.Desirable, r.Index, label, at)
		}
	}
	held, _ := loadKTO(t, rows, tok, 4, func(c *Config) { c.ValSplit = 0.25 })
	n := held.Val.Len()
	if n%2 != 0 || n+held.Train.Len() != 2406 {
		t.Fatalf("%d rows are held out and %d are not", n, held.Train.Len())
	}
	seen := map[int]int{}
	for i := range n {
		seen[held.Val.Row(i).Index]++
	}
	if len(seen) != n/2 {
		t.Errorf("the %d held out answers are of %d pairs", n, len(seen))
	}
	long := []json.RawMessage{[]byte(`{"prompt":"Once upon a time there was","chosen":" a dog.","rejected":" a cat."}`),
		[]byte(`{"prompt":"Once upon a time there was","chosen":" a bird.","rejected":""}`)}
	set, report = loadKTO(t, long, tok, 0, func(c *Config) { c.MaxLength = 9 })
	if report.Kept+report.DroppedRows() != 4 || set.Train.Len() != report.Kept {
		t.Errorf("%d rows, kept %d, dropped %v", set.Train.Len(), report.Kept, report.Dropped)
	}
}

// TestMismatchedFromCache checks that rows from the token cache have the tokens of those that are read anew, that runs
// without mismatched answers have an entry of their own, and that an inspected row is the answer's own sequence.
func TestMismatchedFromCache(t *testing.T) {
	g, tok := readKTO(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "d.jsonl")
	var text []byte
	for _, r := range g.Pairs {
		text = append(append(text, r...), '\n')
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Path, c.Preferences, c.Unpaired, c.Mismatched, c.CacheDir, c.MaxLength = path, true, true, 3, t.TempDir(), 100
	var digests []string
	for _, among := range []int{3, 3, 0, 0} {
		c.Mismatched = among
		set, report, err := Load(t.Context(), c, tok)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest(set.Train))
		shown, err := set.Look(t.Context(), 0, 8, tok)
		if err != nil {
			t.Fatal(err)
		}
		for i, in := range shown {
			name := []string{"chosen", "rejected"}[i/4]
			if len(in.Parts) != 2 || in.Parts[1].Role != name || len(in.Tokens) > 100 || in.Sequences != 0 ||
				in.Note != "" {
				t.Errorf("among %d: row %d is shown as %+v", among, i, in.Parts)
			}
		}
		if cached := strings.Contains(report.CacheNote, "read"); cached != (len(digests)%2 == 0) {
			t.Errorf("load %d: %s", len(digests), report.CacheNote)
		}
	}
	if digests[0] != digests[1] || digests[2] != digests[3] || digests[0] == digests[2] {
		t.Errorf("the digests are %q", digests)
	}
}
