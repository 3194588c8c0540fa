package tests

import (
	"strings"
	"testing"
)

// TestBaseThatIsNotFinite: each command names the tensor, exits 1, and prints nothing that a program would read.
func TestBaseThatIsNotFinite(t *testing.T) {
	w := newWorkplace(t)
	mustRun(t, w.dir, train...)
	sound := w.read("model/model.safetensors")
	w.write("model/model.safetensors", sound[:len(sound)-4]+"\x00\x00\xc0\x7f")
	const said = "tensor model.norm.weight has NaN at element 63 of [64]: get the model again"
	before := snapshot(t, w.dir)
	for _, args := range [][]string{
		{"eval", "--config", "config.yaml"},
		{"eval", "--config", "config.yaml", "--json"},
		{"eval", "--config", "config.yaml", "--json", "--adapter", "out"},
		{"generate", "--model", "model", "--prompt", "Once"},
		{"generate", "--model", "model", "--prompt", "Once", "--json"},
		{"generate", "--model", "model", "--prompt", "Once", "--adapter", "out", "--temperature", "1"},
		{"merge", "--model", "model", "--adapter", "out", "--out", "merged"},
		{"merge", "--model", "model", "--adapter", "out", "--out", "merged", "--json"},
	} {
		o := run(t, w.dir, args...)
		if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, said) || strings.Contains(o.stderr, "data.jsonl:") {
			t.Errorf("%q: exit code %d, printed %q\n%s", args, o.code, o.stdout, o.stderr)
		}
	}
	if snapshot(t, w.dir) != before {
		t.Error("files were changed")
	}
	o := run(t, w.dir, with("--set", "output_dir=other", "--set", "training.resume=")...)
	if _, words, _ := strings.Cut("\n"+o.stderr, "\ntrainer: "); o.code != 1 || !strings.Contains(words, said) || strings.Contains(words, "data.jsonl") {
		t.Errorf("train: exit code %d\n%s", o.code, o.stderr)
	}
}
