package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
)

// testSpec is a small QLoRA run on the model and rows that the binary carries.
func testSpec(t testing.TB, steps int) Spec {
	t.Helper()
	q := quant.Default()
	s := DefaultSpec()
	s.BaseModel, s.Adapter, s.Quantization = golden.StoriesDir(t), "qlora", &q
	s.LoRA.TargetModules = adapter.Targets{adapter.AllLinear}
	s.Dataset.Path, s.Dataset.Format = golden.Rows(t), "completion"
	s.Dataset.Fields = map[string]string{"prompt": "question", "completion": "answer"}
	s.Dataset.MaxLength = 128
	s.Training.MaxSteps, s.Training.BatchSize, s.Training.LearningRate = steps, 2, 1e-3
	s.OutputDir = filepath.Join(t.TempDir(), "run")
	return s
}

func mustStart(t testing.TB, s Spec, env Env) Result {
	t.Helper()
	r, err := Start(context.Background(), s, env)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunLearnsAndHoldsItsPlan(t *testing.T) {
	s := testSpec(t, 30)
	s.Dataset.ValSplit, s.Training.EvalSteps = 0.05, 10
	plan, err := PlanRun(context.Background(), s, Env{})
	if err != nil {
		t.Fatal(err)
	}
	r := mustStart(t, s, Env{Config: []byte("seed: 42\n")})
	if r.HeldBytes != plan.TotalBytes {
		t.Errorf("the run holds %d bytes, the plan says %d", r.HeldBytes, plan.TotalBytes)
	}
	if _, _, fall := LossFall(r.Losses); fall < 0.1 {
		t.Errorf("the loss falls by %.3f in 30 steps: %v", fall, r.Losses)
	}
	if r.EvalLoss == nil || !(*r.EvalLoss < r.FirstLoss) {
		t.Errorf("evaluation loss %v, first training loss %v", r.EvalLoss, r.FirstLoss)
	}
	lines := strings.Split(strings.TrimSpace(string(golden.ReadFile(t, s.OutputDir, MetricsFile))), "\n")
	if len(lines) != 30+3+1 {
		t.Errorf("%d lines of metrics, want 30 steps, 3 evaluations and the end", len(lines))
	}
	// The adapter that was saved gives the evaluation's loss again.
	e, err := infer.Evaluate(context.Background(), s.Evaluation(s.OutputDir), session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	golden.Near(t, "evaluation of the saved adapter", e.Loss, *r.EvalLoss, 1e-6)
	if _, err := Start(context.Background(), s, Env{}); err == nil ||
		!strings.Contains(err.Error(), "holds a run already") {
		t.Errorf("a second run into the same folder: %v", err)
	}
}

func TestSameSpecGivesTheSameBytes(t *testing.T) {
	a, b := testSpec(t, 6), testSpec(t, 6)
	a.LoRA.Dropout, b.LoRA.Dropout = 0.1, 0.1
	mustStart(t, a, Env{Env: session.Env{Workers: 1}})
	mustStart(t, b, Env{Env: session.Env{Workers: 3}})
	if !bytes.Equal(golden.ReadFile(t, a.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, b.OutputDir, adapter.WeightsFile)) {
		t.Error("one thread and three threads train different adapters")
	}
	c := testSpec(t, 6)
	c.LoRA.Dropout, c.Seed = 0.1, 43
	mustStart(t, c, Env{})
	if bytes.Equal(golden.ReadFile(t, a.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, c.OutputDir, adapter.WeightsFile)) {
		t.Error("another seed trains the same adapter")
	}
}

// stopAfter interrupts a run after n steps.
type stopAfter struct {
	Silent
	n    int
	stop chan struct{}
}

func stopping(n int) *stopAfter { return &stopAfter{n: n, stop: make(chan struct{})} }

func (s *stopAfter) Step(i StepInfo) error {
	if i.Step == s.n {
		close(s.stop)
	}
	return nil
}

func TestResumedRunEqualsUninterrupted(t *testing.T) {
	t.Parallel()
	whole := testSpec(t, 10)
	whole.LoRA.Dropout = 0.05
	whole.Training.GradientAccumulationSteps, whole.Training.LoggingSteps = 2, 3
	want := mustStart(t, whole, Env{})

	parts := whole
	parts.OutputDir = filepath.Join(t.TempDir(), "run")
	stop := stopping(4)
	r := mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop})
	if !r.Stopped || r.Steps != 4 {
		t.Fatalf("stopped %v after %d steps, want 4", r.Stopped, r.Steps)
	}
	parts.Training.Resume = "auto"
	r = mustStart(t, parts, Env{})
	if r.Resumed != 4 || r.Steps != 10 {
		t.Fatalf("resumed after %d, ended at %d", r.Resumed, r.Steps)
	}
	for i, l := range want.Losses {
		if r.Losses[i] != l {
			t.Errorf("step %d: loss %v, uninterrupted %v", i+1, r.Losses[i], l)
		}
	}
	if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, parts.OutputDir, adapter.WeightsFile)) {
		t.Error("the resumed run trains another adapter")
	}
	if a, b := logLosses(t, whole.OutputDir), logLosses(t, parts.OutputDir); a != b {
		t.Errorf("metrics differ:\n%s\n%s", a, b)
	}
}

func logLosses(t testing.TB, dir string) string {
	var out strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(string(golden.ReadFile(t, dir, MetricsFile))), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"step", "epoch", "loss", "grad_norm", "learning_rate",
			"num_input_tokens_seen", "train_loss"} {
			raw, _ := json.Marshal(m[key])
			out.Write(append(raw, ' '))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// TestKilledRunResumes kills a run with SIGKILL while it saves after every step, resumes it, and compares
// with a run that was left alone.
func TestKilledRunResumes(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("TRAINER_TEST_RUN"); dir != "" { // the child
		s := testSpec(t, 12)
		s.OutputDir, s.Training.SaveSteps, s.Training.Resume = dir, 1, "auto"
		mustStart(t, s, Env{})
		return
	}
	whole := testSpec(t, 12)
	mustStart(t, whole, Env{})
	dir := filepath.Join(t.TempDir(), "run")
	kills := 0
	for try := 0; ; try++ {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledRunResumes$")
		// a killed child leaves its folders.
		child.Env = append(os.Environ(), "TRAINER_TEST_RUN="+dir, "TMPDIR="+t.TempDir())
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if try < 4 {
			waitForCheckpoint(dir, 2*try+1)
			child.Process.Kill() //nolint:errcheck // it may have ended
			// as if killed while it writes; the second is not there before the end.
			for _, name := range []string{MetricsFile, replay.ManifestFile} {
				// the end looks for it.
				os.WriteFile(filepath.Join(dir, "."+name+".12"+strconv.Itoa(try)), []byte("x"), 0o600) //nolint:errcheck
			}
		}
		if err := child.Wait(); err == nil {
			break
		} else if kills++; try >= 4 {
			t.Fatalf("a run that nobody killed failed: %v", err)
		}
	}
	if kills == 0 {
		t.Fatal("no run was killed")
	}
	if !bytes.Equal(golden.ReadFile(t, whole.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, dir, adapter.WeightsFile)) {
		t.Error("the killed and resumed run trains another adapter")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*.1*")); len(left) > 0 || err != nil {
		t.Errorf("killed processes leave %q, %v", left, err)
	}
}

// waitForCheckpoint returns once a step is saved or being saved, or the run has ended.
func waitForCheckpoint(dir string, step int) {
	for range 10000 {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.Contains(e.Name(), checkpoint.Name(step)) || e.Name() == adapter.WeightsFile {
				return
			}
		}
		sleepBriefly()
	}
}

// TestAccumulationEqualsLargeBatch has rows of unequal trained tokens.
func TestAccumulationEqualsLargeBatch(t *testing.T) {
	one, four := testSpec(t, 5), testSpec(t, 5)
	one.Training.BatchSize, one.Training.GradientAccumulationSteps = 4, 1
	four.Training.BatchSize, four.Training.GradientAccumulationSteps = 1, 4
	a, b := mustStart(t, one, Env{}), mustStart(t, four, Env{})
	for i := range a.Losses {
		golden.Near(t, "relative loss", b.Losses[i]/a.Losses[i], 1, 1e-6)
	}
}

// TestPackedRowsDoNotSeeEachOther compares a packed batch's loss with the same rows unpacked.
func TestPackedRowsDoNotSeeEachOther(t *testing.T) {
	padded := testSpec(t, 1)
	padded.Dataset.Shuffle = false
	packed := padded
	packed.OutputDir = filepath.Join(t.TempDir(), "run")
	packed.Dataset.Packing, packed.Dataset.MaxLength, padded.Dataset.MaxLength = true, 512, 512
	few := filepath.Join(t.TempDir(), "few.jsonl")
	rows := bytes.SplitAfterN(golden.ReadFile(t, padded.Dataset.Path), []byte("\n"), 5)
	if err := os.WriteFile(few, bytes.Join(rows[:4], nil), 0o644); err != nil {
		t.Fatal(err)
	}
	padded.Dataset.Path, packed.Dataset.Path = few, few
	padded.Training.BatchSize = 4
	packed.Training.BatchSize = 4
	a, b := mustStart(t, padded, Env{}), mustStart(t, packed, Env{})
	golden.Near(t, "relative loss", b.Losses[0]/a.Losses[0], 1, 1e-6)
}

func TestStepAllocatesNothing(t *testing.T) {
	p, err := prepare(context.Background(), testSpec(t, 3), Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := os.MkdirAll(p.spec.OutputDir, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := p.start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer r.end(nil)
	w, err := r.nextWindow()
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(3, func() {
		if err := r.pipeline.Gradients(w.Window); err != nil {
			t.Fatal(err)
		}
		if err := r.pipeline.Update(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.pipeline.Numbers(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

func TestNotFiniteLossStops(t *testing.T) { notFiniteLossStops(t, "cpu") }

// notFiniteLossStops also compares what the run saved with the checkpoint of a run that ends before the step
// that went wrong: the numbers of that step are read after its update was queued.
func notFiniteLossStops(t *testing.T, device string) {
	t.Helper()
	s := testSpec(t, 20)
	s.Training.LearningRate, s.Training.LRScheduler, s.Training.MaxGradNorm, s.Device = 1e30, "constant", 0, device
	r, err := Start(context.Background(), s, Env{})
	if !errors.Is(err, ErrNotFinite) {
		t.Fatalf("got %v, want ErrNotFinite", err)
	}
	if !strings.Contains(err.Error(), "gsm8k_300.jsonl:") || !strings.Contains(err.Error(), "checkpoint-") {
		t.Errorf("the error names neither rows nor a saved state: %v", err)
	}
	if len(r.Losses) == 0 {
		t.Fatal("the first step went wrong: nothing to compare")
	}
	before := s
	before.OutputDir, before.Training.MaxSteps = filepath.Join(t.TempDir(), "before"), len(r.Losses)
	mustStart(t, before, Env{})
	name := checkpoint.Name(len(r.Losses))
	for _, file := range []string{adapter.WeightsFile, optimizerFile} {
		if !bytes.Equal(golden.ReadFile(t, s.OutputDir, name, file), golden.ReadFile(t, before.OutputDir, name, file)) {
			t.Errorf("%s of %s is not the state before the step", file, name)
		}
	}
	lines := func(dir string) int { return bytes.Count(golden.ReadFile(t, dir, MetricsFile), []byte(`"grad_norm"`)) }
	if got, want := lines(s.OutputDir), lines(before.OutputDir); got != want {
		t.Errorf("%d lines of steps in the metrics, want %d", got, want)
	}
}

// TestMeanOfRowMeansIsDetected shows that the tolerance of the accumulation test detects the usual
// mistake: PEFT's first batch under both.
func TestMeanOfRowMeansIsDetected(t *testing.T) {
	var ref struct {
		Start struct {
			Right []float64 `json:"token_weighted"`
			Wrong []float64 `json:"mean_of_row_means_WRONG"`
		} `json:"start_weights_loss_per_batch"`
	}
	golden.JSON(t, golden.Path(t, "train/summary.json"), &ref)
	var accumulated curve
	golden.JSON(t, golden.Path(t, "train/lora_accumulate/curve.json"), &accumulated)
	golden.Near(t, "first loss", accumulated.Loss[0]/ref.Start.Right[0], 1, 1e-6)
	for i, w := range ref.Start.Wrong {
		if math.Abs(w-ref.Start.Right[i])/w < 2*1e-4 {
			t.Errorf("batch %d: the wrong mean %v is too near the right one %v to be detected", i,
				w, ref.Start.Right[i])
		}
	}
}

func sleepBriefly() { time.Sleep(time.Millisecond) }

// TestRecomputedRunEqualsKept trains with each kind of gradient checkpointing: the same bytes, in less memory.
func TestRecomputedRunEqualsKept(t *testing.T) { recomputedRunEqualsKept(t, "cpu", 2) }

func recomputedRunEqualsKept(t *testing.T, device string, rows int) {
	var adapters [][]byte
	var held []int64
	for _, mode := range []string{"none", "selective", "full", "offload"} {
		s := testSpec(t, 4)
		s.Training.GradientCheckpointing, s.LoRA.Dropout, s.Device, s.Training.BatchSize = mode, 0.1, device, rows
		held = append(held, mustStart(t, s, Env{}).HeldBytes)
		adapters = append(adapters, golden.ReadFile(t, s.OutputDir, adapter.WeightsFile))
	}
	if !bytes.Equal(adapters[0], adapters[1]) || !bytes.Equal(adapters[0], adapters[2]) ||
		!bytes.Equal(adapters[0], adapters[3]) {
		t.Error("what is recomputed differs from what is kept")
	}
	t.Logf("none, selective, full and offload hold %d bytes", held)
	if !(held[0] > held[1] && held[1] > held[2] && held[2] > held[3]) {
		t.Errorf("none, selective, full and offload hold %d bytes", held)
	}
}

func TestVRAMChoosesOrRefuses(t *testing.T) {
	plan := func(vram string) (PlanReport, error) {
		s := testSpec(t, 4)
		s.VRAM = vram
		return PlanRun(context.Background(), s, Env{})
	}
	all, err := plan("")
	if err != nil || all.Checkpointing != "none" {
		t.Fatalf("without a limit: %q, %v", all.Checkpointing, err)
	}
	less, err := plan(fmt.Sprint(all.TotalBytes - 1))
	if err != nil || less.Checkpointing == "none" || less.TotalBytes >= all.TotalBytes {
		t.Fatalf("one byte less: %q holding %d, %v", less.Checkpointing, less.TotalBytes, err)
	}
	if _, err := plan("1MiB"); !errors.Is(err, session.ErrDoesNotFit) {
		t.Fatalf("1 MiB: %v", err)
	}
}

// TestDequantisedWeightsChangeNothing: the same bytes, in more memory.
func TestDequantisedWeightsChangeNothing(t *testing.T) {
	packed, dequantised := testSpec(t, 4), testSpec(t, 4)
	packed.Training.DequantisedWeights, dequantised.Training.DequantisedWeights = "never", "always"
	a, b := mustStart(t, packed, Env{}), mustStart(t, dequantised, Env{})
	if !bytes.Equal(golden.ReadFile(t, packed.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, dequantised.OutputDir, adapter.WeightsFile)) {
		t.Error("dequantised weights train another adapter")
	}
	if a.HeldBytes >= b.HeldBytes {
		t.Errorf("packed holds %d bytes, dequantised %d", a.HeldBytes, b.HeldBytes)
	}
}

func TestResumingFromAnOlderCheckpointIsRefused(t *testing.T) {
	s := testSpec(t, 4)
	s.Training.SaveSteps = 2
	mustStart(t, s, Env{})
	s.Training.Resume = filepath.Join(s.OutputDir, checkpoint.Name(2))
	if _, err := Start(context.Background(), s, Env{}); err == nil ||
		!strings.Contains(err.Error(), "checkpoint-4 is newer") {
		t.Errorf("got %v", err)
	}
}
