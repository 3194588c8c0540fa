package train

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rowsOfTrackio imports the inbox and prints what the database then has of a project, by the trackio package alone.
const rowsOfTrackio = `
import json, sys
from trackio import fragments
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps({"imported": fragments.import_inbox_dir(), "projects": SQLiteStorage.get_projects()}))
for r in SQLiteStorage.get_run_records(sys.argv[1]):
    print(json.dumps({"run": r["name"], "id": r["id"], "config": SQLiteStorage.get_run_config(sys.argv[1], r["name"], r["id"]),
        "rows": SQLiteStorage.get_logs(sys.argv[1], r["name"], run_id=r["id"])}))
`

// TestTrackioHasTheMetrics: what the trackio package imports of a run that was interrupted and resumed equals
// metrics.jsonl; the dashboard may have imported some of it in between.
func TestTrackioHasTheMetrics(t *testing.T) {
	s := testSpec(t, 4)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.ReportTo = 0.05, 2, []string{"trackio"}
	s.Tracking.Experiment, s.Tracking.Tags = "bots", map[string]string{"team": "nlp"}
	folder := t.TempDir()
	t.Setenv("TRACKIO_DIR", folder)
	var said []string
	env := Env{}
	env.Log = func(line string) {
		if strings.HasPrefix(line, "tracking: ") {
			said = append(said, line)
		}
	}
	w := &evalWatcher{step: 2, batch: 2, stop: make(chan struct{})}
	stopped := env
	stopped.Observers, stopped.Interrupted = []Observer{w}, w.stop
	mustStart(t, s, stopped)
	s.Training.Resume = "auto"
	mustStart(t, s, env)
	notice := "tracking: trackio: the run is written to " + filepath.Join(folder, "inbox") +
		"; look at it with: trackio show --project bots"
	if !slices.Equal(said, []string{notice, notice}) {
		t.Errorf("said %q", said)
	}
	files, err := filepath.Glob(filepath.Join(folder, "inbox", "*", "*.jsonl"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "from trackio import fragments").Run() != nil {
		t.Skipf("%s has no trackio with an inbox", python)
	}
	out, err := exec.Command(python, "-c", rowsOfTrackio, "bots").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"projects": ["bots"]`) {
		t.Fatalf("%s", out)
	}
	var run struct {
		Run, ID string
		Config  map[string]any
		Rows    []map[string]any
	}
	if err := json.Unmarshal([]byte(lines[1]), &run); err != nil {
		t.Fatal(err)
	}
	if run.Run != filepath.Base(s.OutputDir) || run.Config["seed"] != 42.0 || run.Config["tags.team"] != "nlp" {
		t.Errorf("run %q, configuration %v", run.Run, run.Config)
	}
	got := map[float64]map[string]any{} // by step
	for _, row := range run.Rows {
		step := row["step"].(float64)
		if got[step] == nil {
			got[step] = map[string]any{}
		}
		for name := range row {
			if _, twice := got[step][name]; twice && strings.Contains(name, "/") {
				t.Errorf("step %v has %s twice", step, name)
			}
		}
		maps.Copy(got[step], row)
	}
	compared := 0
	for _, line := range fileLines(t, filepath.Join(s.OutputDir, MetricsFile)) {
		var m map[string]float64
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"loss", "grad_norm", "learning_rate", "num_input_tokens_seen", "eval_loss",
			"eval_ppl", "train_loss", "train_runtime"} {
			want, ok := m[name]
			if !ok {
				continue
			}
			key := "train/" + name
			if rest, ok := strings.CutPrefix(name, "eval_"); ok {
				key = "eval/" + rest
			}
			if x, ok := got[m["step"]][key]; !ok || x != want {
				t.Errorf("step %v: %s is %v, metrics.jsonl has %v", m["step"], key, x, want)
			}
			compared++
		}
	}
	if compared < 4*4+2*2+2 {
		t.Errorf("%d numbers compared", compared)
	}
}
