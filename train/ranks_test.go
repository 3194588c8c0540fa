package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/ranks"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/step"
)

// oneWorker gives every rank a thread of its own, so that plans are of one size at every number of ranks.
var oneWorker = Env{Env: session.Env{Workers: 1}}

// over is a run spread over so many ranks, its window of micro-batches the same.
func over(t testing.TB, s Spec, world int) Spec {
	t.Helper()
	if s.Training.GradientAccumulationSteps%world != 0 {
		t.Fatalf("%d micro-batches over %d ranks", s.Training.GradientAccumulationSteps, world)
	}
	s.Devices, s.OutputDir = fmt.Sprint(world), filepath.Join(t.TempDir(), fmt.Sprint("ranks ", world))
	s.Training.GradientAccumulationSteps /= world
	return s
}

// sameRun compares what runs left bit for bit: adapter, optimizer, losses and what the checkpoint says of the rows.
func sameRun(t testing.TB, what, want, got string) {
	t.Helper()
	steps, err := checkpoint.Steps(want)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%s: checkpoints %v: %v", what, steps, err)
	}
	last := checkpoint.Name(steps[len(steps)-1])
	for _, name := range []string{adapter.WeightsFile, adapter.ConfigFile, filepath.Join(last, optimizerFile),
		filepath.Join(last, adapter.WeightsFile)} {
		if !bytes.Equal(golden.ReadFile(t, want, name), golden.ReadFile(t, got, name)) {
			t.Errorf("%s: %s is another", what, name)
		}
	}
	if a, b := logLosses(t, want), logLosses(t, got); a != b {
		t.Errorf("%s: metrics differ:\n%s\n%s", what, a, b)
	}
	a, aerr := replay.ReadManifest(want)
	b, berr := replay.ReadManifest(got)
	if err := errors.Join(aerr, berr); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.Evidence) != fmt.Sprint(b.Evidence) || a.Losses != b.Losses || a.Data != b.Data {
		t.Errorf("%s: the manifests differ: %+v and %+v", what, a, b)
	}
}

// sameOverRanksAndResume compares a finished run bit for bit with the same run over two and over four ranks, and with
// one that is interrupted after some steps, between two lines of metrics.jsonl, and resumed: files, and the numbers of
// all lines about steps and evaluations.
func sameOverRanksAndResume(t *testing.T, whole Spec, interrupted int) {
	t.Helper()
	lines := numberLines(t, whole, whole.OutputDir)
	same := func(what string, s Spec) {
		t.Helper()
		sameRun(t, what, whole.OutputDir, s.OutputDir)
		if got := numberLines(t, whole, s.OutputDir); !slices.Equal(got, lines) {
			t.Errorf("%s:\n%s, want\n%s", what, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
	world := 2
	if whole.Dataset.Packing {
		world = 4
	}
	ranks := over(t, whole, world)
	mustStart(t, ranks, oneWorker)
	same(fmt.Sprintf("%s on %d ranks", whole.Training.Objective, world), ranks)
	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "parts")
	stop := stopping(interrupted)
	mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	parts.Training.Resume = "auto"
	mustStart(t, parts, oneWorker)
	same(whole.Training.Objective+" resumed", parts)
}

// numberLines returns of each line of a run's metrics.jsonl about a step or an evaluation the step, the loss and the
// numbers of the objective.
func numberLines(t *testing.T, s Spec, dir string) (all []string) {
	t.Helper()
	names := []string{"step", "loss", "grad_norm", "eval_loss"}
	own := objective.Of(s.Training.Objective, s.Objectives).Numbers()
	for _, n := range own {
		names = append(names, n.Name, "eval_"+n.Name)
	}
	seen := 0
	for _, text := range fileLines(t, filepath.Join(dir, MetricsFile)) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line["loss"] == nil && line["eval_loss"] == nil {
			continue
		}
		var shown strings.Builder
		for i, name := range names {
			if v, ok := line[name]; ok {
				fmt.Fprintf(&shown, "%s %v ", name, v)
				if i > 3 {
					seen++
				}
			}
		}
		all = append(all, shown.String())
	}
	if len(all) == 0 || len(own) > 0 && seen == 0 {
		t.Fatalf("%d lines with %d numbers of the objective", len(all), seen)
	}
	return all
}

// TestRanksAreAccumulation: N ranks with accumulation A train, byte for byte, what one rank does with N x A, at every
// number of ranks: also with epochs whose last window is short, packed rows, dropout, other optimizers and storage, and
// evaluation.
func TestRanksAreAccumulation(t *testing.T) {
	for name, c := range map[string]struct {
		window int
		worlds []int
		edit   func(s *Spec)
	}{
		"lora":    {8, []int{2, 4, 8}, func(s *Spec) { s.Adapter, s.Quantization = "lora", nil }},
		"odd":     {6, []int{3, 6}, func(s *Spec) { s.LoRA.Dropout = 0.1 }},
		"five":    {5, []int{5}, func(s *Spec) { s.Training.MaxGradNorm = 0.01 }},
		"seven":   {7, []int{7}, func(s *Spec) { s.Training.Optimizer, s.Training.LearningRate = "lion", 1e-4 }},
		"8 bits":  {4, []int{2, 4}, func(s *Spec) { s.Training.Optimizer, s.LoRA.R = "adamw_8bit", 64 }},
		"packed":  {4, []int{2, 4}, func(s *Spec) { s.Dataset.Packing = true }},
		"batches": {4, []int{2, 4}, func(s *Spec) { s.Training.BatchSize, s.LoRA.Dropout = 2, 0.1 }},
		"evaluated": {4, []int{4}, func(s *Spec) {
			s.Dataset.ValSplit, s.Training.EvalSteps,
				s.Training.EvalOnStart = 0.1, 2, true
		}},
		"eva": {4, []int{2}, func(s *Spec) {
			s.LoRA.InitLoRAWeights, s.LoRA.R, s.LoRA.TargetModules = "eva", 2, adapter.Targets{"q_proj", "v_proj"}
		}},
		"lora+":  {4, []int{2}, func(s *Spec) { s.LoRA.LoRAPlusLRRatio, s.Training.GradNormSteps = 4, 1 }},
		"global": {4, []int{2}, func(s *Spec) { s.Dataset.Shuffle = false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := testSpec(t, 4)
			one.Training.GradientAccumulationSteps, one.Training.BatchSize = c.window, 1
			// the third step of an epoch has one micro-batch.
			one.Dataset.Path = fewRows(t, one.Dataset.Path, 2*c.window+1)
			c.edit(&one)
			want := mustStart(t, one, oneWorker)
			for _, world := range c.worlds {
				s := over(t, one, world)
				if name == "global" {
					s.Training.GradientAccumulationSteps, s.Training.GlobalBatchSize = 1, c.window
				}
				got := mustStart(t, s, oneWorker)
				if got.Steps != want.Steps || got.Tokens != want.Tokens ||
					want.EvalLoss != nil && (*got.EvalLoss != *want.EvalLoss || *got.EvalBefore != *want.EvalBefore) {
					t.Errorf("%d ranks: %+v, want %+v", world, got, want)
				}
				sameRun(t, fmt.Sprintf("%d ranks", world), one.OutputDir, s.OutputDir)
				plan, err := PlanRun(context.Background(), s, oneWorker)
				if err != nil || plan.TotalBytes != got.HeldBytes || plan.Ranks != world {
					t.Errorf("%d ranks hold %d bytes each, the plan says %d of %d ranks: %v", world, got.HeldBytes,
						plan.TotalBytes, plan.Ranks, err)
				}
			}
		})
	}
}

// TestSumIsOfWholeGradients: the gradient of two micro-batches is the sum of the gradients that each has alone, bit for
// bit. GEMMs that add a second micro-batch to the first one's result, product by product, give other bits: the reason
// for Apart.
func TestSumIsOfWholeGradients(t *testing.T) {
	b, init := stories(t), golden.Path(t, "train/init")
	cfg := peftConfigOf(t, init)
	batches := golden.Open(t, golden.Path(t, "train/batches.safetensors"))
	ids, labels := batches.Ints("input_ids"), batches.Ints("labels")
	const T = 512 // more than GEMMs on a CPU sum up at a time
	gradient := func(sum step.Summing, micros ...int) (all []float32) {
		on := graph.NewCPU(1)
		shape := session.Shape{Tokens: T, Sequences: 1, MaxLen: T}
		planned, err := step.Plan(network(t, b, kernel.F32, nil, &cfg), shape, Default().Step(crossEntropy), sum, on)
		if err != nil {
			t.Fatal(err)
		}
		ts := bound(t, on, b, planned, Default(), init)
		run := func(segments ...string) {
			if err := ts.run.Run(segments...); err != nil {
				t.Fatal(err)
			}
		}
		run(step.SegmentWindow)
		if !sum.Apart {
			run(step.SegmentBegin)
		}
		for _, i := range micros {
			ts.fill(t, ids[i*T:(i+1)*T], labels[i*T:(i+1)*T], T)
			ts.set(t, "loss scale", 0.01)
			if sum.Apart {
				run(step.SegmentBegin)
			}
			run(step.SegmentMicro, step.SegmentSum)
		}
		for _, p := range planned.Trained.Params {
			x, err := ts.memory.Tensor(step.GradientName(p.Name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x.F32()...)
		}
		return all
	}
	want := gradient(step.Summing{}, 0)
	for i, g := range gradient(step.Summing{}, 1) {
		want[i] += g
	}
	if !slices.Equal(gradient(step.SummingOf(2, 1), 0, 1), want) {
		t.Error("apart, the sum is another")
	}
	fused, other := gradient(step.Summing{}, 0, 1), 0
	for i := range want {
		if fused[i] != want[i] {
			other++
		}
	}
	if t.Logf("fused: %d of %d numbers have other bits", other, len(want)); other == 0 {
		t.Error("fused, the sum is the same: there is no need to keep micro-batches apart")
	}
}

// TestStepsAreEven: the loader of a run makes the batches of a step even, over all ranks, and a device holds less for
// it.
func TestStepsAreEven(t *testing.T) {
	s := testSpec(t, 4)
	s.Training.BatchSize, s.Training.GradientAccumulationSteps, s.Dataset.MaxLength = 4, 8, 512
	p, err := prepare(context.Background(), s, oneWorker)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // read only
	if state := p.loader.State(); state.Step != 8 || state.TokenCost != 6*p.Base.Config.HiddenSize {
		t.Errorf("the cursor is %+v", state)
	}
	came, err := p.data.TrainLoader(4)
	if err != nil {
		t.Fatal(err)
	}
	came.ChooseBudgets(4*8, dataset.MaxBudgets)
	even, largest := slices.Max(p.loader.Shape().Budgets), slices.Max(came.Shape().Budgets)
	if t.Logf("the largest micro-batch has %d tokens, as they come %d", even, largest); even >= largest {
		t.Error("that is not less")
	}
}

// fewRows is a file of the first rows of another.
func fewRows(t testing.TB, path string, n int) string {
	t.Helper()
	lines := bytes.SplitAfterN(golden.ReadFile(t, path), []byte("\n"), n+1)
	few := filepath.Join(t.TempDir(), "few.jsonl")
	if err := os.WriteFile(few, bytes.Join(lines[:n], nil), 0o644); err != nil {
		t.Fatal(err)
	}
	return few
}

// TestResumeOnOtherRanks: a run that is stopped on some ranks resumes on others to the bytes of one that was left
// alone; with another window it is refused, and told which accumulation keeps it.
func TestResumeOnOtherRanks(t *testing.T) {
	t.Parallel()
	whole := testSpec(t, 6)
	whole.Training.GradientAccumulationSteps, whole.Training.BatchSize, whole.LoRA.Dropout = 4, 1, 0.05
	mustStart(t, whole, oneWorker)
	for _, worlds := range [][]int{{4, 2, 1}, {1, 4}} {
		dir := filepath.Join(t.TempDir(), "run")
		var s Spec
		for i, world := range worlds {
			s = over(t, whole, world)
			s.OutputDir = dir
			env := oneWorker
			if i > 0 {
				s.Training.Resume = "auto"
			}
			if i < len(worlds)-1 {
				stop := stopping(2 * (i + 1))
				env.Observers, env.Interrupted = []Observer{stop}, stop.stop
			}
			r := mustStart(t, s, env)
			if last := i == len(worlds)-1; r.Stopped == last {
				t.Fatalf("%v: part %d: stopped %v after step %d", worlds, i, r.Stopped, r.Steps)
			}
		}
		sameRun(t, fmt.Sprint(worlds), whole.OutputDir, dir)
		m, err := replay.ReadManifest(dir)
		if err != nil || len(m.Plans) != len(worlds) {
			t.Errorf("%v: plans %+v: %v", worlds, m.Plans, err)
		}
		if verdict, err := Verify(context.Background(), s, oneWorker, m, 3); err != nil || !verdict.Equal {
			t.Errorf("%v: verified: %+v, %v", worlds, verdict, err)
		}
	}
	other := over(t, whole, 2)
	other.OutputDir, other.Training.Resume, other.Training.GradientAccumulationSteps,
		other.Training.MaxSteps = whole.OutputDir, "auto", 1, 8
	_, err := Start(context.Background(), other, oneWorker)
	const want = "a step had 4 micro-batches, it has 2 now (2 devices x gradient_accumulation_steps 1): with --set " +
		"training.gradient_accumulation_steps=2 it goes on to the same bytes"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRanksInterruptedEvaluation: an interrupt ends an evaluation on all ranks behind the same round, and the resumed
// run makes up for it.
func TestRanksInterruptedEvaluation(t *testing.T) {
	whole := testSpec(t, 4)
	whole.Training.GradientAccumulationSteps, whole.Training.BatchSize = 2, 1
	whole.Dataset.ValSplit, whole.Training.EvalSteps = 0.1, 2
	want := mustStart(t, whole, oneWorker)
	parts := over(t, whole, 2)
	env := oneWorker
	w := &evalWatcher{step: 2, batch: 2, stop: make(chan struct{})}
	env.Observers, env.Interrupted = []Observer{w}, w.stop
	if r := mustStart(t, parts, env); !r.Stopped || r.Steps != 2 || r.EvalLoss != nil {
		t.Fatalf("it was not stopped in its evaluation: %+v", r)
	}
	if got := strings.Join(w.seen, " "); !strings.HasPrefix(got, "2:2/") || !strings.Contains(got, " 2:4/") ||
		strings.Contains(got, " 2:6/") {
		t.Errorf("the evaluation went %s", got)
	}
	parts.Training.Resume = "auto"
	if got := mustStart(t, parts, oneWorker); *got.EvalLoss != *want.EvalLoss {
		t.Errorf("evaluation %v, want %v", *got.EvalLoss, *want.EvalLoss)
	}
	if a, b := evalLosses(t, whole.OutputDir), evalLosses(t, parts.OutputDir); a != b {
		t.Errorf("evaluations\n%s, want\n%s", b, a)
	}
	if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
		t.Error("the resumed run trains another adapter")
	}
}

// failing is an observer whose step fails.
type failing struct {
	Silent
	at int
}

func (f failing) Step(s StepInfo) error {
	if s.Step == f.at {
		return errors.New("no space for the plot")
	}
	return nil
}

// TestRanksEndTogether: where a rank fails, all end with its error, and nothing is left running.
func TestRanksEndTogether(t *testing.T) {
	before := runtime.NumGoroutine()
	s := testSpec(t, 6)
	s.Devices = "3"
	env := oneWorker
	env.Observers = []Observer{failing{at: 2}}
	r, err := Start(context.Background(), s, env)
	if err == nil || err.Error() != "no space for the plot" || r.Steps != 2 {
		t.Errorf("after step %d: %v", r.Steps, err)
	}
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

// processes is a run whose ranks are processes of their own, with a configuration each.
func processes(t *testing.T, specs ...Spec) []error {
	t.Helper()
	groups := ranks.NewLocal(len(specs))
	problems := make([]error, len(specs))
	var all sync.WaitGroup
	for i, s := range specs {
		all.Go(func() {
			env := oneWorker
			env.Groups = groups[i : i+1]
			_, problems[i] = Start(context.Background(), s, env)
		})
	}
	all.Wait()
	return problems
}

// TestRanksAreCompared: ranks of two processes that were started otherwise are refused, and the error names what
// differs.
func TestRanksAreCompared(t *testing.T) {
	same := testSpec(t, 3)
	if err := errors.Join(processes(t, same, same)...); err != nil {
		t.Fatal(err)
	}
	one := over(t, same, 1)
	one.Training.GradientAccumulationSteps = 2
	mustStart(t, one, oneWorker)
	sameRun(t, "two processes", one.OutputDir, same.OutputDir)
	for want, edit := range map[string]func(s *Spec){
		"training.learning_rate is 0.001 there and 0.002 on rank 1": func(s *Spec) { s.Training.LearningRate = 0.002 },
		"seed is 42 there and 43 on rank 1":                         func(s *Spec) { s.Seed = 43 },
		"the rows is ": func(s *Spec) {
			s.Dataset.Path = fewRows(t,
				s.Dataset.Path, 20)
		},
	} {
		a, b := over(t, same, 1), over(t, same, 1)
		edit(&b)
		for rank, err := range processes(t, a, b) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v, want %s", rank, err, want)
			}
		}
	}
}

func TestDevices(t *testing.T) {
	for text, want := range map[string]string{"": "1 []", "1": "1 []", "3": "3 []", "all": "0 []", "[2]": "1 [2]",
		"[0, 2]": "2 [0 2]"} {
		if n, which, err := parseDevices(text); err != nil || fmt.Sprint(n, " ", which) != want {
			t.Errorf("%q: %d %v: %v, want %s", text, n, which, err, want)
		}
	}
	for text, want := range map[string]string{"0": "is not all", "-1": "is not all", "65": "is not all",
		"[]": "is not all", "[0": "is not all", "[0,0]": "twice", "two": "is not all", "[1,x]": "is not all"} {
		if _, _, err := parseDevices(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	s := testSpec(t, 1)
	s.Device, s.Devices = "cpu", "[0,1]"
	if _, err := Start(context.Background(), s, oneWorker); err == nil ||
		err.Error() != "devices: [0,1] names GPUs, and device: cpu is the CPU" {
		t.Error(err)
	}
	s.Devices, s.Training.GlobalBatchSize = "3", 4
	if _, err := Start(context.Background(), s, oneWorker); err == nil ||
		!strings.Contains(err.Error(), "4 rows are not whole batches of 2 on each of 3 devices") {
		t.Error(err)
	}
}

// TestPlanOfRanks: ranks on one CPU share its cores and its memory, in what is planned as in the run.
func TestPlanOfRanks(t *testing.T) {
	s := testSpec(t, 1)
	s.Device, s.Devices, s.Training.BatchSize = "cpu", "3", 1
	r := mustStart(t, s, Env{})
	plan, err := PlanRun(context.Background(), s, Env{})
	if err != nil || plan.TotalBytes != r.HeldBytes {
		t.Errorf("each of 3 ranks holds %d bytes, the plan says %d: %v", r.HeldBytes, plan.TotalBytes, err)
	}
	s.Devices = "1"
	if one, err := PlanRun(context.Background(), s, Env{}); err != nil || plan.Limit > one.Limit/2 ||
		plan.Limit < one.Limit/4 {
		t.Errorf("each of 3 ranks may hold %d bytes, one alone %d: %v", plan.Limit, one.Limit, err)
	}
}
