package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// TestInitFrom starts from an adapter and moves it by nothing.
func TestInitFrom(t *testing.T) {
	first := testSpec(t, 6)
	r := mustStart(t, first, Env{})
	second := testSpec(t, 2)
	second.LoRA.InitFrom = first.OutputDir
	second.Training.LearningRate = 1e-30
	next := mustStart(t, second, Env{})
	a := golden.Open(t, filepath.Join(first.OutputDir, adapter.WeightsFile))
	b := golden.Open(t, filepath.Join(second.OutputDir, adapter.WeightsFile))
	if len(a.Names()) != len(b.Names()) {
		t.Fatalf("%d tensors came of %d", len(b.Names()), len(a.Names()))
	}
	moved := 0.0
	for _, name := range a.Names() {
		got := b.Floats(name)
		for i, w := range a.Floats(name) {
			if math.Abs(got[i]-w) > 1e-20 {
				t.Fatalf("%s[%d] = %v, it starts from %v", name, i, got[i], w)
			}
			moved += math.Abs(w)
		}
	}
	if moved == 0 || !(next.FirstLoss < r.FirstLoss) {
		t.Errorf("first loss %v, without an adapter to start from %v", next.FirstLoss, r.FirstLoss)
	}
}

func TestInitFromErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "adapter")
	first := testSpec(t, 1)
	first.OutputDir = dir
	mustStart(t, first, Env{})
	for _, c := range []struct {
		name, want string
		edit       func(s *Spec)
	}{
		{"no such folder", "lora.init_from: read adapter: stat DIR/nothing/adapter_config.json: no such file or " +
			"directory", func(s *Spec) { s.LoRA.InitFrom += "/nothing" }},
		{"another scale", "lora.init_from: DIR: the adapter was trained with scale 2 at " +
			"model.layers.0.self_attn.q_proj, this run has scale 4; set lora.r, lora.alpha and lora.use_rslora as " +
			"the adapter has them", func(s *Spec) { s.LoRA.Alpha *= 2 }},
		{"another rank", "lora.init_from: the adapter does not fit the model: it was made for \"BASE\" with rank 8 " +
			"and has 70 tensors, here 70 are expected:\n  70 wrong shape:\n    " +
			"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight: shape [8 172], expected [4 172]",
			func(s *Spec) { s.LoRA.R, s.LoRA.Alpha = 4, 8 }},
		{"other layers", "lora.init_from: the adapter does not fit the model: it was made for \"BASE\" with rank 8 " +
			"and has 70 tensors, here 20 are expected:\n  50 unexpected:\n    " +
			"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
			func(s *Spec) { s.LoRA.TargetModules = adapter.Targets{"q_proj", "v_proj"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testSpec(t, 1)
			s.LoRA.InitFrom = dir
			c.edit(&s)
			if c.name == "another scale" { // and the same for a checkpoint
				r := s
				r.LoRA.InitFrom, r.Training.Resume = "", filepath.Join(dir, checkpoint.Name(1))
				_, err := Start(context.Background(), r, Env{})
				want := strings.ReplaceAll(c.want, "lora.init_from: DIR: ", "resume from "+r.Training.Resume+": ")
				if err == nil || err.Error() != want {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
			_, err := Start(context.Background(), s, Env{})
			if want := strings.NewReplacer("DIR", dir, "BASE", s.BaseModel).Replace(c.want); err == nil ||
				!strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if _, err := os.Stat(filepath.Join(s.OutputDir, adapter.WeightsFile)); err == nil {
				t.Error("an adapter was written")
			}
		})
	}
}

// TestNothingIsOverwritten: what an earlier run left stays as it is, also where its checkpoints are gone.
func TestNothingIsOverwritten(t *testing.T) {
	s := testSpec(t, 2)
	mustStart(t, s, Env{})
	before := golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)
	other := testSpec(t, 3)
	r := mustStart(t, other, Env{})
	for _, step := range []string{"with its checkpoint", "without"} {
		if step == "without" {
			if err := os.RemoveAll(filepath.Join(s.OutputDir, checkpoint.Name(2))); err != nil {
				t.Fatal(err)
			}
		}
		for _, resume := range []string{"", "auto", r.Checkpoint} {
			if resume == "auto" && step != "without" {
				continue // resumes it
			}
			again := s
			again.Seed, again.Training.Resume = 43, resume
			_, err := Start(context.Background(), again, Env{})
			if err == nil || !strings.Contains(err.Error(), "output_dir "+s.OutputDir+" holds") {
				t.Errorf("%s, resume %q: %v", step, resume, err)
			}
			if string(golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) != string(before) {
				t.Fatalf("%s, resume %q: the adapter was overwritten", step, resume)
			}
		}
	}
}
