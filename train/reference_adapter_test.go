package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/objective"
)

// trainedAdapter trains an adapter of a method on labelled answers and returns its folder.
func trainedAdapter(t testing.TB, change func(*Spec)) string {
	t.Helper()
	s := ktoSpec(t, 3)
	s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0, 0, false
	change(&s)
	mustStart(t, s, oneWorker)
	return s.OutputDir
}

// TestReferenceIsAnAdapter checks runs whose reference is the adapter that they start from: before the first step the
// model equals the reference, over 4-bit weights and with DoRA too, and ranks and an interrupt change no bit.
func TestReferenceIsAnAdapter(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Spec){
		"lora":  func(s *Spec) {},
		"qlora": func(s *Spec) { s.Adapter, s.Quantization = "qlora", schemeOf("qlora_nf4") },
		"qdora": func(s *Spec) { s.Adapter, s.Quantization = "qdora", schemeOf("qlora_nf4") },
	} {
		dir := trainedAdapter(t, change)
		whole := dpoSpec(t, 4)
		change(&whole)
		whole.Training.Reference, whole.LoRA.InitFrom = "start", dir
		mustStart(t, whole, oneWorker)
		evals := linesWith(t, whole.OutputDir, "eval_loss", "eval_loss", "eval_rewards/margins")
		if before := evals[0]; math.Abs(before[0]-math.Ln2) > 1e-6 || math.Abs(before[1]) > 1e-6 {
			t.Errorf("%s: before training the evaluation has %v, want the loss log 2 and no margin", name, before)
		}
		if last := evals[len(evals)-1]; !(last[0] < math.Ln2) {
			t.Errorf("%s: after training the evaluation has %v", name, last)
		}
		base := whole
		base.Training.Reference, base.OutputDir = "base", filepath.Join(t.TempDir(), "base")
		mustStart(t, base, oneWorker)
		if first := linesWith(t, base.OutputDir, "eval_loss", "eval_loss")[0][0]; math.Abs(first-math.Ln2) < 1e-3 {
			t.Errorf("%s: compared with the base model the run begins with the loss %v", name, first)
		}
		named := over(t, whole, 2)
		named.Training.Reference = dir
		mustStart(t, named, oneWorker)
		sameRun(t, name+", the folder by its name, 2 ranks", whole.OutputDir, named.OutputDir)

		parts := whole
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := stopping(2)
		mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
		parts.Training.Resume = "auto"
		mustStart(t, parts, oneWorker)
		sameRun(t, name+", resumed", whole.OutputDir, parts.OutputDir)
	}
}

// TestReferenceOfKTO trains on labelled answers with another adapter as reference, whose rank is another one, and
// refuses to resume with any other reference.
func TestReferenceOfKTO(t *testing.T) {
	t.Parallel()
	dir := trainedAdapter(t, func(s *Spec) { s.LoRA.R, s.LoRA.Alpha = 3, 6 })
	s := ktoSpec(t, 4)
	s.Training.Reference = dir
	plan, err := prepare(t.Context(), s, oneWorker)
	if err != nil {
		t.Fatal(err)
	}
	if text := plan.planReport().String(); !strings.Contains(text, adapter.ReferenceGroup) {
		t.Errorf("the plan has no bytes of the reference:\n%s", text)
	}
	if err := plan.Close(); err != nil {
		t.Fatal(err)
	}
	stop := stopping(2)
	mustStart(t, s, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	if first := linesWith(t, s.OutputDir, "eval_loss", "eval_rewards/margins")[0][0]; math.Abs(first) < 1e-4 {
		t.Errorf("the margin before training is %v, and the reference has learnt", first)
	}
	s.Training.Resume = "auto"
	other := s
	other.Training.Reference = "base"
	const began = "training.reference: the run began with an adapter with the SHA-256"
	if _, err := Start(t.Context(), other, oneWorker); err == nil || !strings.Contains(err.Error(), began) {
		t.Errorf("resumed with the base model: %v", err)
	}
	other.Training.Reference = trainedAdapter(t, func(s *Spec) { s.LoRA.R, s.LoRA.Alpha, s.Seed = 3, 6, 9 })
	const changed = "and now has the adapter of"
	if _, err := Start(t.Context(), other, oneWorker); err == nil || !strings.Contains(err.Error(), changed) {
		t.Errorf("resumed with another adapter: %v", err)
	}
	mustStart(t, s, oneWorker)
}

// TestReferenceRefuses checks the messages for references that a run cannot have.
func TestReferenceRefuses(t *testing.T) {
	dir := trainedAdapter(t, func(*Spec) {})
	short := filepath.Join(t.TempDir(), "short")
	if err := os.MkdirAll(short, 0o755); err != nil {
		t.Fatal(err)
	}
	text := golden.ReadFile(t, dir, adapter.ConfigFile)
	if err := os.WriteFile(filepath.Join(short, adapter.ConfigFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	weights := golden.ReadFile(t, dir, adapter.WeightsFile)
	if err := os.WriteFile(filepath.Join(short, adapter.WeightsFile), weights[:len(weights)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{"nowhere": "training.reference: read adapter",
		short: "training.reference: "} {
		s := ktoSpec(t, 2)
		s.Training.Reference = folder
		if _, err := Start(t.Context(), s, oneWorker); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", folder, err, want)
		}
	}
	s := ktoSpec(t, 2)
	s.Training.Objective, s.Training.Reference, s.Objectives = "cross_entropy", "start", objective.Config{}
	want := "training.reference: does nothing with training.objective: cross_entropy, which compares the model with no"
	if err := s.ValidateReference(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a reference of cross-entropy: %v", err)
	}
	if err := fmt.Sprint(ktoSpec(t, 2).ValidateReference()); err != "<nil>" {
		t.Error(err)
	}
}
