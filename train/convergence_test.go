package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
)

// referenceSpec is the run that storiesReference is of.
func referenceSpec(t testing.TB) Spec {
	s := testSpec(t, 20)
	assets := filepath.Join(golden.Root(t), "configs", "assets")
	s.LoRA.TargetModules = adapter.Targets{adapter.AllLinear}
	s.Dataset.Path, s.Dataset.ValPath = filepath.Join(assets, "gsm8k_train_1000.jsonl.gz"),
		filepath.Join(assets, "gsm8k_test_64.jsonl")
	s.Dataset.MaxLength, s.Dataset.OnTruncated = 256, "drop"
	s.Training.BatchSize, s.Training.LearningRate, s.Training.WarmupRatio, s.Training.EvalOnStart = 1, 2e-3, 0.1, true
	s.Expect.Reference, s.Expect.EvalLossDecrease = storiesReference, 0.3
	return s
}

// TestRunAgainstPEFTsBand trains beside PEFT's curve on real language: as configured it stays in the band; with more or
// less of a learning rate it leaves it, whatever it says it is.
func TestRunAgainstPEFTsBand(t *testing.T) {
	t.Parallel()
	s := referenceSpec(t)
	r := mustStart(t, s, Env{})
	if len(r.Expect) != 2 || !r.Expect[0].Met || !r.Expect[1].Met || r.Expect[0].Criterion != "eval_loss_decrease" {
		t.Fatalf("%+v", r.Expect)
	}
	c := r.Expect[1].Comparison
	if c.Steps != 20 || c.Outside != 0 || c.NotComparable != nil || c.EvalBefore == nil || c.EvalLoss == nil ||
		r.EvalBefore == nil || *r.EvalBefore != c.EvalBefore.Run {
		t.Errorf("%+v", c)
	}
	// Before the first step there is no chance in it: the adapter adds nothing.
	if d := math.Abs(c.EvalBefore.Run - c.EvalBefore.Mean); d > 1e-4 {
		t.Errorf("held-out loss before the first step %.7f, PEFT %.7f", c.EvalBefore.Run, c.EvalBefore.Mean)
	}
	if d := math.Abs(r.FirstLoss - 10.2086218); d > 1e-4 { // loss.mean of the first step: the learning rate is 0 there
		t.Errorf("loss of the first step %.7f", r.FirstLoss)
	}
	if !exists(s.OutputDir, ReferenceCurveFile) {
		t.Errorf("no %s", ReferenceCurveFile)
	}
	t.Logf("%s", r.Expect[1].Got)
	_, reference := readStoriesReference(t)
	for lr, want := range map[float64]string{1e-3: "above the reference's", 3e-3: "below the reference's"} {
		other := referenceSpec(t)
		other.Training.LearningRate = lr
		r, err := Start(context.Background(), other, Env{})
		if !errors.As(err, new(*Missed)) || !strings.Contains(err.Error(),
			fmt.Sprintf("not comparable: training.learning_rate is %v, in the reference 0.002", lr)) {
			t.Errorf("learning rate %v: %v", lr, err)
		}
		// The numbers alone tell it too.
		o := Outcome{Losses: r.Losses, EvalLoss: r.EvalLoss, Reference: &reference, Subject: reference.Subject}
		judged, err := Expect{Reference: "x"}.Judge(o)
		if err != nil {
			t.Fatal(err)
		}
		miss := MissedOf(judged)
		if miss == nil || strings.Count(miss.Error(), want) != 3 ||
			!strings.Contains(miss.Error(), "the held-out loss at the end is ") {
			t.Errorf("learning rate %v: %v, want %s", lr, miss, want)
		}
	}
}

// TestRunOfOtherStepsOrSeed: a run of fewer steps, or of other rows, is none that the reference tells of, and says so
// before it trains.
func TestRunOfOtherStepsOrSeed(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(s *Spec){
		"the run has 2 steps, the reference 20": func(s *Spec) { s.Training.MaxSteps = 2 },
		"its validation rows are others": func(s *Spec) {
			s.Training.MaxSteps, s.Dataset.ValPath = 2, golden.Rows(t)
		},
	} {
		s := referenceSpec(t)
		edit(&s)
		s.Expect.EvalLossDecrease, s.Training.EvalOnStart = 0, false
		var said []string
		env := Env{}
		env.Log = func(line string) { said = append(said, line) }
		r, err := Start(context.Background(), s, env)
		if !errors.As(err, new(*Missed)) || !strings.Contains(err.Error(), "not comparable: the run has 2 steps") ||
			!strings.Contains(err.Error(), want) || r.AdapterDir == "" {
			t.Errorf("%v\nwant %s", err, want)
		}
		if !strings.Contains(strings.Join(said, "\n"),
			"expect.reference: this run will fail its comparison with testdata/stories_reference.json: the run has "+
				"2 steps") {
			t.Errorf("said %q", said)
		}
	}
	s := referenceSpec(t)
	s.Expect.Reference = filepath.Join(t.TempDir(), "none.json")
	if _, err := Start(context.Background(), s, Env{}); err == nil ||
		!strings.HasPrefix(err.Error(), "expect.reference: read ") || exists(s.OutputDir, MetricsFile) {
		t.Errorf("error %v", err)
	}
}

// TestRecipe: what another program gets is what the run trains.
func TestRecipe(t *testing.T) {
	_, reference := readStoriesReference(t)
	r, err := NewRecipe(context.Background(), referenceSpec(t), Env{})
	if err != nil {
		t.Fatal(err)
	}
	if why := r.difference(reference.Subject); why != nil {
		t.Error(why)
	}
	seen := map[string]bool{}
	for i, step := range r.Train {
		rows, tokens, trained := step.Count()
		if key := fmt.Sprint(step.Batches); rows != 1 || seen[key] || trained < 1 || trained >= tokens || tokens > 256 {
			t.Errorf("step %d: %d rows, %d tokens, %d trained, twice %v", i+1, rows, tokens, trained, seen[key])
		} else {
			seen[key] = true
		}
	}
	if len(r.Train) != 20 || r.Train[0].LearningRate != 0 || r.Train[2].LearningRate != 2e-3 || len(r.Validation) == 0 {
		t.Errorf("%d steps, %d validation rows", len(r.Train), len(r.Validation))
	}
	s := referenceSpec(t)
	s.Dataset.Streaming, s.Dataset.ValPath = true, ""
	if _, err := NewRecipe(context.Background(), s, Env{}); err == nil ||
		!strings.HasPrefix(err.Error(), "dataset.streaming: ") {
		t.Errorf("a stream: %v", err)
	}
}

// TestEvalOnStart: the evaluation before the first step is a line of its own, is no candidate for the best checkpoint,
// and a resumed run does not repeat it.
func TestEvalOnStart(t *testing.T) {
	t.Parallel()
	whole := testSpec(t, 3)
	whole.Dataset.ValSplit, whole.Training.EvalOnStart, whole.Training.SaveSteps = 0.05, true, 2
	watcher := &evalWatcher{}
	r := mustStart(t, whole, Env{Observers: []Observer{watcher}})
	if got := strings.Join(watcher.seen, " "); got != "0:1/4 0:2/4 0:3/4 0:4/4 3:1/4 3:2/4 3:3/4 3:4/4" {
		t.Fatalf("observers saw %s", got)
	}
	if lines := evalLosses(t, whole.OutputDir); r.EvalBefore == nil || *r.EvalLoss >= *r.EvalBefore ||
		!strings.HasPrefix(lines, `0 {"step":0,`) {
		t.Errorf("before %v, after %v\n%s", r.EvalBefore, *r.EvalLoss, lines)
	}
	plain := testSpec(t, 3)
	plain.Dataset.ValSplit = 0.05
	if p := mustStart(t, plain, Env{}); fmt.Sprint(p.Losses) != fmt.Sprint(r.Losses) ||
		*p.EvalLoss != *r.EvalLoss || p.EvalBefore != nil {
		t.Errorf("the evaluation changes the run: %v, %v", p.Losses, r.Losses)
	}
	for name, at := range map[string]struct{ step, batch, done int }{"in the first evaluation": {0, 2, 0},
		"in the last": {3, 1, 3}} {
		t.Run(name, func(t *testing.T) {
			parts := whole
			parts.OutputDir = filepath.Join(t.TempDir(), "run")
			w := &evalWatcher{step: at.step, batch: at.batch, stop: make(chan struct{})}
			if r := mustStart(t, parts, Env{Observers: []Observer{w}, Interrupted: w.stop}); !r.Stopped ||
				r.Steps != at.done {
				t.Fatalf("%+v", r)
			}
			parts.Training.Resume, parts.Expect.EvalLossDecrease = "auto", 0.001
			again := mustStart(t, parts, Env{})
			if fmt.Sprint(again.Losses) != fmt.Sprint(r.Losses) || again.EvalBefore == nil ||
				*again.EvalBefore != *r.EvalBefore || !again.Expect[0].Met {
				t.Errorf("%+v", again)
			}
			if got, want := evalLosses(t, parts.OutputDir), evalLosses(t, whole.OutputDir); got != want {
				t.Errorf("lines\n%swant\n%s", got, want)
			}
		})
	}
}
