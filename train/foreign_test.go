package train

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// put writes a file of the user's.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// holds fails unless a folder has these files and no others.
func holds(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, ok := want[e.Name()]
		if !ok {
			t.Errorf("%s was written", e.Name())
		} else if got := string(golden.ReadFile(t, dir, e.Name())); got != text {
			t.Errorf("%s was changed to %q", e.Name(), got)
		}
	}
	if len(entries) < len(want) {
		t.Errorf("of %d files %d are left", len(want), len(entries))
	}
}

// TestUsersFilesStay: a folder with a file that a run would replace and no run wrote is refused before anything is
// written; "." is such a folder where the configuration lies in it.
func TestUsersFilesStay(t *testing.T) {
	earlier := testSpec(t, 1)
	r := mustStart(t, earlier, Env{})
	for _, name := range []string{ConfigFile, CSVFile, "tokenizer.json", replay.ManifestFile, adapter.ConfigFile} {
		for resumed, resume := range map[string]string{"": "", "auto": "auto", "elsewhere": r.Checkpoint} {
			s := testSpec(t, 1)
			s.Training.ReportTo, s.Training.Resume = []string{"csv"}, resume
			mine := map[string]string{name: "mine", "notes.txt": "mine too"}
			for file, text := range mine {
				put(t, filepath.Join(s.OutputDir, file), text)
			}
			_, err := Start(context.Background(), s, Env{Config: []byte("seed: 42\n")})
			want := "output_dir " + s.OutputDir + " has " + name +
				", which no run wrote and this one would replace: choose another output_dir"
			if err == nil || err.Error() != want {
				t.Errorf("%s, resume %q:\ngot  %v\nwant %s", name, resumed, err, want)
			}
			holds(t, s.OutputDir, mine)
		}
	}
	s := testSpec(t, 1)
	t.Chdir(filepath.Dir(earlier.OutputDir))
	s.OutputDir = "."
	put(t, ConfigFile, "mine")
	if _, err := Start(context.Background(), s, Env{}); err == nil ||
		!strings.HasPrefix(err.Error(), "output_dir . has config.yaml, which no run wrote") {
		t.Errorf("got %v", err)
	}
	if got := string(golden.ReadFile(t, ConfigFile)); got != "mine" {
		t.Errorf("%s was changed to %q", ConfigFile, got)
	}
}

// TestRestartWithoutCheckpoint: a run that was killed before its first checkpoint is begun anew by resume: auto alone.
func TestRestartWithoutCheckpoint(t *testing.T) {
	s := testSpec(t, 2)
	env := Env{Config: []byte("seed: 42\n")}
	s.Training.ReportTo = []string{"csv"}
	for file, text := range map[string]string{".lock": `{"pid":1}`, MetricsFile: `{"step":1`,
		ConfigFile: "seed: 42\n", CSVFile: "step"} {
		put(t, filepath.Join(s.OutputDir, file), text)
	}
	if _, err := Start(context.Background(), s, env); err == nil ||
		!strings.Contains(err.Error(), "holds a run already (metrics.jsonl): set training.resume to auto") {
		t.Errorf("without resume: %v", err)
	}
	s.Training.Resume = "auto"
	r, err := Start(context.Background(), s, env)
	if err != nil || r.Steps != 2 || r.Resumed != 0 {
		t.Errorf("%d steps, resumed after %d: %v", r.Steps, r.Resumed, err)
	}
	if _, err := os.Stat(filepath.Join(s.OutputDir, ".lock")); err == nil {
		t.Error("the lock is left")
	}
}
