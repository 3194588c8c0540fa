package main

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
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
	if n := strings.Count(out, ", differs\n"); n != 5+2 { // both answers have "." and the end token
		t.Errorf("%d tokens differ in\n%s", n, out)
	}
	if code, out, errOut = trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--html", "rows.html"); code != 0 {
		t.Errorf("the page: exit code %d: %s%s", code, out, errOut)
	}
	page, err := os.ReadFile(filepath.Join(dir, "rows.html"))
	if err != nil || !strings.Contains(string(page), "a pair of sequences") || !strings.Contains(string(page),
		"<h3>rejected") || strings.Count(string(page), `<div class="pair">`) != 4 ||
		strings.Count(string(page), `class="d"`) != 4*7+1 {
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

// TestBatchesOfSharedPrompts checks that inspect data counts a shared prompt once in its batches, as the run's plan
// does, and shows it in full.
func TestBatchesOfSharedPrompts(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"pairs.jsonl": strings.Repeat(`{"prompt":"Once upon a time there was a little dog who liked the sun and `+
			`the rain and the wind","chosen":" a lot.","rejected":" no."}`+"\n", 8),
		"run.yaml": "base_model: embedded:stories260K\noutput_dir: out\n" +
			"dataset: {path: pairs.jsonl, max_length: 64}\n" +
			"training: {objective: dpo, batch_size: 4, max_steps: 1, warmup_ratio: 0}\n",
	})
	batches := regexp.MustCompile(`(?:batches: .*|batches) of (\d+) tokens`)
	var shown []string
	for _, args := range [][]string{{"inspect", "data", "run.yaml", "-n", "1"}, {"plan", "run.yaml"},
		{"inspect", "data", "run.yaml", "-n", "1", "--set", "training.share_prompts=no"}} {
		code, out, errOut := trainer(t, dir, nil, "", args...)
		if code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errOut)
		}
		if found := batches.FindStringSubmatch(out); found != nil {
			shown = append(shown, found[1])
		}
		if args[0] == "inspect" && strings.Count(out, "-- prompt: 29 tokens, none trained") != 2 {
			t.Errorf("%v: the prompt is not shown before each answer\n%s", args, out)
		}
	}
	if len(shown) != 3 || shown[0] != shown[1] || shown[0] == shown[2] {
		t.Errorf("batches of inspect data, of the plan and without sharing: %q", shown)
	}
}

// TestPairsSideBySide checks the columns of a pair in a terminal: the prompt once, and both answers with what differs.
func TestPairsSideBySide(t *testing.T) {
	tokens := func(texts string, differ ...bool) (all []dataset.Token) {
		for i, text := range strings.SplitAfter(texts, " ") {
			all = append(all, dataset.Token{Text: text, Trained: i > 0, Differs: differ[i]})
		}
		return all
	}
	r := dataset.Inspected{Sequences: 2, Tokens: append(tokens("ask yes indeed", false, true, false),
		tokens("ask no\nnever indeed", false, true, false)...),
		Parts: []dataset.Part{{Role: "prompt", Message: -1, To: 1}, {Role: "chosen", Message: -1, From: 1, To: 3,
			Trained: 2},
			{Role: "prompt", Message: -1, From: 3, To: 4, Sequence: 1},
			{Role: "rejected", Message: -1, From: 4, To: 6, Trained: 2, Sequence: 1}}}
	shown := func(width int) (string, bool) {
		var text strings.Builder
		w := bufio.NewWriter(&text)
		ok := colourPair(w, r, width)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return text.String(), ok
	}
	text, ok := shown(70)
	plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")
	const want = "prompt: 1 tokens, none trained\nask \n" +
		"chosen: 2 tokens, all trained     │ rejected: 2 tokens, all trained\n" +
		"yes indeed                        │ no\\n\n" +
		"                                  │ never indeed\n"
	if !ok || plain != want {
		t.Errorf("got\n%s\nwant\n%s", plain, want)
	}
	if !strings.Contains(text, styleTrained+styleDiffers+"y"+styleOff) ||
		strings.Contains(text, styleTrained+styleDiffers+"i"+styleOff) {
		t.Errorf("what differs is not marked: %q", text)
	}
	if _, ok := shown(40); ok {
		t.Error("two columns in a narrow terminal")
	}
}
