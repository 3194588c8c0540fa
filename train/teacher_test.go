package train

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// taughtSpec is a run of steps that learns from a teacher beside it: the tiny model with another adapter.
func taughtSpec(t testing.TB, steps int) Spec {
	t.Helper()
	s := testSpec(t, steps)
	s.Adapter, s.Quantization = "lora", nil
	s.Dataset.Packing, s.Dataset.ValSplit = true, 0.1
	c := &s.Training
	c.BatchSize, c.GradientAccumulationSteps, c.LoggingSteps, c.EvalSteps, c.EvalOnStart = 1, 4, 2, 3, true
	c.Objective, s.Objectives.Distill = "distill", objective.Defaults().Distill
	s.Objectives.Distill.Teacher = teacherAdapter(t)
	return s
}

// taughtBy returns the run with other settings of its teacher, in a folder of its own.
func taughtBy(t testing.TB, s Spec, change func(*objective.DistillConfig)) Spec {
	t.Helper()
	section := *s.Objectives.Distill
	change(&section)
	s.Objectives.Distill, s.OutputDir = &section, filepath.Join(t.TempDir(), "run")
	return s
}

// mergedTeacher is the teacher of taughtSpec as a model of its own.
func mergedTeacher(t testing.TB, s Spec) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "teacher")
	o := export.MergeOptions{Model: s.BaseModel, Adapters: export.One(teacherAdapter(t)), Out: out, DType: "fp32"}
	if _, err := export.Merge(t.Context(), o, session.Env{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTeacherRun checks runs with a teacher beside the model, an adapter over the base model or a model of its own, as
// numbers and in 4 bits, over a quantised student too: steps and evaluations report the objective's numbers, the
// divergence falls, memory is as planned, and ranks and an interrupt change no bit.
func TestTeacherRun(t *testing.T) {
	t.Parallel()
	plain := taughtSpec(t, 12)
	merged := mergedTeacher(t, plain)
	for name, change := range map[string]func(*Spec){
		"an adapter": func(*Spec) {},
		"a model in nf4": func(s *Spec) {
			s.Objectives.Distill.Teacher = merged
		},
		"numbers beside nf4": func(s *Spec) {
			s.Adapter, s.Quantization = "qlora", schemeOf("qlora_nf4")
			s.Objectives.Distill.Teacher, s.Objectives.Distill.TeacherQuantization = merged, "none"
			s.Objectives.Distill.Beta, s.Objectives.Distill.Temperature = 0.25, 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := taughtBy(t, plain, func(c *objective.DistillConfig) { c.CEAlpha = 0.001 })
			change(&whole)
			result := mustStart(t, whole, oneWorker)
			plan, err := PlanRun(t.Context(), whole, oneWorker)
			if err != nil {
				t.Fatal(err)
			}
			if plan.TotalBytes != result.HeldBytes {
				t.Errorf("planned %d bytes, held %d", plan.TotalBytes, result.HeldBytes)
			}
			evals := linesWith(t, whole.OutputDir, "eval_loss", distillEvals()...)
			for _, row := range append(linesWith(t, whole.OutputDir, "loss", distillNames...), evals...) {
				loss, d, nll, ppl := row[0], row[1], row[2], row[3]
				if math.Abs(loss-(d+0.001*nll)) > 1e-5*loss || math.Abs(ppl-math.Exp(nll)) > 1e-9*ppl || !(d > 0) {
					t.Errorf("loss %v, divergence %v, nll %v, ppl %v", loss, d, nll, ppl)
				}
			}
			if first, last := evals[0], evals[len(evals)-1]; !(last[1] < 0.9*first[1]) {
				t.Errorf("the divergence was %v and is %v", first[1], last[1])
			}
			sameOverRanksAndResume(t, whole, 5)
		})
	}
}

// TestTeacherForms checks that the same teacher in other forms gives the same losses: an adapter over the base model, a
// model of its own, and all of its log-probabilities in a folder.
func TestTeacherForms(t *testing.T) {
	t.Parallel()
	for _, beta := range []float64{0, 0.5, 1} {
		s := taughtSpec(t, 2)
		s.Training.LoggingSteps, s.Objectives.Distill.Beta = 1, beta
		losses := func(change func(*objective.DistillConfig)) []float64 {
			run := taughtBy(t, s, change)
			mustStart(t, run, oneWorker)
			var all []float64
			for _, row := range append(linesWith(t, run.OutputDir, "loss", "loss", "agreement", "grad_norm"),
				linesWith(t, run.OutputDir, "eval_loss", "eval_loss", "eval_nll")...) {
				all = append(all, row...)
			}
			return all
		}
		want := losses(func(*objective.DistillConfig) {})
		for name, c := range map[string]struct {
			tolerance float64
			change    func(*objective.DistillConfig)
		}{
			"a model": {1e-4, func(c *objective.DistillConfig) {
				c.Teacher, c.TeacherQuantization = mergedTeacher(t, s), "none"
			}},
			"a folder": {1e-4, func(c *objective.DistillConfig) {
				c.Teacher, c.Logprobs = "", writeTeacher(t, s, 511, nil) // the 512th token is the rest
			}},
		} {
			got := losses(c.change)
			for i := range want {
				if math.Abs(got[i]-want[i]) > c.tolerance*math.Abs(want[i]) {
					t.Errorf("beta %v, %s: number %d is %v, want %v", beta, name, i, got[i], want[i])
				}
			}
		}
		stored := losses(func(c *objective.DistillConfig) { c.Teacher = mergedTeacher(t, s) })
		if diff := math.Abs(stored[0] - want[0]); !(diff > 0) || diff > 0.5 {
			t.Errorf("beta %v: in nf4 the loss is %v, as numbers %v", beta, stored[0], want[0])
		}
	}
}

// TestTeacherPlan checks that a plan lists the teacher's bytes apart, and that an adapter takes no second base model.
func TestTeacherPlan(t *testing.T) {
	s := taughtSpec(t, 2)
	plan := func(change func(*objective.DistillConfig)) (teacher, frozen int64, notes string) {
		r, err := PlanRun(t.Context(), taughtBy(t, s, change), oneWorker)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, c := range r.Categories {
			switch sum += c.Bytes; c.Name {
			case "teacher":
				teacher = c.Bytes
			case "frozen weights":
				frozen = c.Bytes
			}
		}
		if sum != r.TotalBytes {
			t.Errorf("the categories have %d bytes, the total is %d", sum, r.TotalBytes)
		}
		return teacher, frozen, strings.Join(r.Notes, "\n")
	}
	merged := mergedTeacher(t, s)
	none, base, note := plan(func(*objective.DistillConfig) {})
	if none != 0 || !strings.Contains(note, "over the base model, which is loaded once") {
		t.Errorf("an adapter takes %d bytes: %s", none, note)
	}
	whole, own, _ := plan(func(c *objective.DistillConfig) { c.Teacher, c.TeacherQuantization = merged, "none" })
	packed, _, note := plan(func(c *objective.DistillConfig) { c.Teacher = merged })
	if whole != base || own != base || packed >= whole/2 || !strings.Contains(note, "stored as nf4") {
		t.Errorf("a teacher of %d bytes is planned with %d, and in nf4 with %d: %s", base, whole, packed, note)
	}
}

// TestTeacherRefuses checks the messages for teachers that a run cannot have.
func TestTeacherRefuses(t *testing.T) {
	s := taughtSpec(t, 2)
	merged := mergedTeacher(t, s)
	with := func(name string, edit func(text string) string) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(merged)); err != nil {
			t.Fatal(err)
		}
		text := edit(string(golden.ReadFile(t, dir, name)))
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	swapped := with("tokenizer.json", func(text string) string {
		return strings.NewReplacer(`"▁the":`, `"▁and":`, `"▁and":`, `"▁the":`).Replace(text)
	})
	short := with("config.json", func(text string) string {
		return strings.Replace(text, `"max_position_embeddings": 512`, `"max_position_embeddings": 16`, 1)
	})
	for want, change := range map[string]func(*Spec){
		"gives other texts to token ids": func(s *Spec) { s.Objectives.Distill.Teacher = swapped },
		"distill.teacher: sequences of 128 tokens are longer than the teacher's 16 positions: lower " +
			"dataset.max_length": func(
			s *Spec) {
			s.Objectives.Distill.Teacher = short
		},
		"distill.teacher: ": func(s *Spec) { s.Objectives.Distill.Teacher = filepath.Join(t.TempDir(), "nowhere") },
		"the teacher is the base model with another adapter, and lora.init_lora_weights moves a part of the base " +
			"model": func(
			s *Spec) {
			s.LoRA.InitLoRAWeights = "pissa"
		},
	} {
		one := taughtBy(t, s, func(*objective.DistillConfig) {})
		change(&one)
		if _, err := Start(t.Context(), one, oneWorker); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, change := range map[string]func(*objective.DistillConfig){
		"distill.logprobs: is empty":                       func(c *objective.DistillConfig) { c.Teacher = "" },
		"distill.teacher: is set, and so is":               func(c *objective.DistillConfig) { c.Logprobs = "x" },
		"distill.teacher_quantization: ":                   func(c *objective.DistillConfig) { c.TeacherQuantization = "q4" },
		"distill.top_k: does nothing with distill.teacher": func(c *objective.DistillConfig) { c.TopK = 4 },
		"distill.rest: does nothing with distill.teacher":  func(c *objective.DistillConfig) { c.Rest = "renormalise" },
		"distill.teacher_quantization: does nothing without distill.teacher": func(c *objective.DistillConfig) {
			c.Teacher, c.Logprobs, c.TeacherQuantization = "", "x", "fp4"
		},
	} {
		one := taughtBy(t, s, change)
		problems := fmt.Sprint(objective.Check("distill", one.Objectives), objective.Inert("distill", one.Objectives))
		if !strings.Contains(problems, want) {
			t.Errorf("%s, want %s", problems, want)
		}
	}
}

// TestTeacherEqualsTRL compares distillation from the reference's teacher, computed beside the student, with TRL's
// losses and gradients. The reference has the teacher's logits in float32, so that float64 is compared no closer.
func TestTeacherEqualsTRL(t *testing.T) {
	b := stories(t)
	var cases map[string]lossCase
	golden.JSON(t, golden.Path(t, "distill/cases.json"), &cases)
	g := openTeacher(t)
	for name, c := range distillCases() {
		if c.kernel.Teacher != kernel.TeacherDense {
			continue
		}
		for _, float := range []kernel.DType{kernel.F32, kernel.F64} {
			t.Run(name+" "+float.String(), func(t *testing.T) {
				section := objective.Defaults().Distill
				section.Teacher, section.Beta, section.Temperature = "teacher", c.kernel.Beta, c.kernel.Temperature
				dir := golden.Path(t, "distill/adapter")
				cfg, run, on := peftConfigOf(t, dir), Default(), graph.NewCPU(2)
				nw := network(t, b, float, nil, &cfg)
				var err error
				if nw.Reference, err = adapter.OpenReference(golden.Path(t, "distill/teacher")); err != nil {
					t.Fatal(err)
				}
				defer nw.Reference.Close() //nolint:errcheck // read only
				o := objective.Of("distill", objective.Config{Distill: section})
				planned, err := step.Plan(nw, session.Shape{Tokens: len(g.ids),
					Sequences: g.dims[0], MaxLen: g.dims[1]}, run.Step(o), step.Summing{}, on)
				if err != nil {
					t.Fatal(err)
				}
				ts := bound(t, on, b, planned, run, dir)
				if _, err := nw.Reference.Fill(planned.Trained, ts.memory); err != nil {
					t.Fatal(err)
				}
				ts.set(t, "loss scale", 1/float64(ts.fill(t, g.ids, g.labels, g.dims[1])))
				for _, segment := range []string{step.SegmentBegin, step.SegmentMicro} {
					if err := ts.run.Run(segment); err != nil {
						t.Fatal(err)
					}
				}
				ts.equals(t, "distill", name, cases[name], 1e-4, 2e-3)
			})
		}
	}
}

// TestTeacherOfPaddedVocabulary checks that a teacher whose head and embeddings are padded further than the student's,
// or less, gives the same losses: only the tokens of both count. A token that only one of them has is refused.
func TestTeacherOfPaddedVocabulary(t *testing.T) {
	s := taughtSpec(t, 2)
	merged := mergedTeacher(t, s)
	losses := func(student, teacher string) [][]float64 {
		one := taughtBy(t, s, func(c *objective.DistillConfig) { c.Teacher, c.TeacherQuantization = teacher, "none" })
		if student != "" {
			one.BaseModel = student
		}
		mustStart(t, one, oneWorker)
		return linesWith(t, one.OutputDir, "loss", "loss", "divergence", "nll", "agreement")
	}
	want := losses("", merged)
	for name, got := range map[string][][]float64{
		"a larger teacher": losses("", paddedModel(t, merged, 24)),
		"a larger student": losses(paddedModel(t, s.BaseModel, 8), merged),
	} {
		if len(got) != len(want) || len(want) == 0 {
			t.Fatalf("%s: %d lines, want %d", name, len(got), len(want))
		}
		for i := range want {
			for k := range want[i] {
				if math.Abs(got[i][k]-want[i][k]) > 1e-6*math.Max(1, math.Abs(want[i][k])) {
					t.Errorf("%s: line %d has %v, want %v", name, i, got[i], want[i])
				}
			}
		}
	}
}

// paddedModel returns a copy of a model with tied embeddings to which rows of numbers are added.
func paddedModel(t testing.TB, name string, rows int) string {
	t.Helper()
	base, err := session.OpenBase(t.Context(), name, oneWorker.Env)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	out := t.TempDir()
	for _, file := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		text, err := fs.ReadFile(base.Folder, file)
		if err != nil {
			continue // a model may have no configuration of its tokenizer
		}
		size := fmt.Sprintf(`"vocab_size": %d`, base.Config.VocabSize)
		padded := fmt.Sprintf(`"vocab_size": %d`, base.Config.VocabSize+rows)
		text = []byte(strings.Replace(string(text), size, padded, 1))
		if err := os.WriteFile(filepath.Join(out, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var all []weights.Tensor
	for _, name := range base.Weights.Names() {
		x, _ := base.Weights.Tensor(name)
		if x.Name == "model.embed_tokens.weight" {
			x.Data = append(slices.Clone(x.Data), slices.Repeat(x.Data[:len(x.Data)/x.Shape[0]], rows)...)
			x.Shape = []int{x.Shape[0] + rows, x.Shape[1]}
		}
		all = append(all, x)
	}
	if err := weights.Write(filepath.Join(out, "model.safetensors"), all, nil); err != nil {
		t.Fatal(err)
	}
	return out
}
