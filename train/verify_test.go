package train

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/fit"
	"github.com/tierlora/tierlora/train/replay"
)

// verified is a finished run of six steps.
func verified(t *testing.T) (Spec, replay.Manifest) {
	t.Helper()
	s := testSpec(t, 6)
	s.Device, s.Training.SaveSteps = "cpu", 3
	mustStart(t, s, Env{Config: []byte("a: 1\n")})
	m, err := replay.ReadManifest(s.OutputDir)
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

func TestVerify(t *testing.T) {
	t.Parallel()
	s, m := verified(t)
	env := Env{Config: []byte("a: 1\n")}
	yes, no := true, false
	if len(m.Files) != 7 || m.Files[dataset.PromptFormatFile] == "" || m.Files["generation_config.json"] == "" ||
		m.Files[adapter.WeightsFile] != replay.HashBytes(golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) ||
		m.Files["checkpoint-6/optimizer.safetensors"] != replay.HashBytes(golden.ReadFile(t, s.OutputDir,
			"checkpoint-6", "optimizer.safetensors")) {
		t.Fatalf("the manifest says of the files %v", m.Files)
	}
	if len(m.Evidence) != 6 || m.Evidence[5].Losses != m.Losses || m.Tokenizer == "" || m.Plan == "" ||
		m.Software.Kernels == "" {
		t.Fatalf("the manifest says %+v", m)
	}
	for name, c := range map[string]struct {
		change func(*Spec, *replay.Manifest)
		steps  int
		want   replay.Verdict
	}{
		"the same": {func(*Spec, *replay.Manifest) {}, 4,
			replay.Verdict{Steps: 4, Of: 6, Equal: true, Changed: []replay.Change{}}},
		"all steps": {func(*Spec, *replay.Manifest) {}, 6,
			replay.Verdict{Steps: 6, Of: 6, Equal: true, Adapter: &yes, Changed: []replay.Change{}}},
		"another adapter": {func(_ *Spec,
			m *replay.Manifest) {
			m.Files = map[string]string{adapter.WeightsFile: m.Losses}
		}, 6,
			replay.Verdict{Steps: 6, Of: 6, Adapter: &no, Changed: []replay.Change{}}},
		"another loss": {func(_ *Spec, m *replay.Manifest) { m.Evidence[2].Losses = "0" }, 6,
			replay.Verdict{Steps: 3, Of: 6, Losses: &replay.Divergence{After: 2, Step: 3}, Changed: []replay.Change{}}},
		"little evidence": {func(_ *Spec, m *replay.Manifest) {
			m.Evidence = slices.Delete(m.Evidence, 2, 4)
			m.Evidence[2].Losses = "0"
		}, 6, replay.Verdict{Steps: 5, Of: 6, Losses: &replay.Divergence{After: 2, Step: 5},
			Changed: []replay.Change{}}},
		"another order": {func(s *Spec, _ *replay.Manifest) { s.Seed++ }, 6,
			replay.Verdict{Steps: 1, Of: 6, Losses: &replay.Divergence{After: 0, Step: 1},
				Batches: &replay.Divergence{After: 0, Step: 1},
				Changed: []replay.Change{{What: "seed", Was: "42", Now: "43"}}}},
		"another learning rate": {func(s *Spec, _ *replay.Manifest) { s.Training.LearningRate *= 2 }, 6,
			replay.Verdict{Steps: 2, Of: 6, Losses: &replay.Divergence{After: 1, Step: 2}, Changed: []replay.Change{}}},
		"an older program's": {func(_ *Spec, m *replay.Manifest) { m.Evidence, m.Plan, m.Files = nil, "", nil }, 6,
			replay.Verdict{Steps: 6, Of: 6, Equal: true, Changed: []replay.Change{}}},
		"another driver": {func(_ *Spec, m *replay.Manifest) {
			m.Software.Driver, m.Software.Libraries = "570.1", []string{"a 1", "b 2"}
		}, 1,
			replay.Verdict{Steps: 1, Of: 6, Equal: true,
				Changed: []replay.Change{{What: "software.driver", Was: "570.1", Now: ""},
					{What: "software.libraries", Was: "a 1, b 2"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := s, m
			m.Evidence = slices.Clone(m.Evidence)
			c.change(&s, &m)
			if name == "another order" {
				c.want.Changed[0].Was, c.want.Changed[0].Now = fmt.Sprint(m.Seed), fmt.Sprint(s.Seed)
			}
			got, err := Verify(t.Context(), s, env, m, c.steps)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	m.Evidence = nil
	if _, err := Verify(t.Context(), s, env, m, 5); err == nil ||
		!strings.Contains(err.Error(), "says nothing of the losses before step 6: verify 6 steps or more") {
		t.Errorf("too few steps of an older program's run: %v", err)
	}
}

// TestEvidenceOfAResumedRun: it is that of a run in one go.
func TestEvidenceOfAResumedRun(t *testing.T) {
	_, whole := verified(t)
	s := testSpec(t, 6)
	s.Device, s.Training.SaveSteps = "cpu", 3
	stop := stopping(3)
	if r := mustStart(t, s, Env{Config: []byte("a: 1\n"), Interrupted: stop.stop,
		Observers: []Observer{stop}}); !r.Stopped {
		t.Fatalf("the run was not stopped: %+v", r)
	}
	s.Training.Resume = "auto"
	mustStart(t, s, Env{Config: []byte("a: 1\n")})
	m, err := replay.ReadManifest(s.OutputDir)
	if err != nil || !reflect.DeepEqual(m, whole) {
		t.Errorf("resumed %+v (%v), in one go %+v", m, err, whole)
	}
}

// TestVerifyOfRanksInLittleMemory: what each of several ranks could hold, in slices of the base model, limits no replay
// on one, which has the same losses.
func TestVerifyOfRanksInLittleMemory(t *testing.T) {
	t.Parallel()
	base := testSpec(t, 3)
	base.Device, base.Training.BatchSize, base.Training.GradientAccumulationSteps = "cpu", 2, 3
	base.Dataset.MaxLength, base.Training.GradientCheckpointing = 48, "full"
	for _, onOOM := range []string{fit.OnOOMStop, fit.OnOOMShrink} {
		s := over(t, base, 3)
		s.Training.BaseSharding, s.Training.DequantisedWeights, s.Training.OnOOM = "always", "always", onOOM
		plan, err := PlanRun(context.Background(), s, oneWorker)
		if err != nil {
			t.Fatal(err)
		}
		s.VRAM, s.OutputDir = strconv.FormatInt(plan.TotalBytes, 10), filepath.Join(t.TempDir(), "run")
		// also rows of logits at a time, which may round losses otherwise
		for bytes := plan.TotalBytes; onOOM == fit.OnOOMStop && !strings.Contains(fmt.Sprint(plan.Notes),
			"rows at a time"); {
			bytes -= 2048
			s.VRAM = strconv.FormatInt(bytes, 10)
			if plan, err = PlanRun(context.Background(), s, oneWorker); err != nil {
				t.Fatal(err)
			}
		}
		mustStart(t, s, oneWorker)
		m, err := replay.ReadManifest(s.OutputDir)
		if err != nil {
			t.Fatal(err)
		}
		if onOOM == fit.OnOOMStop && m.Plans[0].LossRows == 0 {
			t.Errorf("in %s bytes the loss is worked out at once", s.VRAM)
		}
		if v, err := Verify(context.Background(), s, oneWorker, m, 3); err != nil || !v.Equal ||
			v.Adapter == nil || !*v.Adapter {
			t.Errorf("in %s bytes, %v, on_oom %s: %+v, %v", s.VRAM, m.Plans, onOOM, v, err)
		}
	}
}
