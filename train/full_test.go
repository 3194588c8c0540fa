package train

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

// fullSpec is a run that trains the base model's weights, with accumulation and rows to evaluate.
func fullSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Adapter, s.Quantization = "full", nil
	s.Dataset.ValSplit, s.Training.EvalSteps = 0.05, steps
	s.Training.GradientAccumulationSteps, s.Training.LearningRate, s.Training.WeightDecay = 4, 1e-4, 0.1
	s.Training.SaveSteps = 2
	return s
}

// sameModel compares what runs left bit for bit: the model, and the newest checkpoint's weights and optimizer.
func sameModel(t testing.TB, what, want, got string) {
	t.Helper()
	steps, err := checkpoint.Steps(want)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%s: checkpoints %v: %v", what, steps, err)
	}
	last := checkpoint.Name(steps[len(steps)-1])
	for _, name := range []string{weights.SingleFile, modelConfig, filepath.Join(last, optimizerFile),
		filepath.Join(last, weights.SingleFile)} {
		if !bytes.Equal(golden.ReadFile(t, want, name), golden.ReadFile(t, got, name)) {
			t.Errorf("%s: %s is another", what, name)
		}
	}
	if a, b := logLosses(t, want), logLosses(t, got); a != b {
		t.Errorf("%s: metrics differ:\n%s\n%s", what, a, b)
	}
}

// TestFullRun trains all weights. The run holds the planned memory; ranks, an interrupt, gradient checkpointing and
// sharded validation lead to the same bytes; and the folder is a model with the loss that the run had at its end.
func TestFullRun(t *testing.T) {
	t.Parallel()
	whole := fullSpec(t, 4)
	planned, err := PlanRun(context.Background(), whole, Env{})
	if err != nil {
		t.Fatal(err)
	}
	result := mustStart(t, whole, oneWorker)
	if result.HeldBytes != planned.TotalBytes {
		t.Errorf("the run held %d bytes, the plan has %d", result.HeldBytes, planned.TotalBytes)
	}
	if !(result.Losses[3] < result.Losses[0]) {
		t.Errorf("losses %v", result.Losses)
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

	lean := whole
	lean.OutputDir, lean.Training.GradientCheckpointing = filepath.Join(t.TempDir(), "lean"), "full"
	if less := mustStart(t, lean, Env{}); less.HeldBytes >= result.HeldBytes {
		t.Errorf("%d bytes with gradient checkpointing, %d without", less.HeldBytes, result.HeldBytes)
	}
	sameModel(t, "recomputed, more workers", whole.OutputDir, lean.OutputDir)

	was, err := replay.ReadManifest(whole.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(context.Background(), whole, oneWorker, was, 4); err != nil || !v.Equal || v.Adapter == nil ||
		!*v.Adapter {
		t.Errorf("verify: %+v, %v", v, err)
	}
	trained := whole
	trained.BaseModel = whole.OutputDir
	for _, c := range []struct {
		what  string
		model string
	}{{"the folder", whole.OutputDir}, {"the checkpoint", filepath.Join(whole.OutputDir, checkpoint.Name(4))}} {
		trained.BaseModel = c.model
		report, err := infer.Evaluate(context.Background(), trained.Evaluation(""), session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		golden.Near(t, c.what+"'s loss", report.Loss, *result.EvalLoss, 1e-5**result.EvalLoss)
	}
}

// TestFullTrainsWhatIsNamed trains some weights: the others keep their bytes, and take neither gradients nor moments.
func TestFullTrainsWhatIsNamed(t *testing.T) {
	base, err := weights.OpenDir(golden.StoriesDir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close() //nolint:errcheck // read only
	for _, c := range []struct {
		train []string
		like  func(name string) bool
	}{
		{[]string{"layers.1", "norm"}, func(name string) bool {
			return strings.HasPrefix(name, "model.layers.1.") || name == "model.norm.weight"
		}},
		{[]string{`^model.layers.[23].mlp.down_proj.weight$`}, func(name string) bool {
			return name == "model.layers.2.mlp.down_proj.weight" || name == "model.layers.3.mlp.down_proj.weight"
		}},
		{[]string{"embed_tokens"}, func(name string) bool { return name == "model.embed_tokens.weight" }},
	} {
		s := fullSpec(t, 2)
		s.Full.Train = c.train
		mustStart(t, s, Env{})
		got, err := weights.OpenDir(s.OutputDir)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close() //nolint:errcheck // read only
		if !slices.Equal(got.Names(), base.Names()) {
			t.Errorf("%v: the model has other tensors", c.train)
		}
		for _, name := range base.Names() {
			was, _ := base.Tensor(name)
			is, _ := got.Tensor(name)
			if same := bytes.Equal(was.Data, is.Data); same == c.like(name) {
				t.Errorf("%v: %s: trained %v", c.train, name, !same)
			}
		}
		optimizer, err := weights.Open(filepath.Join(s.OutputDir, checkpoint.Name(2), optimizerFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range optimizer.Names() {
			if _, of, one := strings.Cut(name, " of "); one && !c.like(of) {
				t.Errorf("%v: the optimizer has %s", c.train, name)
			}
		}
		optimizer.Close() //nolint:errcheck // read only
	}
}

// TestFullRefuses: what can't be trained in full is said before a step.
func TestFullRefuses(t *testing.T) {
	for _, c := range []struct {
		want string
		edit func(s *Spec)
	}{
		{`full.train: "layers.9" matches no weight of the model, which has 47 such as model.embed_tokens.weight, `,
			func(s *Spec) { s.Full.Train = []string{"norm", "layers.9"} }},
		{"cannot be trained, because it is stored quantised",
			func(s *Spec) { s.BaseModel = storiesQuantised(t, false) }},
		{"the run trains weights of the base model itself", func(s *Spec) {
			pairs := dpoSpec(t, 2)
			pairs.Training.Precompute = "no"
			pairs.Adapter, pairs.Quantization = "full", nil
			*s = pairs
		}},
	} {
		s := fullSpec(t, 2)
		c.edit(&s)
		if _, err := Start(context.Background(), s, Env{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	s := fullSpec(t, 2)
	s.Full.Train = []string{"norm", "", "(", "norm"}
	if got := fmt.Sprint(s.Sections.Problems("full")); strings.Count(got, "full.train: ") != 3 {
		t.Errorf("problems %v", got)
	}
}
