package train

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// TestAnswersContinueOnePrompt compares losses, numbers and gradients of groups whose prompt is computed once with
// those of groups whose prompt is computed with each answer. The groups are those on which TestRolloutsEqualTRL
// compares them with TRL's.
func TestAnswersContinueOnePrompt(t *testing.T) {
	t.Parallel()
	b := stories(t)
	var given goldenRollouts
	golden.JSON(t, golden.Path(t, "rollouts/rollouts.json"), &given)
	for name, args := range map[string]map[string]any{
		"grpo with a reference": {"loss_type": "grpo", "beta": 0.1},
		"gspo":                  {"loss_type": "dapo", "importance_sampling_level": "sequence", "temperature": 0.7},
		"entropies":             {"loss_type": "bnpo", "top_entropy_quantile": 0.5, "mask_truncated_completions": true},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(float kernel.DType, shared bool) *preferenceStep {
				o, micro, names, old := sampledObjective(t, args, given.Most)
				window := given.window(t, micro, names, old, make([]float64, 8), shared)
				if _, err := scoreWindow(&window, o); err != nil {
					t.Fatal(err)
				}
				batch := window.All[0]
				if prefixes := batch.Prefixes != nil; prefixes != shared {
					t.Fatalf("the batch has prefixes: %v", prefixes)
				}
				s := newStepOfPairs(t, b, float, o, roomFor(batch), Default(), golden.Path(t, "rollouts/adapter"))
				s.run.Run(step.SegmentBegin)
				s.by = 8
				s.micro(t, batch, 1)
				return s
			}
			o, _, _, _ := sampledObjective(t, args, given.Most)
			exact := run(kernel.F64, false)
			comparePairSteps(t, o, run(kernel.F64, true), exact, 1e-12)
			shared, whole := run(kernel.F32, true), run(kernel.F32, false)
			comparePairSteps(t, o, shared, whole, 1e-6)
			ours, theirs := gradientsApart(t, shared, exact), gradientsApart(t, whole, exact)
			t.Logf("gradients in fp32 are off by %.2g, those of repeated prompts by %.2g", ours, theirs)
			if !(ours <= max(1e-6, 1.5*theirs)) {
				t.Errorf("gradients in fp32 are off by %.3g, those of repeated prompts by %.3g", ours, theirs)
			}
		})
	}
}

// TestRunsShareSampledPrompts checks runs on sampled and on recorded answers whose prompts are computed once: the plan
// says so and is smaller, a run that does not share has the same numbers, and two ranks and a run that was interrupted
// between two steps on the same answers have the same bits.
func TestRunsShareSampledPrompts(t *testing.T) {
	t.Parallel()
	whole := samplingSpec(t, 4)
	longerPrompts(t, whole)
	whole.Objectives.GRPO.NumIterations, whole.Objectives.GRPO.RecordRollouts = 2, true
	plan := planWith(t, whole, "prompts are computed once, which saves those of further answers: prompts of ")
	mustStart(t, whole, oneWorker)

	apart := whole
	apart.Training.SharePrompts, apart.OutputDir = "no", filepath.Join(t.TempDir(), "apart")
	if other := planWith(t, apart, ""); slices.Max(plan.Budgets) >= slices.Max(other.Budgets) {
		t.Errorf("budgets %v, without sharing %v", plan.Budgets, other.Budgets)
	}
	mustStart(t, apart, oneWorker)
	got, want := linesWith(t, whole.OutputDir, "loss", "loss", "reward", "entropy", "grad_norm"),
		linesWith(t, apart.OutputDir, "loss", "loss", "reward", "entropy", "grad_norm")
	for k, w := range want[0] {
		golden.Near(t, "number of the first line", got[0][k], w, 2e-5*max(1, w))
	}

	ranks := over(t, whole, 2)
	mustStart(t, ranks, oneWorker)
	sameRun(t, "2 ranks", whole.OutputDir, ranks.OutputDir)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(3)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	sameRun(t, "resumed", whole.OutputDir, parts.OutputDir)

	file := whole
	file.OutputDir = filepath.Join(t.TempDir(), "file")
	file.Dataset.Path, file.Dataset.Format = filepath.Join(whole.OutputDir, RolloutsFile), dataset.FormatRollouts
	file.Objectives.GRPO = &objective.GRPOConfig{}
	*file.Objectives.GRPO = *whole.Objectives.GRPO
	file.Objectives.GRPO.Rewards = nil
	planWith(t, file, "prompts are computed once")
	mustStart(t, file, oneWorker)
}

// longerPrompts makes the prompts of a run of samplingSpec longer.
func longerPrompts(t *testing.T, s Spec) {
	t.Helper()
	put(t, s.Dataset.Path, strings.ReplaceAll(string(golden.ReadFile(t, filepath.Dir(s.Dataset.Path), "prompts.jsonl")),
		"Once", "There was a girl who lived in a big house with her mom, her dad and her dog. Once"))
}

// planWith plans a run and checks that a note begins with the text, or that none says that prompts are computed once.
func planWith(t *testing.T, s Spec, note string) PlanReport {
	t.Helper()
	plan, err := PlanRun(t.Context(), s, oneWorker)
	if err != nil {
		t.Fatal(err)
	}
	has := func(text string) bool {
		return slices.ContainsFunc(plan.Notes, func(n string) bool { return strings.HasPrefix(n, text) })
	}
	if has("prompts are computed once") != (note != "") || note != "" && !has(note) {
		t.Errorf("the plan notes %q", plan.Notes)
	}
	return plan
}
