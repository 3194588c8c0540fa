package train

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/checkpoint"
)

func TestMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), MetricsFile)
	m, r := &metricsFile{}, recorder{}
	append := func(line any) error { return errors.Join(m.append(line), r.keep(line)) }
	if err := m.Start(RunInfo{Dir: filepath.Dir(path)}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []any{
		StepMetrics{Step: 1, Epoch: 0.5, Loss: 2.5, Numbers: Values{{Name: "ppl"}},
			GradNorm: math.Inf(1), LearningRate: 2e-4},
		EvalMetrics{Step: 1, Loss: math.NaN(), Numbers: Values{{Name: "eval_ppl", Value: math.Inf(1)}}},
		StepMetrics{Step: 2},
	} {
		if err := append(line); err != nil {
			t.Fatal(err)
		}
	}
	history := r.state.LogHistory[:2] // the checkpoint of step 1
	if err := append(EndMetrics{Step: 2, Loss: 2}); err != nil {
		t.Fatal(err)
	}
	if err := append(3); err == nil {
		t.Error("a number was accepted as a line")
	}
	if err := m.End(EndInfo{}); err != nil {
		t.Fatal(err)
	}
	lines := fileLines(t, path)
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4", len(lines))
	}
	want := `{"step":1,"epoch":0.5,"loss":2.5,"ppl":0,"grad_norm":null,"grad_norm_clipped":0,"learning_rate":0.0002,"num_input_tokens_seen":0,` +
		`"tokens/train_per_sec_per_gpu":0,"train_seconds":0,"resumed_from":0,"data_ms":0,"tokens/total":0,"tokens/trainable":0,"memory/max_allocated (GiB)":0}`
	if lines[0] != want {
		t.Errorf("line 1 is\n%s\nwant\n%s", lines[0], want)
	}
	var eval map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &eval); err != nil || len(eval) != 7 || eval["eval_loss"] != nil {
		t.Errorf("line 2 is %s (%v)", lines[1], err)
	}

	// The process dies in the middle of a line and resumes from the checkpoint of step 1.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"step":3,"lo`)
	f.Close()
	var state checkpoint.State
	raw, err := checkpoint.State{GlobalStep: 1, LogHistory: history}.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		t.Fatal(err)
	}
	r.state = state
	if err := m.Start(RunInfo{Dir: filepath.Dir(path), History: state.LogHistory, Done: 1, Total: 3}); err != nil {
		t.Fatal(err)
	}
	if err := append(StepMetrics{Step: 2, Loss: 1}); err != nil {
		t.Fatal(err)
	}
	if err := m.End(EndInfo{}); err != nil {
		t.Fatal(err)
	}
	resumed := fileLines(t, path)
	if len(resumed) != 3 || resumed[0] != lines[0] || resumed[1] != lines[1] ||
		!strings.HasPrefix(resumed[2], `{"step":2,"epoch":0,"loss":1,`) {
		t.Errorf("after the resume:\n%s", strings.Join(resumed, "\n"))
	}
	if len(r.state.LogHistory) != 3 {
		t.Errorf("history has %d lines", len(r.state.LogHistory))
	}
}

func fileLines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}
