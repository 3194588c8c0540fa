package train

import (
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train/objective"
)

// killedObjectives are runs that tests end and resume: one of each objective by its name, and further ones
// by the name, a comma and what is different.
func killedObjectives(t testing.TB) map[string]Spec {
	often := func(s Spec) Spec {
		s.Training.EvalSteps = 2
		return s
	}
	named := func(name string, s Spec) Spec {
		s.Training.Objective, s.Objectives = name, objective.Config{}
		return s
	}
	classes := func(i int) string {
		return fmt.Sprintf(`{"text": "The dog number %d.", "label": %q}`, i, []string{"happy", "sad"}[i%2])
	}
	tags := func(i int) string {
		return fmt.Sprintf(`{"tokens": ["Tom", "saw", "%d"], "ner_tags": [1, 0, -100]}`, i)
	}
	documents := func(i int) string {
		return fmt.Sprintf(`{"query": "a dog %d", "document": "There was %s.", "label": %d}`, i,
			[]string{"a cat", "a dog"}[i%2], i%2)
	}
	all := map[string]Spec{
		"cross_entropy":          named("cross_entropy", smoothedSpec(t, 6)),
		"smoothed_cross_entropy": smoothedSpec(t, 6),
		"dft":                    named("dft", smoothedSpec(t, 6)),
		"focal":                  named("focal", smoothedSpec(t, 6)),
		"distill":                distillSpec(t, 6),
		"dpo":                    often(dpoSpec(t, 6)),
		"dpo, whole references":  often(dpoSpec(t, 6)),
		"cpo":                    named("cpo", dpoSpec(t, 6)),
		"simpo":                  named("simpo", dpoSpec(t, 6)),
		"orpo":                   named("orpo", dpoSpec(t, 6)),
		"kto":                    often(ktoSpec(t, 6)),
		"reward":                 headSpec(t, 6, "sequence_classification", "reward", rewardRow),
		"classification":         headSpec(t, 6, "sequence_classification", "classification", classes),
		"token_classification":   headSpec(t, 6, "token_classification", "token_classification", tags),
		"rerank":                 headSpec(t, 6, "reranker", "rerank", documents),
		"contrastive":            headSpec(t, 6, "embedding", "contrastive", pairRow),
		"grpo":                   rolloutSpec(t, 8),
		"rloo":                   named("rloo", rolloutSpec(t, 6)),
		"grpo, sampled":          samplingSpec(t, 6),
	}
	s := all["dpo, whole references"]
	s.Training.Precompute, s.Training.NEFTuneAlpha = "no", 5
	all["dpo, whole references"] = s
	for _, name := range []string{"classification", "token_classification"} {
		s := all[name]
		s.Objectives.Classification = &objective.ClassificationConfig{NumLabels: 2}
		if name == "classification" {
			s.Objectives.Classification = &objective.ClassificationConfig{ProblemType: "single_label",
				Labels: []string{"happy", "sad"}}
		}
		all[name] = s
	}
	all["grpo, sampled"].Objectives.GRPO.NumIterations = 2
	return all
}

// failingRun is an Observer that fails at one of the run's steps, evaluations and checkpoints, so that the run ends
// there without another checkpoint. It counts them.
type failingRun struct {
	Silent
	at, seen int
}

var errFailing = errors.New("the observer fails")

func (f *failingRun) Step(StepInfo) error    { return f.event() }
func (f *failingRun) Eval(EvalMetrics) error { return f.event() }
func (f *failingRun) Save(SaveInfo) error    { return f.event() }

func (f *failingRun) event() error {
	if f.seen++; f.seen == f.at {
		return errFailing
	}
	return nil
}

// TestFailedObjectivesResume ends a run of every objective twice, each time at a random step, evaluation or checkpoint,
// resumes it, and compares all it writes with a run that was left alone.
func TestFailedObjectivesResume(t *testing.T) {
	random := randomMoments(t)
	all := killedObjectives(t)
	for name := range objective.Objectives {
		if _, ok := all[name]; !ok {
			t.Errorf("no run of objective %s fails", name)
		}
	}
	for name, whole := range all {
		t.Run(name, func(t *testing.T) {
			s := whole
			s.OutputDir = filepath.Join(t.TempDir(), "run")
			s.Training.SaveSteps, s.Training.Resume = 1, "auto"
			count := &failingRun{}
			mustStart(t, whole, Env{Env: oneWorker.Env, Observers: []Observer{count}})
			f := &failingRun{at: 1 + random.IntN(count.seen/2)}
			if _, err := Start(t.Context(), s, Env{Env: oneWorker.Env, Observers: []Observer{f}}); !errors.Is(err,
				errFailing) {
				t.Fatalf("event %d of %d: %v", f.at, count.seen, err)
			}
			mustStart(t, s, oneWorker)
			sameRun(t, "failed and resumed", whole.OutputDir, s.OutputDir)
		})
	}
}

func randomMoments(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("the moments have the seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestKilledObjectivesResume kills runs with SIGKILL at random moments, resumes them, and compares with runs that were
// left alone: of the objectives that write files of their own beside those of every run.
func TestKilledObjectivesResume(t *testing.T) {
	if text := os.Getenv("TRAINER_TEST_SPEC"); text != "" { // the child
		var s Spec
		if err := gob.NewDecoder(hex.NewDecoder(strings.NewReader(text))).Decode(&s); err != nil {
			t.Fatal(err)
		}
		s.Training.SaveSteps, s.Training.Resume = 1, "auto"
		mustStart(t, s, oneWorker)
		return
	}
	random := randomMoments(t)
	all := killedObjectives(t)
	for _, name := range []string{"dpo", "grpo, sampled"} {
		whole := all[name]
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			mustStart(t, whole, oneWorker)
			took := time.Since(began)
			s, temp := whole, t.TempDir()
			s.OutputDir = filepath.Join(t.TempDir(), "run")
			var text strings.Builder // gob leaves out the functions of a Spec
			if err := gob.NewEncoder(hex.NewEncoder(&text)).Encode(s); err != nil {
				t.Fatal(err)
			}
			for kills := 0; ; {
				child := exec.Command(os.Args[0], "-test.run=^TestKilledObjectivesResume$")
				child.Env = append(os.Environ(), "TRAINER_TEST_SPEC="+text.String(), "TMPDIR="+temp)
				if err := child.Start(); err != nil {
					t.Fatal(err)
				}
				if kills < 2 {
					time.Sleep(time.Duration(random.Float64() * float64(took)))
					child.Process.Kill() //nolint:errcheck // it may have ended
				}
				err := child.Wait()
				if err == nil {
					break
				}
				if kills++; kills > 2 {
					t.Fatalf("a run that nobody killed failed: %v", err)
				}
			}
			sameRun(t, "killed and resumed", whole.OutputDir, s.OutputDir)
		})
	}
}

// stopLater interrupts a run some time after its second step, whose answers are trained no more: the run samples then.
type stopLater struct {
	Silent
	after time.Duration
	stop  chan struct{}
}

func (s *stopLater) Step(i StepInfo) error {
	if i.Step == 2 {
		time.AfterFunc(s.after, func() { close(s.stop) })
	}
	return nil
}

// TestInterruptedSampling interrupts a run that mostly samples answers at several moments: it ends as between two
// steps, and the resumed run samples unfinished answers again and trains the same adapter.
func TestInterruptedSampling(t *testing.T) {
	whole := samplingSpec(t, 6)
	whole.Objectives.GRPO.NumIterations, whole.Objectives.GRPO.RecordRollouts = 2, true
	began := time.Now()
	mustStart(t, whole, oneWorker)
	took, stopped := time.Since(began), 0
	for part := range 2 {
		parts := whole
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := &stopLater{after: took * time.Duration(1+2*part) / 24, stop: make(chan struct{})}
		if mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop}).Stopped {
			stopped++
		}
		parts.Training.Resume = "auto"
		mustStart(t, parts, oneWorker)
		sameRun(t, fmt.Sprintf("interrupted after %v", stop.after), whole.OutputDir, parts.OutputDir)
		want := len(fileLines(t, filepath.Join(whole.OutputDir, RolloutsFile)))
		if n := len(fileLines(t, filepath.Join(parts.OutputDir, RolloutsFile))); n != want {
			t.Errorf("interrupted after %v: %d answers are recorded, without an interrupt %d", stop.after, n, want)
		}
	}
	if stopped == 0 {
		t.Error("no run was interrupted")
	}
}
