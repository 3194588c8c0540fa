package train

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/quant"
)

// TestEveryKeyHasAResumeRule: what a resumed run does about a key is decided for all of them.
func TestEveryKeyHasAResumeRule(t *testing.T) {
	var s Spec
	s.Quantization = new(quant.Config)
	n := 0
	keys.Each(s, func(path string, k keys.Key, _ any) {
		n++
		if k.Resume == "" {
			t.Errorf("%s: its field has no tag resume", path)
		}
	})
	if n < 90 {
		t.Errorf("only %d keys seen", n)
	}
}

// TestResumeWithOtherValues: what makes another run of it is refused, what steers the steps to come is said, and of the
// rest nothing is said.
func TestResumeWithOtherValues(t *testing.T) {
	t.Parallel()
	first := testSpec(t, 2)
	mustStart(t, first, Env{})
	name := filepath.Join(first.OutputDir, "checkpoint-2")
	for what, c := range map[string]struct {
		edit func(s *Spec)
		want string // of the error, or what is said
		said bool
	}{
		"adapter": {edit: func(s *Spec) { s.Adapter, s.Quantization = "lora", nil },
			want: "adapter was qlora, is lora"},
		"double_quant": {edit: func(s *Spec) { s.Quantization.DoubleQuant = false },
			want: "quantization.double_quant was true, is false"},
		"seed": {edit: func(s *Spec) { s.Seed = 7 }, want: "seed was 42, is 7"},
		"optimizer": {edit: func(s *Spec) { s.Training.Optimizer = "lion" },
			want: "training.optimizer was adamw, is lion"},
		"accumulation": {edit: func(s *Spec) { s.Training.GradientAccumulationSteps = 2 },
			want: "training.gradient_accumulation_steps was 1, is 2"},
		"two": {edit: func(s *Spec) { s.Seed, s.Training.GradientAccumulationSteps = 7, 2 },
			want: "seed was 42, is 7; training.gradient_accumulation_steps was 1, is 2"},
		"learning_rate": {edit: func(s *Spec) { s.Training.LearningRate = 5e-4 }, said: true,
			want: "resumed after step 2: training.learning_rate changes from 0.001 to 0.0005"},
		"weight_decay": {edit: func(s *Spec) { s.Training.WeightDecay = 0.5 }, said: true,
			want: "resumed after step 2: training.weight_decay changes from 0.01 to 0.5"},
		"dropout": {edit: func(s *Spec) { s.LoRA.Dropout = 0.1 }, said: true,
			want: "resumed after step 2: lora.dropout changes from 0 to 0.1"},
		"on_nonfinite": {edit: func(s *Spec) { s.Training.OnNonFinite = "skip" }, said: true,
			want: "resumed after step 2: training.on_nonfinite changes from stop to skip"},
		"max_steps": {edit: func(s *Spec) { s.Training.MaxSteps = 4 }, said: true,
			want: "resumed after step 2: steps changes from 2 to 4"},
		"no number": {said: true, edit: func(s *Spec) {
			s.Training.SaveSteps, s.Training.LoggingSteps, s.Training.SaveTotalLimit, s.VRAM = 1, 2, 5, "1GiB"
			s.Training.GradientCheckpointing, s.Training.DequantisedWeights, s.Expect.LossDecrease = "full", "always", 0
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s, q := first, quant.Default()
			s.Training.MaxSteps, s.Quantization = 3, &q
			s.Training.Resume, s.OutputDir = name, filepath.Join(t.TempDir(), "run")
			if what == "max_steps" {
				s.Training.MaxSteps = 2
			}
			c.edit(&s)
			var said []string
			env := Env{}
			env.Log = func(line string) {
				if strings.Contains(line, " changes from ") &&
					(what == "max_steps" || !strings.Contains(line, ": steps changes from 2 ")) {
					said = append(said, line)
				}
			}
			_, err := Start(context.Background(), s, env)
			if c.said {
				if err != nil || strings.Join(said, "\n") != c.want {
					t.Errorf("said %q, %v\nwant %q", said, err, c.want)
				}
				return
			}
			want := "resume from " + name + ": its run had another configuration: " + c.want +
				"; restore the old values, or choose another output_dir for a new run"
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if exists(s.OutputDir, adapter.WeightsFile) || exists(s.OutputDir, MetricsFile) {
				t.Error("something was written")
			}
		})
	}
}
