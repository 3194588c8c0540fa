package train

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
)

// sampled keeps what a run's samples say.
type sampled struct {
	Silent
	all []SampleInfo
}

func (s *sampled) Sample(i SampleInfo) { s.all = append(s.all, i) }

// TestSamplesChangeNothing: a run with samples trains the same adapter, in the memory that was planned; its samples are
// those of the base model before and of the saved adapter after.
func TestSamplesChangeNothing(t *testing.T) {
	for _, val := range []float64{0, 0.05} {
		plain := testSpec(t, 4)
		plain.LoRA.Dropout, plain.Training.LearningRate = 0.1, 1e-2
		plain.Dataset.ValSplit = val
		mustStart(t, plain, Env{})

		with := plain
		with.OutputDir = filepath.Join(t.TempDir(), "with samples")
		with.Training.SamplePrompts, with.Training.SampleMaxTokens, with.Training.EvalSteps = []string{"Once upon a time", "The cat"}, 150, 2
		planned, err := PlanRun(context.Background(), with, Env{})
		if err != nil {
			t.Fatal(err)
		}
		seen := &sampled{}
		r := mustStart(t, with, Env{Observers: []Observer{seen}})
		if r.HeldBytes != planned.TotalBytes {
			t.Errorf("the run holds %d bytes, planned were %d", r.HeldBytes, planned.TotalBytes)
		}
		if !bytes.Equal(golden.ReadFile(t, plain.OutputDir, adapter.WeightsFile), golden.ReadFile(t, with.OutputDir, adapter.WeightsFile)) {
			t.Error("samples change the adapter")
		}
		var steps []int
		for _, s := range seen.all {
			steps = append(steps, s.Step)
		}
		if want := []int{0, 0, 2, 2, 4, 4}; !slices.Equal(steps, want) {
			t.Fatalf("samples after steps %v, want %v", steps, want)
		}
		for _, at := range []struct {
			dir   string
			first int
		}{{"", 0}, {with.OutputDir, 4}} {
			g, err := infer.NewGenerator(context.Background(), with.Session(), at.dir, session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			for i, prompt := range with.Training.SamplePrompts {
				made, err := g.Continue(context.Background(), g.Text(prompt), infer.GenerateOptions{MaxTokens: 150}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := seen.all[at.first+i].Answer; got != made.Text || got == "" {
					t.Errorf("adapter %q, %q: the run's sample %q, generated %q", at.dir, prompt, got, made.Text)
				}
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSamplesRefused(t *testing.T) {
	s := testSpec(t, 2)
	s.Training.SamplePrompts, s.Training.SampleMaxTokens = []string{"short", "long"}, 511
	_, err := PlanRun(context.Background(), s, Env{})
	if want := "training.sample_prompts[0]: 5 tokens and an answer of up to 511 are more than the model's 512 positions: shorten it or lower training.sample_max_tokens"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	s.Training.SamplePrompts, s.Training.SampleMaxTokens = append(slices.Repeat([]string{"x"}, maxSamples), ""), 0
	if got, want := fmt.Sprint(s.Training.Validate()), "[training.sample_max_tokens: 0 must be at least 1 training.sample_prompts[64]: is empty training.sample_prompts: there are 65, more than 64]"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}
