package dataset

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// loadRollouts loads a file of rollouts.
func loadRollouts(content string) (*Set, *Report, error) {
	cfg := Default()
	cfg.Path, cfg.Format, cfg.MaxLength = "r.jsonl", FormatRollouts, 8
	return LoadFS(context.Background(), fstest.MapFS{"r.jsonl": {Data: []byte(content)}}, cfg, bytesTokenizer{})
}

// rolloutRows are two groups, of two answers and of one.
const rolloutRows = `{"prompt_ids": [5, 6], "completion_ids": [7, 2], "old_logprobs": [-1, -2], "rewards": {"b": 2, "a": null}, "group": 3}
{"prompt_ids": [5, 6], "completion_ids": [8], "rewards": {"a": 1, "b": 0.5}, "group": 3}
{"prompt_ids": [9], "completion_ids": [4, 4], "ref_logprobs": [-3, -4], "rewards": {"a": 0, "b": 0}, "group": "x", "truncated": false}
`

// TestRollouts checks that answers of one group become one row with all that the file says of them.
func TestRollouts(t *testing.T) {
	set, report, err := loadRollouts(rolloutRows)
	if err != nil {
		t.Fatal(err)
	}
	if g := report.Groups; set.Train.Len() != 2 || g.Sampled != 2 || g.Most != 2 || g.Sequences != 2 {
		t.Fatalf("%d rows, groups %+v", set.Train.Len(), g)
	}
	first, second := set.Train.Row(0), set.Train.Row(1)
	got := fmt.Sprint(first.IDs, first.Labels, first.Borders)
	if got != "[5 6 7 2 5 6 8] [-100 -100 7 2 -100 -100 8] [4]" {
		t.Errorf("first row %s", got)
	}
	r := first.Rollout
	if got := fmt.Sprint(r.Names, r.Rewards, r.Old, r.Reference, r.Truncated, r.Group); got !=
		"[a b] [[NaN 2] [1 0.5]] [NaN NaN -1 -2 NaN NaN NaN] [] [false true]3" {
		t.Errorf("first rollout %s", got)
	}
	other := second.Rollout
	if got := fmt.Sprint(other.Reference, other.Truncated, other.Group); got != `[NaN -3 -4] [false]"x"` {
		t.Errorf("second rollout %s", got)
	}
	changed, _, err := loadRollouts(strings.Replace(rolloutRows, `"b": 2`, `"b": 3`, 1))
	if err != nil || digest(changed.Train) == digest(set.Train) {
		t.Errorf("another reward leaves the digest as it is (%v)", err)
	}
}

// TestRolloutsPlaced checks that a batch says where its rows' answers lie, and that answers without an end token leave
// the loss.
func TestRolloutsPlaced(t *testing.T) {
	set, _, err := loadRollouts(rolloutRows)
	if err != nil {
		t.Fatal(err)
	}
	l, err := set.TrainLoader(2)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.NextStep(1, true)
	if err != nil || len(s.All) != 1 {
		t.Fatalf("%d batches: %v", len(s.All), err)
	}
	b := s.All[0]
	if !b.TakeRollouts() || len(b.Rollouts) != 2 || s.Trained != 5 || s.Sequences != 3 || s.Groups != 2 {
		t.Fatalf("rollouts %v of %+v", b.Rollouts, s)
	}
	if less := b.MaskTruncated(); less != 1 || b.TrainedTokens != 4 {
		t.Errorf("%d tokens are trained less, %d are left", less, b.TrainedTokens)
	}
	k := slices.IndexFunc(b.Rollouts, func(r *Rollout) bool { return len(r.Rewards) == 2 })
	ids, labels := b.Row(k)
	if got := fmt.Sprint(ids, labels); got != "[5 6 7 2 5 6 8] [-100 -100 7 2 -100 -100 -100]" {
		t.Errorf("row %s", got)
	}
	b.Rollouts[k].Advantages = []float64{1, 2}
	if set.Train.Row(0).Rollout.Advantages != nil {
		t.Error("the batch's rollout is the row's own")
	}
	both := &Rollout{Old: []float32{9, -1, -2, -3}, Reference: []float32{9, -2, -2.5, float32(math.NaN())}}
	if got := both.divergence([]int32{2}, 4); fmt.Sprint(got) != "[1 0.5]" {
		t.Errorf("divergences %v", got)
	}
}

// TestToolMask checks that tokens which a tool gave are not trained and have no log-probability.
func TestToolMask(t *testing.T) {
	set, _, err := loadRollouts(`{"prompt_ids": [5], "completion_ids": [7, 8, 9, 2], "tool_mask": [1, 0, 0, 1], ` +
		`"old_logprobs": [-1, 0, null, -2], "rewards": {"a": 1}, "group": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	row := set.Train.Row(0)
	if got := fmt.Sprint(row.Labels, row.Rollout.Old); got != "[-100 7 -100 -100 2] [NaN -1 NaN NaN -2]" {
		t.Errorf("row %s", got)
	}
}

// TestBrokenRollouts checks the errors of rows that are no sampled answers.
func TestBrokenRollouts(t *testing.T) {
	row := func(edit func(map[string]string)) string {
		fields := map[string]string{"prompt_ids": "[5]", "completion_ids": "[7, 1]", "rewards": `{"a": 1}`,
			"group": "1"}
		edit(fields)
		var parts []string
		for _, key := range []string{"prompt_ids", "completion_ids", "rewards", "group", "old_logprobs", "truncated",
			"tool_mask"} {
			if v, ok := fields[key]; ok {
				parts = append(parts, fmt.Sprintf("%q: %s", key, v))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}\n"
	}
	set := func(key, value string) func(map[string]string) { return func(f map[string]string) { f[key] = value } }
	good := row(func(map[string]string) {})
	for _, c := range []struct{ file, want string }{
		{row(set("prompt_ids", "[]")), `r.jsonl:1: field "prompt_ids" has 0 elements and field "completion_ids" has 2: both must have some`},
		{row(set("completion_ids", "[7, 1, 2, 3, 4, 5, 6, 7]")), "r.jsonl:1: prompt and answer have 9 tokens, more than dataset.max_length 8: an answer is not cut, since its reward belongs to the whole; raise dataset.max_length"},
		{row(set("old_logprobs", "[-1]")), `r.jsonl:1: field "old_logprobs" has 1 elements, and the answer has 2 tokens`},
		{row(set("old_logprobs", "[-1, null]")), `r.jsonl:1: old_logprobs[1] is null, want a number`},
		{row(set("old_logprobs", "[-1, 1e300]")), `r.jsonl:1: old_logprobs[1] is 1e+300, which is no 32-bit number`},
		{row(set("old_logprobs", `"x"`)), `r.jsonl:1: field "old_logprobs" is "x", want a list of numbers`},
		{row(set("rewards", "1")), `r.jsonl:1: field "rewards" is 1, want an object of numbers, such as {"correct": 1}, with null for a reward that could not be given`},
		{row(set("rewards", "{}")), `r.jsonl:1: field "rewards" is {}, want an object of numbers, such as {"correct": 1}, with null for a reward that could not be given`},
		{row(set("group", "[1]")), `r.jsonl:1: field "group" is a list, want a number or a string that the answers of one prompt have in common`},
		{row(set("truncated", "1")), `r.jsonl:1: field "truncated" is 1, want true or false`},
		{good + row(set("rewards", `{"b": 1}`)), `r.jsonl:2: it has the rewards ["b"], and the answers before it in the group have ["a"]: all answers of a group have the same rewards, with null where one could not be given`},
		{good + row(set("group", "2")) + good, `r.jsonl:3: group 1 began at line 1, and another group lies between: the answers of a group follow one another`},
		{row(set("tool_mask", "[1]")), `r.jsonl:1: field "tool_mask" has 1 elements, and the answer has 2 tokens`},
		{row(set("tool_mask", "[1, 2]")), `r.jsonl:1: tool_mask[1] is 2, want 1 for a token of the model and 0 for one of a tool`},
		{row(set("tool_mask", "[0, 0]")), `r.jsonl:1: field "tool_mask" is 0 for all tokens: at least one must be the model's`},
		{row(set("completion_ids", "[7, 999999]")), `r.jsonl:1: input_ids[2] is 999999, which is not in the vocabulary`},
	} {
		if _, _, err := loadRollouts(c.file); err == nil || err.Error() != c.want {
			t.Errorf("%s: error\n%v, want\n%s", c.file, err, c.want)
		}
	}
}
