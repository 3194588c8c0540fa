package train

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// stochasticSpec is fullSpec with weights in bf16 alone.
func stochasticSpec(t testing.TB, steps int) Spec {
	s := fullSpec(t, steps)
	s.Full.StochasticRounding = true
	return s
}

// TestStochasticRounding: every matrix of a checkpoint has bf16's values, the loss falls, ranks and a resumed run have
// the same bytes, and another seed has others.
func TestStochasticRounding(t *testing.T) {
	t.Parallel()
	whole := stochasticSpec(t, 4)
	result := mustStart(t, whole, oneWorker)
	if !(result.Losses[3] < result.Losses[0]) {
		t.Errorf("losses %v", result.Losses)
	}
	file, err := weights.Open(filepath.Join(whole.OutputDir, checkpoint.Name(4), weights.SingleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	vectors := 0
	for _, name := range file.Names() {
		x, _ := file.Tensor(name)
		numbers := make([]float32, x.Len())
		if err := weights.Float32s(x, numbers); err != nil {
			t.Fatal(err)
		}
		exact := true
		for _, v := range numbers {
			exact = exact && math.Float32bits(v) == math.Float32bits(kernel.FromBF16(kernel.ToBF16(v)))
		}
		if len(x.Shape) > 1 && !exact {
			t.Errorf("%s has numbers that are no bf16", name)
		}
		if len(x.Shape) == 1 && !exact {
			vectors++
		}
	}
	if vectors == 0 {
		t.Error("no norm has numbers of float32")
	}

	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	sameModel(t, "2 ranks", whole.OutputDir, ranks.OutputDir)

	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameModel(t, "resumed", whole.OutputDir, parts.OutputDir)

	masters := whole
	masters.OutputDir, masters.Full.StochasticRounding = filepath.Join(t.TempDir(), "masters"), false
	mustStart(t, masters, oneWorker)
	if bytes.Equal(golden.ReadFile(t, whole.OutputDir, weights.SingleFile),
		golden.ReadFile(t, masters.OutputDir, weights.SingleFile)) {
		t.Error("weights in bf16 alone train as float32 masters do")
	}
}

// TestStochasticRoundingRefuses checks the message for an optimizer that computes weights from averages.
func TestStochasticRoundingRefuses(t *testing.T) {
	s := stochasticSpec(t, 2)
	s.Training.Optimizer, s.Training.LRScheduler = "schedule_free_adamw", "constant"
	_, err := Start(context.Background(), s, oneWorker)
	const want = "full.stochastic_rounding rounds the weights that an update leaves, and this training.optimizer " +
		"computes them from averages that it keeps: choose another optimizer, or set full.stochastic_rounding to false"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("refused with %v", err)
	}
}
