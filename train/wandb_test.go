package train

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rowsOfWandb prints the rows and the run's id of files of the wandb package, by its own reader.
const rowsOfWandb = `
import json, sys
from wandb.proto import wandb_internal_pb2 as pb
from wandb.sdk.internal.datastore import DataStore
for path in sys.argv[1:]:
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        r = pb.Record.FromString(data)
        print(json.dumps({"id": r.run.run_id, "start": r.run.starting_step, "row": {i.nested_key[0]: json.loads(i.value_json) for i in r.history.item},
            "summary": {i.nested_key[0]: json.loads(i.value_json) for i in r.summary.update}, "kind": r.WhichOneof("record_type"), "exit": r.exit.exit_code}))
`

// TestWandbHasTheMetrics: what the wandb package reads of a run that was interrupted and resumed equals metrics.jsonl.
func TestWandbHasTheMetrics(t *testing.T) {
	t.Parallel() // it waits for Python most of the time
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		t.Skip("TRAINER_PYTHON is not set")
	}
	if exec.Command(python, "-c", "import wandb.sdk.internal.datastore").Run() != nil {
		t.Skipf("%s has no wandb with a data store (wandb<=0.22)", python)
	}
	s := testSpec(t, 4)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.ReportTo = 0.05, 2, []string{"wandb"}
	w := &evalWatcher{step: 2, batch: 2, stop: make(chan struct{})}
	var said []string
	env := Env{}
	env.Log = func(line string) {
		if strings.HasPrefix(line, "tracking: ") {
			said = append(said, line)
		}
	}
	stopped := env
	stopped.Observers, stopped.Interrupted = []Observer{w}, w.stop
	mustStart(t, s, stopped)
	s.Training.Resume = "auto"
	mustStart(t, s, env)
	notice := "tracking: wandb: the run is written offline; upload it with: wandb sync " +
		filepath.Join(s.OutputDir, "wandb", "offline-run-*")
	if !slices.Equal(said, []string{notice, notice}) {
		t.Errorf("said %q", said)
	}
	files, err := filepath.Glob(filepath.Join(s.OutputDir, "wandb", "offline-run-*", "run-*.wandb"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	out, err := exec.Command(python, append([]string{"-c", rowsOfWandb}, files...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	rows, summary, exits := map[float64]map[string]float64{}, map[string]float64{}, []int{}
	for line := range strings.Lines(string(out)) {
		var r struct {
			ID, Kind     string
			Start, Exit  int
			Row, Summary map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch r.Kind {
		case "run":
			if ids = append(ids, r.ID); r.Start != 2*(len(ids)-1) {
				t.Errorf("part %d begins at step %d", len(ids), r.Start)
			}
		case "exit":
			exits = append(exits, r.Exit)
		}
		for name, x := range r.Summary {
			summary[name] = x
		}
		if step, ok := r.Row["_step"]; ok {
			if rows[step] == nil {
				rows[step] = map[string]float64{}
			}
			for name, x := range r.Row {
				rows[step][name] = x
			}
		}
	}
	if len(ids) != 2 || ids[0] != ids[1] || !slices.Equal(exits, []int{255, 0}) {
		t.Errorf("ids %v, exits %v", ids, exits)
	}
	compared := 0
	for _, line := range fileLines(t, filepath.Join(s.OutputDir, MetricsFile)) {
		var m map[string]float64
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"epoch", "loss", "grad_norm", "learning_rate", "num_input_tokens_seen",
			"tokens/train_per_sec_per_gpu", "eval_loss", "eval_ppl", "train_loss", "train_runtime"} {
			want, ok := m[name]
			if !ok || name == "epoch" && m["loss"] == 0 {
				continue
			}
			key, from := "train/"+name, rows[m["step"]]
			if rest, ok := strings.CutPrefix(name, "eval_"); ok {
				key = "eval/" + rest
			} else if strings.HasPrefix(name, "train_") {
				from = summary
			}
			if name == "tokens/train_per_sec_per_gpu" {
				key = "train/tokens_per_second"
			}
			if got, ok := from[key]; !ok || got != want {
				t.Errorf("step %v: %s is %v, metrics.jsonl has %v", m["step"], key, got, want)
			}
			compared++
		}
	}
	if compared < 4*6+2*2+2 {
		t.Errorf("%d numbers compared", compared)
	}
}
