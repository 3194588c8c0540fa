package train

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// TestVerifyOfSkippedSteps: steps that were left out count as steps, have no loss, and are left out by the replay too,
// in the middle of a run and at its end.
func TestVerifyOfSkippedSteps(t *testing.T) {
	t.Parallel()
	s, machine := skipSpec(t, 6, 2, 5, 6)
	s.Device, s.Training.SaveSteps, s.OutputDir = "cpu", 0, filepath.Join(t.TempDir(), "run")
	if _, err := startFaulty(t, machine(false), s, Env{}); err != nil {
		t.Fatal(err)
	}
	m, err := replay.ReadManifest(s.OutputDir)
	if err != nil || m.Steps != 6 || len(m.Skipped) != 3 {
		t.Fatalf("the manifest has %d steps, skipped %v: %v", m.Steps, m.Skipped, err)
	}
	if at, compared, err := replay.CheckMetrics(filepath.Join(s.OutputDir, MetricsFile), m); at != nil ||
		!compared || err != nil {
		t.Errorf("metrics.jsonl: %v, compared %v, %v", at, compared, err)
	}
	older := m // counted those alone that have a loss
	older.Steps = 3
	dir := t.TempDir()
	if err := older.Write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := replay.ReadManifest(dir); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("of an older program: %+v, %v", got, err)
	}
	path := filepath.Join(s.OutputDir, MetricsFile)
	lines := strings.SplitAfter(string(golden.ReadFile(t, s.OutputDir, MetricsFile)), "\n")
	for name, c := range map[string]struct {
		text     string
		at       *replay.Divergence
		compared bool
	}{
		"a line less": {strings.Join(lines[:2], ""), nil, false},
		"another loss": {lines[0] + strings.Replace(lines[1], `"loss":`, `"loss":1`, 1) + strings.Join(lines[2:], ""),
			&replay.Divergence{After: 2, Step: 3}, true},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if at, compared, err := replay.CheckMetrics(filepath.Join(s.OutputDir, MetricsFile), m); !reflect.DeepEqual(at,
			c.at) || compared != c.compared || err != nil {
			t.Errorf("%s: %v, compared %v, %v", name, at, compared, err)
		}
	}

	replayed := func(spoiled *faulty, steps int) replay.Verdict {
		t.Helper()
		s := s
		s.OutputDir = t.TempDir()
		v, err := verifyOn(t.Context(), s, Env{silent: true}, m, steps, spoiled)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	yes := true
	if v := replayed(machine(false), 6); !v.Equal || v.Steps != 6 || v.Of != 6 || !reflect.DeepEqual(v.Adapter, &yes) {
		t.Errorf("the same: %+v", v)
	}
	_, more := skipSpec(t, 6, 2, 4, 5, 6)
	if v, want := replayed(more(false), 6), (replay.Divergence{After: 3, Step: 6}); v.Equal ||
		!reflect.DeepEqual(v.Losses, &want) {
		t.Errorf("one more is left out: %+v, losses differ %v, want %v", v, v.Losses, want)
	}
	_, none := skipSpec(t, 6)
	if v, want := replayed(none(false), 6), (replay.Divergence{After: 1, Step: 2}); v.Equal ||
		!reflect.DeepEqual(v.Losses, &want) {
		t.Errorf("none is left out: %+v, losses differ %v, want %v", v, v.Losses, want)
	}
}
