package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctorPins: pins are written, met, not met, and never written over what is no file of pins.
func TestDoctorPins(t *testing.T) {
	dir := t.TempDir()
	pins := filepath.Join(dir, "pins.json")
	read := func() string {
		b, err := os.ReadFile(pins)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	check := func(name string, args []string, code int, outWant, errWant string) {
		t.Helper()
		got, out, errOut := trainer(t, dir, nil, "", append([]string{"doctor"}, args...)...)
		if got != code || !strings.Contains(out, outWant) || !strings.Contains(errOut, errWant) {
			t.Errorf("%s: exit code %d, want %d\n%s%s", name, got, code, out, errOut)
		}
	}
	compare := []string{"--fail-on-mismatch", "pins.json"}
	refresh := append(compare, "--refresh-pins")
	check("no file", compare, 2, "", "pins.json: no such file or directory; --refresh-pins writes the file")
	check("no name", []string{"--refresh-pins"}, 2, "", "name the file: --fail-on-mismatch FILE")
	check("written", refresh, 0, "pins.json: no mismatch, written anew", "")
	check("met", compare, 0, "pins.json: no mismatch", "")
	good := read()
	if err := os.WriteFile(pins, []byte(strings.Replace(good, `"platform": "`, `"platform": "other-`, 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	check("not met", compare, 1, "mismatch  platform: expected other-",
		"trainer: 1 of what pins.json pins differs here")
	check("not met, JSON", append(compare, "--json"), 1, `"key": "platform"`, "1 of what")
	check("refreshed", refresh, 0, "pins.json: 1 mismatch, written anew", "")
	if read() != good {
		t.Errorf("refreshed:\n%s\nwant\n%s", read(), good)
	}
	for _, c := range []struct{ name, text, want string }{
		{"damaged", good[:len(good)/2], "read pins pins.json: line "},
		{"foreign", `{"name": "a package"}`, "it is no file of pins"},
		{"misspelt", strings.Replace(good, `"platform"`, `"platfrom"`, 1),
			`unknown key "platfrom"; the nearest is platform`},
	} {
		if err := os.WriteFile(pins, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		check(c.name, compare, 2, "", c.want)
		check(c.name+", refreshed", refresh, 2, "", "it is not replaced: delete it, or name another file")
		if read() != c.text {
			t.Errorf("%s: the file was changed", c.name)
		}
	}
	check("one file for two", []string{"--emit-json", "x.json", "--fail-on-mismatch", "./x.json"}, 2, "",
		"name one file")
	check("a folder", []string{"--fail-on-mismatch", "."}, 2, "", "--fail-on-mismatch: ")
}

// TestDoctorJSON holds the keys that other programs read (docs/internals/GPU.md).
func TestDoctorJSON(t *testing.T) {
	dir := t.TempDir()
	_, out, errOut := trainer(t, dir, []string{"NVIDIA_TF32_OVERRIDE=0", "TRAINER_SEED=7"}, "", "doctor", "--json",
		"--emit-json", "d.json")
	b, err := os.ReadFile(filepath.Join(dir, "d.json"))
	if err != nil || string(b) != out {
		t.Fatalf("the file is not what was printed: %v\n%s", err, errOut)
	}
	var h map[string]any
	if err := json.Unmarshal(b, &h); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "build", "go", "platform", "cores", "cpu_features", "memory_bytes",
		"memory_available_bytes", "gpus", "problems", "findings"} {
		if h[key] == nil {
			t.Errorf("no %s:\n%s", key, out)
		}
	}
	for _, want := range []string{`"severity": "ok"`, `"about": "TRAINER_SEED=7"`,
		`"says": "sets seed of every configuration"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s:\n%s", want, out)
		}
	}
}

func TestFolded(t *testing.T) {
	var b bytes.Buffer
	f := &folded{to: &b, width: 30}
	f.line("warning", "%s", "one two three four five six seven")
	f.line("", "")
	f.line("a long label", "x")
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	want := "warning   one two three four\n          five six seven\n\na long label x\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	f = newFolded(&b)
	f.line("ok", "%s", strings.Repeat("word ", 40)+"end")
	if err := f.flush(); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("a file's line was folded: %q, %v", b.String(), err)
	}
}
