package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnreadKeysAreNamed: by init, inspect data, its page, a run, and the report that a run keeps.
func TestUnreadKeysAreNamed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("rag.jsonl",
		strings.Repeat(`{"id":1,"context":"Anna has a red car.","question":"Which colour is the car?","answer":"Red."}`+
			"\n", 3))
	write("run.yaml", "base_model: embedded:stories260K\noutput_dir: out\ndataset: {path: rag.jsonl, max_length: "+
		"512}\ntraining: {max_steps: 1, warmup_ratio: 0}\n")
	said := func(what, text string) {
		t.Helper()
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range []string{"keys not read", "context in 3 rows; bookkeeping: id; set dataset.format: " +
			"alpaca and dataset.fields: {instruction: question, input: context, output: answer}"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", what, want, text)
			}
		}
	}
	code, out, errOut := trainer(t, dir, nil, "", "init", "--model", "embedded:stories260K", "--data", "rag.jsonl",
		"--device", "cpu", "--out", "new.yaml")
	if said("init", out); code != 0 {
		t.Errorf("init: exit code %d: %s", code, errOut)
	}
	if _, out, _ = trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--html", "rows.html"); !strings.Contains(
		out, "rows.html: ") {
		t.Errorf("inspect data: %s", out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "rows.html"))
	if err != nil {
		t.Fatal(err)
	}
	said("the page", string(page))
	_, out, _ = trainer(t, dir, nil, "", "inspect", "data", "run.yaml")
	said("inspect data", out)
	code, _, errOut = trainer(t, dir, nil, "", "train", "run.yaml", "-q")
	if said("a quiet run", errOut); code != 0 {
		t.Errorf("train: exit code %d", code)
	}
	report, err := os.ReadFile(filepath.Join(dir, "out", "data_report.json"))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(report)), ""),
		`{"key":"context","rows":3,"advice":"`) {
		t.Errorf("data_report.json: %v\n%s", err, report)
	}
	// The advice does what it says.
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--set", "dataset.format=alpaca",
		"--set", "dataset.fields={instruction: question, input: context, output: answer}")
	if code != 0 || !strings.Contains(out, "format alpaca (instruction=question, input=context, output=answer)") ||
		!strings.Contains(out, "keys not read: bookkeeping: id\n") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
}

// TestPlanOfFewPackedRows: a plan computes what there is, not what max_length could hold, and says so.
func TestPlanOfFewPackedRows(t *testing.T) {
	dir := t.TempDir()
	rows := strings.Repeat(`{"question":"Two and two?","answer":"Four."}`+"\n", 6)
	if err := os.WriteFile(filepath.Join(dir, "qa.jsonl"), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	config := "base_model: embedded:stories260K\noutput_dir: out\ndevice: cpu\ndataset: {path: qa.jsonl, max_length: " +
		"512, packing: true, as_chat: no}\ntraining: {max_steps: 2, batch_size: 1, warmup_ratio: 0}\n"
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := trainer(t, dir, nil, "", "plan", "run.yaml")
	for _, want := range []string{"1 x 96 tokens", "batches of 96 tokens: 0.0% padding",
		"the rows are too few to fill packed sequences of max_length 512: they have 96 tokens"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errOut)
		}
	}
	if code, out, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "-v"); code != 0 ||
		!strings.Contains(out+errOut,
			"rows are packed into sequences of 96 tokens, as there are too few to fill max_length") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
}
