package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/journal"
)

// TestAbout: a title, a group and a note come back as they were written, without what steers a display; a file of
// another program stays, a link is not followed, and empty texts remove the file.
func TestAbout(t *testing.T) {
	dir := folder(t, map[string]string{train.MetricsFile: stepLines(3)})
	if err := WriteAbout(dir, About{Title: " a \x1b[31m title\n", Group: "g", Note: "line\nline\u202e"}); err != nil {
		t.Fatal(err)
	}
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.About; a.Title != strings.Join(strings.Fields(a.Title), " ") || strings.ContainsAny(a.Title+a.Note, "\x1b\u202e") || a.Group != "g" || !strings.Contains(a.Note, "line\nline") {
		t.Errorf("%+v", a)
	}
	if SetNames([]*Run{r}); r.Name != r.About.Title {
		t.Errorf("the run is called %q", r.Name)
	}
	if err := WriteAbout(dir, About{Note: strings.Repeat("x", MostNote+1)}); err == nil || !strings.Contains(err.Error(), "4001 characters") {
		t.Error(err)
	}
	if err := WriteAbout(dir, About{}); err != nil {
		t.Error(err)
	}
	path := filepath.Join(dir, AboutFile)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Error("the file of empty texts is there")
	}
	for name, text := range map[string]string{"another program's": `{"title":"mine"}`, "damaged": "x"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := WriteAbout(dir, About{Title: "new"}); err == nil || !strings.Contains(err.Error(), "was not written by this program") {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%s: the file is %q now", name, got)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside.json")
	if err := os.WriteFile(outside, []byte(`{"format":1,"title":"outside"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, path); err != nil {
		t.Skip(err)
	}
	if err := WriteAbout(dir, About{Title: "new"}); err == nil {
		t.Error("a link is written through")
	}
	if r, _ := Read(dir); r.About.Title != "" {
		t.Errorf("a link is read: %q", r.About.Title)
	}
}

// TestDelete: the folder of a run of this program goes as a whole; a folder that holds anything else, is no run, is a
// link or is in use stays as it is.
func TestDelete(t *testing.T) {
	status := `{"format":1,"state":"finished","pid":1,"host":"elsewhere"}`
	whole := map[string]string{train.MetricsFile: stepLines(3), journal.StatusFile: status, journal.LogFile: "log\n", "train.rank1.log": "log\n",
		"checkpoint-10/adapter_model.safetensors": "12345", "adapter_config.json": "{}", AboutFile: `{"format":1,"title":"x"}`}
	with := func(name, text string) map[string]string {
		all := map[string]string{name: text}
		for k, v := range whole {
			all[k] = v
		}
		return all
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"a file of a person", with("thesis.txt", "years of work"), "holds thesis.txt, which no run writes"},
		{"a folder of a person", with("photos/a.jpg", "x"), "holds photos, which no run writes"},
		{"almost a checkpoint", with("checkpoint-best/x", "x"), "holds checkpoint-best, which no run writes"},
		{"no run", map[string]string{"config.yaml": "seed: 1"}, "holds no run"},
		{"a lock alone", map[string]string{checkpoint.LockFile: ""}, "nothing in"},
		{"metrics of another program", map[string]string{train.MetricsFile: "words\n"}, "nothing in"},
	} {
		dir := folder(t, c.files)
		if err := Delete(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		for name, text := range c.files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
				t.Errorf("%s: %s is %q, %v", c.name, name, got, err)
			}
		}
	}
	held := folder(t, whole)
	lock, err := checkpoint.Acquire(held)
	if err != nil {
		t.Fatal(err)
	}
	if err := Delete(held); err == nil || !strings.Contains(err.Error(), "is running: stop it first") {
		t.Errorf("in use: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(held, link); err == nil {
		if err := Delete(link); err == nil || !strings.Contains(err.Error(), "is no folder") {
			t.Errorf("a link: %v", err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	linked := os.Symlink(outside, filepath.Join(held, "checkpoint-10", "link")) == nil
	bytes, checkpoints, err := Deletable(held)
	if err != nil || checkpoints != 1 || bytes < 5 {
		t.Errorf("%d bytes, %d checkpoints, %v", bytes, checkpoints, err)
	}
	if err := Delete(held); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(held)); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := os.Stat(outside); linked && err != nil {
		t.Error("what a link inside leads to is gone")
	}
}
