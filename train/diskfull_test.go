package train

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// everyFile is a run that writes every file that a run can write.
func everyFile(t *testing.T) (Spec, Env) {
	s, env := testSpec(t, 4), twoWorkers
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.SaveSteps = 0.05, 2, 2
	s.Training.GradNormSteps, s.Training.ReportTo = 1, []string{"csv"}
	env.Config = []byte("seed: 42\n")
	return s, env
}

// freeIs sets what diskFree says.
func freeIs(t *testing.T, free int64) {
	real := diskFree
	t.Cleanup(func() { diskFree = real })
	diskFree = func(string) (int64, bool) { return free, true }
}

// TestDiskHoldsNoCheckpoint: a run whose checkpoint and adapter have no room says so before its base model is loaded,
// with the bytes that they really take, and leaves nothing. One whose later checkpoints have none is warned of.
func TestDiskHoldsNoCheckpoint(t *testing.T) {
	s, env := everyFile(t)
	r := mustStart(t, s, env)
	sizes := func(dir string) (all int64) {
		for _, name := range []string{adapter.ConfigFile, adapter.WeightsFile, optimizerFile, "tokenizer.json"} {
			if info, err := os.Stat(dir + "/" + name); err == nil {
				all += info.Size()
			}
		}
		return all
	}
	really := sizes(r.Checkpoint) + sizes(s.OutputDir)

	p, err := prepare(context.Background(), s, env)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	saved, final, err := p.written()
	if err != nil {
		t.Fatal(err)
	}
	if needed := saved + final; needed > really || needed < really*9/10 {
		t.Errorf("%d bytes are said to be needed, %d are written", needed, really)
	}

	s.OutputDir = t.TempDir() + "/run"
	freeIs(t, saved+final-1)
	loads := false
	env.phases = func(p phase) { loads = loads || p == phaseLoad }
	_, err = Start(context.Background(), s, env)
	var full *atomicfile.FullError
	if !errors.As(err, &full) || full.Path != s.OutputDir || full.Needed != saved+final || full.Free != saved+final-1 {
		t.Fatalf("started with %v", err)
	}
	t.Log(err)
	if _, err := os.Stat(s.OutputDir); !os.IsNotExist(err) || loads {
		t.Errorf("the folder is there (%v), or the model was loaded (%v)", err, loads)
	}

	var said strings.Builder
	env.Log = func(line string) { said.WriteString(line + "\n") }
	diskFree = func(string) (int64, bool) { return saved + final, true }
	mustStart(t, s, env)
	if !strings.Contains(said.String(), "the 2 checkpoints that this run has at a time take") {
		t.Errorf("no warning in\n%s", said.String())
	}
}

// wholeAfter is an error where a failed run left a checkpoint that is not whole.
func wholeAfter(t *testing.T, dir string) (checkpoints int) {
	t.Helper()
	steps, err := checkpoint.Steps(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, step := range steps {
		if _, _, err := checkpoint.Load(dir + "/" + checkpoint.Name(step)); err != nil {
			t.Error(err)
		}
	}
	return len(steps)
}

// sameFiles compares what two runs left, but for what times them.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	for _, name := range []string{adapter.WeightsFile, adapter.ConfigFile, GradNormsFile, DataReportFile, ConfigFile,
		checkpoint.Name(4) + "/" + optimizerFile} {
		if string(golden.ReadFile(t, a, name)) != string(golden.ReadFile(t, b, name)) {
			t.Errorf("%s differs from that of a run whose disk was never full", name)
		}
	}
}
