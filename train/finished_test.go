package train

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// files are all files under a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			name, _ := filepath.Rel(dir, path)
			all[name] = string(golden.ReadFile(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFinishedRunResumedStaysAsItIs: every file, the metrics' last line too.
func TestFinishedRunResumedStaysAsItIs(t *testing.T) {
	s := testSpec(t, 3)
	s.Dataset.ValSplit, s.Training.ReportTo = 0.02, []string{"csv"}
	env := Env{Config: []byte("seed: 42\n")}
	mustStart(t, s, env)
	before := files(t, s.OutputDir)
	if !strings.Contains(before[MetricsFile], `"train_loss"`) {
		t.Fatalf("the metrics have no last line:\n%s", before[MetricsFile])
	}
	s.Training.Resume = "auto"
	for i := range 2 {
		s.VRAM = []string{"1GiB", "2GiB"}[i] // as the free memory of a machine is another each time
		if r := mustStart(t, s, env); r.Resumed != 3 || r.Steps != 3 {
			t.Errorf("resumed after %d, ended at %d", r.Resumed, r.Steps)
		}
		after := files(t, s.OutputDir)
		if maps.Equal(before, after) {
			continue
		}
		for name, text := range after {
			if before[name] != text {
				t.Errorf("%s was\n%s\nis\n%s", name, before[name], text)
			}
		}
	}
	// killed after the last checkpoint and before the end: the line comes with the resume
	lines := strings.SplitAfter(before[MetricsFile], "\n")
	put(t, filepath.Join(s.OutputDir, MetricsFile), strings.Join(lines[:len(lines)-2], ""))
	mustStart(t, s, env)
	if got, want := logLosses(t, s.OutputDir), numbersOf(t, before[MetricsFile]); got != want {
		t.Errorf("after a kill at the end:\n%s\nwant\n%s", got, want)
	}
}

func numbersOf(t *testing.T, metrics string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, MetricsFile), metrics)
	return logLosses(t, dir)
}
