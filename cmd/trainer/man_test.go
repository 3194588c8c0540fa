package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command has a page, which groff reads without a warning where it is installed.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	if code, out, errOut := trainer(t, dir, nil, "", "man", "--dir", "pages"); code != 0 ||
		!strings.HasSuffix(out, " pages in pages\n") {
		t.Fatalf("exit code %d\n%s%s", code, out, errOut)
	}
	n := 0
	eachAvailable(newRoot(&console{}), func(cmd *cobra.Command) {
		n++
		text, err := os.ReadFile(filepath.Join(dir, "pages", manName(cmd)+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, want := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH SEE ALSO\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q", manName(cmd), want)
			}
		}
	})
	if pages, err := os.ReadDir(filepath.Join(dir, "pages")); err != nil || len(pages) != n || n < 20 {
		t.Errorf("%d pages of %d commands: %v", len(pages), n, err)
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		pages, _ := filepath.Glob(filepath.Join(dir, "pages", "*.1"))
		if out, err := exec.Command(groff, append([]string{"-ww", "-man", "-Tutf8", "-z"}, pages...)...).
			CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
	_, whole, _ := trainer(t, dir, nil, "", "man", "train")
	if text, _ := os.ReadFile(filepath.Join(dir, "pages", "trainer-train.1")); whole != string(text) || whole == "" {
		t.Error("the page that is printed is another one")
	}
	if code, _, errOut := trainer(t, dir, nil, "", "man", "trian"); code != 2 || errOut != "trainer: unknown command "+
		"\"trian\" for trainer; the nearest is train\n" {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "man", "--dir", "x", "train"); code != 2 ||
		!strings.Contains(errOut, `leave out "train"`) {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// --set is completed with the keys, and a key with its values.
func TestCompletesKeys(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ command, word, want string }{
		{"train", "training.le", "training.learning_rate=\t"}, {"sweep", "lora.", "lora.r=\t"},
		{"plan", "dev", "device=\t"},
		{"train", "training.optimizer=", "training.optimizer=lion\n"}, {"train", "dataset.packing=t",
			"dataset.packing=true\n"},
	} {
		if code, out, errOut := trainer(t, dir, nil, "", "__complete", c.command, "run.yaml", "--set",
			c.word); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, no %q in\n%s%s", c.word, code, c.want, out, errOut)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, _ := trainer(t, dir, nil, "", "completion", shell); code != 0 ||
			!strings.Contains(out, "__complete") {
			t.Errorf("%s: exit code %d, %d bytes", shell, code, len(out))
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	_, script, _ := trainer(t, dir, nil, "", "completion", "bash")
	if err := os.WriteFile(filepath.Join(dir, "c.bash"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bash, "-n", filepath.Join(dir, "c.bash")).CombinedOutput(); err != nil {
		t.Errorf("bash: %v\n%s", err, out)
	}
}
