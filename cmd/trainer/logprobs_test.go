package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
)

// TestLogprobsRefuses checks the messages for flags, models and data that the command cannot work with.
func TestLogprobsRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"rows.jsonl": `{"text":"Once upon a time"}` + "\n", "file": "text",
		"empty.jsonl": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(more ...string) []string {
		return append([]string{"--model", "embedded:stories260K", "--data", "rows.jsonl"}, more...)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{of(), 2, "--out: name the folder to write"},
		{of("--out", "t", "--top-k", "0"), 2, "--top-k 0: want 1 to 512"},
		{of("--out", "t", "--top-k", "513"), 2, "--top-k 513: want 1 to 512"},
		{of("--out", "t", "--top-k", "512"), 1,
			"top-k is 512, want 1 to 512, and less than the 512 tokens of the teacher's vocabulary"},
		{of("--out", "t", "--temperature", "0"), 2, "--temperature 0: want a number above 0, at most 100"},
		{of("--out", "t", "--temperature", "NaN"), 2, "--temperature NaN: want a number above 0, at most 100"},
		{of("--out", "t", "--quantization", "nf5"), 2, "--quantization nf5: must be one of fp4, "},
		{of("--out", "t", "--adapter", "nowhere"), 2, "--adapter nowhere: no adapter folder in PEFT's format"},
		{[]string{"--model", "embedded:stories260K", "--out", "t"}, 2,
			"name the student's configuration, or a teacher and a data set: --model DIR --data PATH"},
		{[]string{"--model", "nowhere", "--data", "rows.jsonl", "--out", "t"}, 3, "nowhere"},
		{[]string{"--model", "embedded:stories260K", "--data", "nowhere.jsonl", "--out", "t"}, 2,
			"--data nowhere.jsonl: "},
		{[]string{"--model", "embedded:stories260K", "--data", "empty.jsonl", "--out", "t"}, 1, "empty.jsonl"},
		{of("--out", "file"), 1, "file"},
		{of("--out", "."), 2, ". has other files, such as "},
		{[]string{"cpu_stories_quick", "--set", "dataset.streaming=true", "--out", "t"}, 1,
			"set dataset.streaming to false"},
	} {
		code, _, errOut := trainer(t, dir, nil, "", append([]string{"logprobs"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d, %s\nwant %d, %s", c.args, code, errOut, c.code, c.want)
		}
	}
	code, out, errOut := trainer(t, dir, nil, "", append([]string{"logprobs"}, of("--out", "t", "--top-k", "4",
		"--json")...)...)
	var report infer.LogprobsReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Rows != 1 || report.Tokens < 4 ||
		report.TopK != 4 {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, errOut)
	}
}
