package train

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/replay"
)

// spoiledParam is trained in stories260K.
const spoiledParam = "model.layers.2.mlp.up_proj.lora_B.weight"

// skipSpec is a run that saves each step, and the machine that spoils the gradients of some.
func skipSpec(t *testing.T, steps int, spoiled ...int) (Spec, func(async bool) *faulty) {
	t.Helper()
	s := testSpec(t, steps)
	hashes, _ := batchesOf(t, s)
	spoils := map[string]string{}
	for _, step := range spoiled {
		spoils[hashes[step-1]] = spoiledParam
	}
	s.Training.OnNonFinite, s.Training.SaveSteps = "skip", 1
	return s, func(async bool) *faulty {
		m := newFaulty()
		m.async, m.spoils = async, spoils
		return m
	}
}

// TestSkippedStepChangesNothing: a step whose gradient is not finite leaves adapter and optimizer as they are; it is
// logged with its rows and the tensor, and counted in metrics, result and manifest.
func TestSkippedStepChangesNothing(t *testing.T) {
	t.Parallel()
	s, machine := skipSpec(t, 6, 3, 5)
	s.Training.SaveSteps = 0
	var first []byte
	for _, async := range []bool{false, true} { // behind a queue the gradient of the next step is in memory already
		s.OutputDir = filepath.Join(t.TempDir(), "run")
		var said []string
		env := Env{}
		env.Log = func(line string) { said = append(said, line) }
		r, err := startFaulty(t, machine(async), s, env)
		if err != nil || r.Steps != 6 || !slices.Equal(r.Skipped, []int{3, 5}) || len(r.Losses) != 4 {
			t.Fatalf("async %v: skipped %v of %d steps, %d losses: %v", async, r.Skipped, r.Steps, len(r.Losses), err)
		}
		text := strings.Join(said, "\n")
		for _, want := range []string{
			": loss or gradient is not finite: loss ",
			"gradient norm NaN; the gradients of 1 of 70 tensors are not finite, in the backward pass that of " +
				spoiledParam + " first; rows ",
			"gsm8k_300.jsonl:", "; the step is left out (training.on_nonfinite: skip)",
		} {
			if strings.Count(text, want) < 2 {
				t.Errorf("async %v: it does not say %q twice:\n%s", async, want, text)
			}
		}
		m, err := replay.ReadManifest(s.OutputDir)
		if err != nil || !slices.Equal(m.Skipped, []int{3, 5}) {
			t.Errorf("the manifest has %v: %v", m.Skipped, err)
		}
		lines := fileLines(t, filepath.Join(s.OutputDir, MetricsFile))
		if len(lines) != 5 || strings.Contains(lines[1], "nonfinite_steps") ||
			!strings.Contains(lines[2], `"step":4,`) || !strings.Contains(lines[2], `"nonfinite_steps":1`) ||
			!strings.Contains(lines[3], `"nonfinite_steps":2`) {
			t.Errorf("metrics:\n%s", strings.Join(lines, "\n"))
		}
		weights := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
		if first == nil {
			first = weights
		} else if !bytes.Equal(first, weights) {
			t.Error("the run behind a queue trains another adapter")
		}
	}
	s.Training.SaveSteps, s.OutputDir = 1, filepath.Join(t.TempDir(), "run")
	if _, err := startFaulty(t, machine(true), s, Env{}); err != nil {
		t.Fatal(err)
	}
	state := func(step, name string) []byte { return golden.ReadFile(t, s.OutputDir, "checkpoint-"+step, name) }
	for _, name := range []string{adapter.WeightsFile, optimizerFile} {
		if !bytes.Equal(state("2", name), state("3", name)) || !bytes.Equal(state("4", name), state("5", name)) {
			t.Errorf("%s changed in a step that was left out", name)
		}
		if bytes.Equal(state("3", name), state("4", name)) {
			t.Errorf("%s did not change in a step that was not", name)
		}
	}
	if !bytes.Equal(first, golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) {
		t.Error("saving changes what is trained")
	}
}

// TestTooManySkippedSteps: one step in a row more than may be left out ends the run with the state before it, and a run
// that was stopped in between ends at the same step.
func TestTooManySkippedSteps(t *testing.T) {
	t.Parallel()
	for _, async := range []bool{false, true} {
		s, machine := skipSpec(t, 8, 2, 4, 5, 6)
		s.Training.MaxSkippedSteps, s.Training.SaveSteps = 2, 0
		s.OutputDir = filepath.Join(t.TempDir(), "run")
		ends := func() {
			t.Helper()
			r, err := startFaulty(t, machine(async), s, Env{})
			if !errors.Is(err, ErrNotFinite) || r.Steps != 5 || !slices.Equal(r.Skipped, []int{2, 4, 5}) {
				t.Fatalf("async %v: ended after step %d, skipped %v: %v", async, r.Steps, r.Skipped, err)
			}
			for _, want := range []string{"step 6: ",
				"it is the 3rd step in a row, and training.max_skipped_steps lets 2 be left out",
				"checkpoint-5; to get past it", "or with a larger training.max_skipped_steps"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it does not say %q: %v", want, err)
				}
			}
		}
		ends()
		s.Training.Resume = "auto"
		ends() // the checkpoint knows the steps before it
		s.Training.MaxSkippedSteps = 3
		r, err := startFaulty(t, machine(async), s, Env{})
		if err != nil || r.Steps != 8 || !slices.Equal(r.Skipped, []int{2, 4, 5, 6}) {
			t.Errorf("async %v: with three: %d steps, skipped %v: %v", async, r.Steps, r.Skipped, err)
		}
		resumed := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
		s.Training.Resume, s.OutputDir = "", s.OutputDir+" at once"
		if _, err := startFaulty(t, machine(async), s, Env{}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(resumed, golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) {
			t.Errorf("async %v: a run without the stop trains another adapter", async)
		}
	}
}

// TestStopNamesTheGradient: without skip the run ends there, and says which tensor's gradient it was.
func TestStopNamesTheGradient(t *testing.T) {
	s, machine := skipSpec(t, 4, 3)
	s.Training.OnNonFinite, s.OutputDir = "stop", filepath.Join(t.TempDir(), "run")
	_, err := startFaulty(t, machine(true), s, Env{})
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "that of "+spoiledParam+" first; rows ") ||
		!exists(s.OutputDir, "checkpoint-2") || exists(s.OutputDir, "checkpoint-3") {
		t.Errorf("ended with %v", err)
	}
}
