package atomicfile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestClear: what Write had begun goes, and nothing else.
func TestClear(t *testing.T) {
	dir := t.TempDir()
	stay := []string{".lock", ".metrics.jsonl", ".metrics.jsonl.", ".metrics.jsonl.12a", ".notes.12", "..12",
		"metrics.jsonl", "metrics.jsonl.12"}
	for _, name := range append([]string{".metrics.jsonl.2784550770", ".metrics.jsonl.1", ".plan_report.json.77"},
		stay...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clear(dir, "plan_report.json"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(stay)
	if !slices.Equal(names, stay) || err != nil {
		t.Errorf("%q are left, want %q: %v", names, stay, err)
	}
}
