package train

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestPartialWindowHasItsOwnDivisor: of five rows and four micro-batches a step the second step has one row, and its
// loss and gradient norm are those of a run on that row alone: divided by its own trained tokens.
func TestPartialWindowHasItsOwnDivisor(t *testing.T) {
	whole := testSpec(t, 2)
	lines := bytes.SplitAfterN(golden.ReadFile(t, whole.Dataset.Path), []byte("\n"), 6)
	dir := t.TempDir()
	write := func(name string, rows [][]byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Join(rows, nil), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// a rate that moves nothing, so that the second step starts where the first did
	whole.Training.BatchSize, whole.Training.GradientAccumulationSteps, whole.Training.LearningRate,
		whole.Training.LRScheduler = 1, 4, 1e-30, "constant"
	whole.Dataset.Shuffle, whole.Dataset.MaxLength, whole.Training.AllowZeroGradients = false, 512, true
	alone := whole
	whole.Dataset.Path = write("five.jsonl", lines[:5])
	alone.Dataset.Path, alone.Training.MaxSteps, alone.OutputDir = write("last.jsonl", lines[4:5]), 1,
		filepath.Join(dir, "alone")
	a, b := mustStart(t, whole, Env{}), mustStart(t, alone, Env{})
	golden.Near(t, "relative loss of the last row", a.Losses[1]/b.Losses[0], 1, 1e-6)
	x, y := metricsLines(t, whole.OutputDir)[1], metricsLines(t, alone.OutputDir)[0]
	golden.Near(t, "relative gradient norm of the last row", x.GradNorm/y.GradNorm, 1, 1e-6)
	if x.TokensTotal == y.TokensTotal || a.Losses[0] == a.Losses[1] {
		t.Error("the first step has no rows of its own")
	}
}
