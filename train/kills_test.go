package train

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// killedObjectives are runs that TestKilledObjectivesResume kills, on the file that path names.
var killedObjectives = map[string]func(t testing.TB) Spec{
	"dpo": func(t testing.TB) Spec {
		s := dpoSpec(t, 10)
		s.Training.EvalSteps = 2
		return s
	},
	"kto": func(t testing.TB) Spec {
		s := ktoSpec(t, 10)
		s.Training.EvalSteps = 2
		return s
	},
	"grpo": func(t testing.TB) Spec { return rolloutSpec(t, 20) },
	"grpo that samples": func(t testing.TB) Spec {
		s := samplingSpec(t, 6)
		s.Objectives.GRPO.NumIterations = 2
		return s
	},
}

// TestKilledObjectivesResume kills runs of preferences and rewards with SIGKILL at random moments, resumes them, and
// compares adapter and metrics with those of a run that was left alone.
func TestKilledObjectivesResume(t *testing.T) {
	if name := os.Getenv("TRAINER_TEST_OBJECTIVE"); name != "" { // the child
		s := killedObjectives[name](t)
		s.OutputDir, s.Dataset.Path = os.Getenv("TRAINER_TEST_RUN"), os.Getenv("TRAINER_TEST_DATA")
		s.Training.SaveSteps, s.Training.Resume = 1, "auto"
		mustStart(t, s, oneWorker)
		return
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("the moments have the seed %d", seed)
	for name, spec := range killedObjectives {
		t.Run(name, func(t *testing.T) {
			whole := spec(t)
			began := time.Now()
			mustStart(t, whole, oneWorker)
			took := time.Since(began)
			dir, temp := filepath.Join(t.TempDir(), "run"), t.TempDir()
			for kills := 0; ; {
				child := exec.Command(os.Args[0], "-test.run=^TestKilledObjectivesResume$")
				child.Env = append(os.Environ(), "TRAINER_TEST_RUN="+dir, "TRAINER_TEST_OBJECTIVE="+name,
					"TRAINER_TEST_DATA="+whole.Dataset.Path, "TMPDIR="+temp)
				if err := child.Start(); err != nil {
					t.Fatal(err)
				}
				if kills < 4 {
					time.Sleep(time.Duration(random.Float64() * float64(took)))
					child.Process.Kill() //nolint:errcheck // it may have ended
				}
				err := child.Wait()
				if err == nil {
					break
				}
				if kills++; kills > 4 {
					t.Fatalf("a run that nobody killed failed: %v", err)
				}
			}
			sameRun(t, "killed and resumed", whole.OutputDir, dir)
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
	for part := range 4 {
		parts := whole
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := &stopLater{after: took * time.Duration(part) / 24, stop: make(chan struct{})}
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
