package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPairsAreShownAndRefused: inspect data shows a preference pair as a pair, in the terminal and on the page, and
// says what training will say; a run, also of a stream, and an evaluation refuse pairs with what to do.
func TestPairsAreShownAndRefused(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"pairs.jsonl": strings.Repeat(`{"prompt":"Once upon a time","chosen":" there was a dog.","rejected":" no."}`+
			"\n", 4),
		"run.yaml": "base_model: embedded:stories260K\noutput_dir: out\ndataset: {path: pairs.jsonl, max_length: 64}\n" +
			"training: {max_steps: 1, warmup_ratio: 0}\n",
	})
	const refused = "training.objective: cross_entropy takes single sequences, and pairs.jsonl has 4 pairs of " +
		"sequences " +
		"(format preference): to train on the chosen answers alone write dataset.format: completion with"
	code, out, errOut := trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "-n", "1")
	for _, want := range []string{
		"groups: 4 pairs of two sequences", "training refuses these rows: " + refused,
		"pairs.jsonl:1 (train): a pair of sequences, 21 tokens, 11 trained\n-- prompt: 5 tokens, none trained\n",
		"\n-- chosen: 7 tokens, all trained\n", "\n-- rejected: 4 tokens, all trained\n",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errOut)
		}
	}
	if code, out, errOut = trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--html", "rows.html"); code != 0 {
		t.Errorf("the page: exit code %d: %s%s", code, out, errOut)
	}
	page, err := os.ReadFile(filepath.Join(dir, "rows.html"))
	if err != nil || !strings.Contains(string(page), "a pair of sequences") || !strings.Contains(string(page),
		"<h3>rejected") {
		t.Errorf("the page does not show a pair: %v", err)
	}
	for _, args := range [][]string{
		{"train", "run.yaml", "-q"}, {"train", "run.yaml", "-q", "--set", "dataset.streaming=true"},
		{"eval", "--config", "run.yaml"},
	} {
		code, out, errOut := trainer(t, dir, nil, "", args...)
		text := strings.Join(strings.Fields(errOut), " ")
		if code != 1 || !strings.Contains(text, refused) {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, errOut)
		}
	}
	// The advice does what it says.
	code, out, errOut = trainer(t, dir, nil, "", "train", "run.yaml", "-q",
		"--set", "dataset.format=completion", "--set", "dataset.fields={prompt: prompt, completion: chosen}")
	if code != 0 {
		t.Errorf("on the chosen answers: exit code %d: %s%s", code, out, errOut)
	}
}
