package train

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// teacherAdapter is an adapter of the embedded tiny model with another distribution than the model alone.
func teacherAdapter(t testing.TB) string { return golden.Path(t, "distill/adapter") }

// writeTeacher writes the log-probabilities of the tiny model with another adapter for the rows of a run.
func writeTeacher(t testing.TB, s Spec, k int, change func(*infer.LogprobsOptions)) string {
	t.Helper()
	o := infer.LogprobsOptions{Options: session.Options{Model: s.BaseModel, Device: "cpu", Precision: "fp32"},
		AdapterDir: teacherAdapter(t), Data: s.Dataset, Seed: s.Seed, BatchSize: 4, TopK: k, Temperature: 1,
		Out: filepath.Join(t.TempDir(), "teacher"), ShardTokens: 1024}
	if change != nil {
		change(&o)
	}
	if _, err := infer.WriteLogprobs(t.Context(), o, oneWorker.Env); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

// distillSpec is a run of steps that learns from the log-probabilities in a folder, packed and accumulated.
func distillSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Dataset.Packing, s.Dataset.ValSplit = true, 0.1
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps, c.EvalOnStart = 1, 4, 2, 3, true
	section := objective.Defaults().Distill
	section.Logprobs = writeTeacher(t, s, 8, nil)
	c.Objective, s.Objectives.Distill = "distill", section
	return s
}

var distillNames = []string{"loss", "divergence", "nll", "ppl", "agreement"}

func distillEvals() (names []string) {
	for _, name := range distillNames {
		names = append(names, "eval_"+name)
	}
	return names
}

// TestDistillRun: steps and evaluations report the objective's numbers, and the run is the same to the last bit over
// ranks and after an interrupt.
func TestDistillRun(t *testing.T) {
	t.Parallel()
	whole := distillSpec(t, 6)
	whole.Objectives.Distill.CEAlpha = 0.125
	mustStart(t, whole, oneWorker)
	steps := linesWith(t, whole.OutputDir, "loss", distillNames...)
	evals := linesWith(t, whole.OutputDir, "eval_loss", distillEvals()...)
	if len(steps) != 3 || len(evals) != 3 {
		t.Fatalf("%d lines of steps and %d of evaluations, want 3 and 3", len(steps), len(evals))
	}
	for _, row := range append(steps, evals...) {
		loss, d, nll, ppl, agreement := row[0], row[1], row[2], row[3], row[4]
		if math.Abs(loss-(d+0.125*nll)) > 1e-5*loss || math.Abs(ppl-math.Exp(nll)) > 1e-9*ppl || !(d > 0) ||
			!(agreement > 0 && agreement < 1) {
			t.Errorf("loss %v, divergence %v, nll %v, ppl %v, agreement %v", loss, d, nll, ppl, agreement)
		}
	}

	sameOverRanksAndResume(t, whole, 3)
}

// TestDistillLearns: the divergence of the validation rows from the teacher falls.
func TestDistillLearns(t *testing.T) {
	s := distillSpec(t, 20)
	s.Training.EvalSteps, s.Training.GradientAccumulationSteps = 20, 2
	mustStart(t, s, oneWorker)
	evals := linesWith(t, s.OutputDir, "eval_loss", "eval_divergence", "eval_agreement")
	if first, last := evals[0], evals[1]; !(last[0] < 0.8*first[0]) || !(last[1] > first[1]) {
		t.Errorf("divergence and agreement are %v after the run, %v before", last, first)
	}
}

// TestDistillBatches: packing, padding, accumulation and recomputation give the same divergence.
func TestDistillBatches(t *testing.T) {
	t.Parallel()
	base := distillSpec(t, 1)
	base.Training.EvalOnStart, base.Training.EvalSteps, base.Training.LoggingSteps = false, 0, 1
	base.Dataset.Packing, base.Dataset.ValSplit, base.Dataset.Shuffle = false, 0, false
	base.Training.BatchSize, base.Training.GradientAccumulationSteps = 8, 1
	run := func(change func(*Spec)) []float64 {
		s := base
		s.OutputDir = filepath.Join(t.TempDir(), "run")
		change(&s)
		mustStart(t, s, oneWorker)
		return linesWith(t, s.OutputDir, "loss", append(distillNames, "grad_norm")...)[0]
	}
	want := run(func(*Spec) {})
	for what, change := range map[string]func(*Spec){
		"padded":            func(s *Spec) { s.Dataset.PadTo = "max_length" },
		"rows one by one":   func(s *Spec) { s.Training.BatchSize, s.Training.GradientAccumulationSteps = 1, 8 },
		"recomputed layers": func(s *Spec) { s.Training.GradientCheckpointing = "full" },
	} {
		got := run(change)
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-5*math.Abs(want[i]) {
				t.Errorf("%s: number %d is %v, want %v", what, i, got[i], want[i])
			}
		}
	}
}

// TestLogprobsAreContinued: a call that is killed after some shards and called again writes the same bytes, and so does
// one in a 4-bit teacher's storage; another teacher, top-k or data set is refused.
func TestLogprobsAreContinued(t *testing.T) {
	t.Parallel()
	s := testSpec(t, 1)
	whole := writeTeacher(t, s, 4, nil)
	out := filepath.Join(t.TempDir(), "parts")
	ctx, kill := context.WithCancel(t.Context())
	o := infer.LogprobsOptions{Options: session.Options{Model: s.BaseModel, Device: "cpu", Precision: "fp32"},
		AdapterDir: teacherAdapter(t), Data: s.Dataset, Seed: s.Seed, BatchSize: 4, TopK: 4, Temperature: 1, Out: out,
		ShardTokens: 1024, Progress: func(done, of int) {
			if done > of/3 {
				kill()
			}
		}}
	if _, err := infer.WriteLogprobs(ctx, o, oneWorker.Env); err == nil {
		t.Fatal("the call was not interrupted")
	}
	section := objective.Defaults().Distill
	section.Logprobs = out
	broken := s
	broken.Training.Objective, broken.Objectives.Distill = "distill", section
	if _, err := Start(t.Context(), broken, oneWorker); err == nil ||
		!strings.Contains(err.Error(), out+" is not complete: run trainer logprobs again with the same flags") {
		t.Errorf("a run from a folder that is not complete: %v", err)
	}
	o.Progress = nil
	r, err := infer.WriteLogprobs(t.Context(), o, oneWorker.Env)
	if err != nil || r.Found == 0 || r.Found == r.Shards || r.Shards < 3 || !(r.Covered > 0.3 && r.Covered < 1) {
		t.Fatalf("%+v, %v", r, err)
	}
	sameBytes(t, whole, out)

	for what, c := range map[string]struct {
		change func(*infer.LogprobsOptions)
		want   string
	}{
		"another top-k": {func(o *infer.LogprobsOptions) { o.TopK = 5 }, "(its top-k: 4, now 5)"},
		"no adapter":    {func(o *infer.LogprobsOptions) { o.AdapterDir = "" }, "(its adapter: "},
		"4 bits": {func(o *infer.LogprobsOptions) { q := quant.Default(); o.Quantization = &q },
			"(its weights)"},
		"another length": {func(o *infer.LogprobsOptions) { o.Data.MaxLength = 64 }, "(its rows: "},
		"no tokens":      {func(o *infer.LogprobsOptions) { o.TopK = 0 }, "top-k is 0, want 1 to 512"},
		"a whole page": {func(o *infer.LogprobsOptions) { o.TopK = 512 }, "less than the 512 tokens of the " +
			"teacher's vocabulary"},
		"a stream": {func(o *infer.LogprobsOptions) { o.Data.Streaming = true }, "set dataset.streaming to " +
			"false"},
		"temperature zero": {func(o *infer.LogprobsOptions) { o.Temperature, o.Out = 0, t.TempDir() },
			"attribute Temperature is 0"},
		"other files": {func(o *infer.LogprobsOptions) {
			o.Out = filepath.Dir(golden.Path(t,
				"distill/cases.json"))
		}, "has other files, such as "},
	} {
		bad := o
		c.change(&bad)
		if _, err := infer.WriteLogprobs(t.Context(), bad, oneWorker.Env); err == nil || !strings.Contains(err.Error(),
			c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
	four := o
	q := quant.Default()
	four.Quantization, four.Out = &q, filepath.Join(t.TempDir(), "four")
	if _, err := infer.WriteLogprobs(t.Context(), four, oneWorker.Env); err != nil {
		t.Fatal(err)
	}
}

// sameBytes compares two folders.
func sameBytes(t *testing.T, want, got string) {
	t.Helper()
	a, err := os.ReadDir(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadDir(got)
	if err != nil || len(a) != len(b) {
		t.Fatalf("%d files, want %d: %v", len(b), len(a), err)
	}
	for _, f := range a {
		if !bytes.Equal(golden.ReadFile(t, want, f.Name()), golden.ReadFile(t, got, f.Name())) {
			t.Errorf("%s is another", f.Name())
		}
	}
}

// TestDistillRefuses checks the messages for folders and settings that a run cannot have.
func TestDistillRefuses(t *testing.T) {
	base := distillSpec(t, 1)
	for what, c := range map[string]struct {
		change func(s *Spec, d *objective.DistillConfig)
		want   string
	}{
		"no folder": {func(_ *Spec, d *objective.DistillConfig) { d.Logprobs = "/nonexistent" },
			"distill.logprobs: open log-probabilities: stat /nonexistent: no such file or directory: trainer " +
				"logprobs writes " +
				"such a folder"},
		"other rows": {func(s *Spec, _ *objective.DistillConfig) { s.Dataset.MaxLength = 100 },
			"FOLDER was made from other rows: it lacks "},
		"too many tokens": {func(_ *Spec, d *objective.DistillConfig) { d.TopK = 9 },
			"distill.top_k: is 9, and FOLDER has 8 tokens for each place: lower it, or write the folder again with " +
				"--top-k 9"},
		"another temperature": {func(_ *Spec, d *objective.DistillConfig) { d.Temperature = 2 },
			"distill.temperature: is 2, and FOLDER was made at temperature 1: write the folder again with " +
				"--temperature 2, or, " +
				"with --temperature 1, set rest: renormalise"},
		"a stream": {func(s *Spec, _ *objective.DistillConfig) {
			s.Dataset.Streaming, s.Dataset.ValSplit, s.Training.EvalOnStart, s.Training.EvalSteps = true, 0, false, 0
		}, "distill.logprobs needs rows that are: remove dataset.streaming"},
		"pairs": {func(s *Spec, _ *objective.DistillConfig) {
			s.Dataset.Format, s.Dataset.Fields = "preference", nil
			s.Dataset.Path = filepath.Join(t.TempDir(), "pairs.jsonl")
			row := `{"prompt":"a","chosen":"b","rejected":"c"}` + "\n"
			if err := os.WriteFile(s.Dataset.Path, []byte(strings.Repeat(row, 9)), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "training.objective: distill takes single sequences, and "},
	} {
		s := base
		d := *base.Objectives.Distill
		s.Objectives.Distill, s.OutputDir = &d, filepath.Join(t.TempDir(), "run")
		c.change(&s, &d)
		want := strings.ReplaceAll(c.want, "FOLDER", base.Objectives.Distill.Logprobs)
		if _, err := Start(t.Context(), s, oneWorker); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	renormalised, d := base, *base.Objectives.Distill // which takes another temperature
	d.Temperature, d.Rest, d.TopK = 2, "renormalise", 4
	renormalised.Objectives.Distill, renormalised.OutputDir = &d, filepath.Join(t.TempDir(), "run")
	if r := mustStart(t, renormalised, oneWorker); !(r.LastLoss > 0) {
		t.Errorf("the loss is %v", r.LastLoss)
	}
}
