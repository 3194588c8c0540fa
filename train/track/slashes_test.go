package track

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// preferenceNumbers are numbers of preference training, whose names have slashes.
var preferenceNumbers = Metrics{{"rewards/chosen", 0.5}, {"rewards/margins", -0.25}, {"logps/rejected", -80},
	{"logits/chosen", 2.5}, {"sampling/sampling_logp_difference/mean", 0.01}}

// TestMLflowTakesNamesWithSlashes checks the names in a batch against MLflow's rule for metrics: letters, digits, "_",
// "-", ".", " ", ":" and "/" alone, in the form of a path that needs no cleaning.
func TestMLflowTakesNamesWithSlashes(t *testing.T) {
	valid, sent := regexp.MustCompile(`^[/\w.\- :]+$`), map[string]float64{}
	server, _ := asked(t, false, func(url, body string) (int, string) {
		switch url {
		case "/api/2.0/mlflow/experiments/get-by-name":
			return 200, `{"experiment":{"experiment_id":"7"}}`
		case "/api/2.0/mlflow/runs/create":
			return 200, `{"run":{"info":{"run_id":"abc"}}}`
		case "/api/2.0/mlflow/runs/log-batch":
			var b mlflowBatch
			if err := json.Unmarshal([]byte(body), &b); err != nil {
				return 400, "no batch"
			}
			for _, m := range b.Metrics {
				if !valid.MatchString(m.Key) || path.Clean(m.Key) != m.Key || path.IsAbs(m.Key) {
					t.Errorf("MLflow refuses the name %q", m.Key)
				}
				sent[m.Key] = m.Value
			}
		}
		return 200, "{}"
	})
	m, err := NewMLflow(Run{Config: Config{RunName: "r", Experiment: "e", MLflowURL: server.URL}, Getenv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, m, Event{Kind: KindStart, Time: at},
		Event{Kind: KindStep, Time: at, Step: 1, Metrics: preferenceNumbers},
		Event{Kind: KindEval, Time: at, Step: 1, Metrics: Metrics{{"eval_rewards/accuracies", 0.75}}})
	for _, n := range append(slices.Clone(preferenceNumbers), Metric{"eval_rewards/accuracies", 0.75}) {
		if v, ok := sent[n.Name]; !ok || v != n.Value {
			t.Errorf("%s is sent as %v, %v", n.Name, v, ok)
		}
	}
}

// TestWandbTakesNamesWithSlashes checks that a number keeps its name behind the section that transformers gives it.
func TestWandbTakesNamesWithSlashes(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWandb(Run{Dir: dir, Getenv: environ(), Config: Config{Experiment: "e", RunName: "r"}})
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, w, Event{Kind: KindStart, Time: at},
		Event{Kind: KindStep, Time: at, Step: 1, Metrics: preferenceNumbers},
		Event{Kind: KindEval, Time: at, Step: 1, Metrics: Metrics{{"eval_rewards/accuracies", 0.75}}},
		Event{Kind: KindEnd, Time: at, Step: 1, Status: StatusStopped})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, WandbDir, "offline-run-*", "*.wandb"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range preferenceNumbers {
		if !bytes.Contains(data, []byte("train/"+n.Name)) {
			t.Errorf("the file has no train/%s", n.Name)
		}
	}
	if !bytes.Contains(data, []byte("eval/rewards/accuracies")) {
		t.Error("the file has no eval/rewards/accuracies")
	}
}
