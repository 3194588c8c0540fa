package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/train/objective"
)

// TestPrecomputedReference checks that runs with precomputed log-probabilities of the reference equal runs that compute
// them in every step, to the last bit: losses of pairs and of labelled answers, with tails, shared prompts, packed
// rows, an adapter as reference, accumulation, ranks, evaluations, and after an interrupt.
func TestPrecomputedReference(t *testing.T) {
	t.Parallel()
	dir := trainedAdapter(t, func(*Spec) {})
	for name, make := range map[string]func() Spec{
		"dpo": func() Spec { return dpoSpec(t, 6) },
		"packed, 12 steps": func() Spec {
			s := dpoSpec(t, 12)
			s.Dataset.Packing, s.Training.EvalSteps = true, 6
			return s
		},
		"ld_alpha":  func() Spec { s := dpoSpec(t, 4); s.Objectives.DPO.LDAlpha = 0.5; return s },
		"repeated":  func() Spec { s := dpoSpec(t, 4); s.Training.SharePrompts = "no"; return s },
		"packed":    func() Spec { s := dpoSpec(t, 4); s.Dataset.Packing = true; return s },
		"reference": func() Spec { s := dpoSpec(t, 4); s.Training.Reference = dir; return s },
		"lora":      func() Spec { s := dpoSpec(t, 4); s.Adapter, s.Quantization = "lora", nil; return s },
		"kto":       func() Spec { return ktoSpec(t, 6) },
		"kto packed": func() Spec {
			s := ktoSpec(t, 4)
			s.Dataset.Packing = true
			return s
		},
		"apo_zero_unpaired": func() Spec {
			s := ktoSpec(t, 4)
			s.Objectives.KTO.LossType = "apo_zero_unpaired"
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			live := make()
			live.Training.Precompute = "no"
			mustStart(t, live, oneWorker)
			keys := []string{"loss", "rewards/margins", "logps/chosen"}
			steps, evals := linesWith(t, live.OutputDir, "loss", keys...),
				linesWith(t, live.OutputDir, "eval_loss", "eval_loss")
			same := func(what, dir string) {
				t.Helper()
				sameRun(t, what, live.OutputDir, dir)
				if got := linesWith(t, dir, "loss", keys...); fmt.Sprint(got) != fmt.Sprint(steps) {
					t.Errorf("%s: %v, want %v", what, got, steps)
				}
				if got := linesWith(t, dir, "eval_loss", "eval_loss"); fmt.Sprint(got) != fmt.Sprint(evals) {
					t.Errorf("%s: %v, want %v", what, got, evals)
				}
			}
			once := live
			once.Training.Precompute, once.Dataset.CacheDir = "yes", t.TempDir()
			once.OutputDir = filepath.Join(t.TempDir(), "once")
			mustStart(t, once, oneWorker)
			same("precomputed", once.OutputDir)
			if name != "dpo" && name != "kto packed" { // reading, ranks and resuming are the same for all
				return
			}
			again := once
			again.OutputDir = filepath.Join(t.TempDir(), "again")
			lines := logOf(t, again)
			if !strings.Contains(lines, "log-probabilities read from "+again.Dataset.CacheDir) {
				t.Errorf("the second run says %s", lines)
			}
			same("from the cache", again.OutputDir)

			ranks := over(t, once, 2)
			ranks.Dataset.CacheDir = ""
			mustStart(t, ranks, oneWorker)
			same("2 ranks", ranks.OutputDir)

			parts := once
			parts.OutputDir, parts.Dataset.CacheDir = filepath.Join(t.TempDir(), "parts"), ""
			stop := stopping(2)
			mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
			parts.Training.Resume, parts.Training.Precompute = "auto", "auto"
			mustStart(t, parts, oneWorker)
			same("resumed", parts.OutputDir)
		})
	}
}

// logOf makes a run and returns the lines that it logs.
func logOf(t testing.TB, s Spec) string {
	t.Helper()
	var lines strings.Builder
	env := oneWorker
	env.Log = func(line string) { lines.WriteString(line + "\n") }
	mustStart(t, s, env)
	return lines.String()
}

// TestPrecomputeChoice checks when auto computes the reference before training, what the plan reports, and that its
// step computes less.
func TestPrecomputeChoice(t *testing.T) {
	const once, each = "computed once before training", "computed in every step"
	var calls []int
	for i, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(*Spec) {}, each + ", 0.8 times"}, // 4 steps of 8 of 40 rows
		{func(s *Spec) { s.Training.MaxSteps = 10 }, once},
		{func(s *Spec) { s.Training.MaxSteps, s.Training.Precompute = 10, "no" }, each + ", 2.0 times"},
		{func(s *Spec) { s.Training.Precompute = "yes" }, once},
		{func(s *Spec) { s.Training.MaxSteps, s.Dataset.Streaming = 10, true }, ""},
	} {
		s := dpoSpec(t, 4)
		s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0, 0, false
		c.change(&s)
		p, err := prepare(t.Context(), s, oneWorker)
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(p.planReport().Notes, "\n")
		if c.want == "" && strings.Contains(notes, "reference is computed") || !strings.Contains(notes, c.want) {
			t.Errorf("%d: the notes are %q, want %q", i, notes, c.want)
		}
		calls = append(calls, p.found.Step.calls())
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if calls[1] >= calls[0] || calls[2] != calls[0] {
		t.Errorf("the steps have %v calls", calls)
	}
}

// TestPrecomputedReferenceOfTrainedBase trains weights of the base model on pairs and on labelled answers: the
// reference is what they were before the first step, also in a resumed run. It refuses a trained vocabulary head.
func TestPrecomputedReferenceOfTrainedBase(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{dpoSpec(t, 6), ktoSpec(t, 6)} {
		s.Adapter, s.Quantization, s.Full.Train = "full", nil, []string{"layers.[0-9]*.mlp"}
		s.Training.LearningRate = 1e-3
		mustStart(t, s, oneWorker)
		evals := linesWith(t, s.OutputDir, "eval_loss", "eval_loss", "eval_rewards/margins")
		if first, last := evals[0], evals[len(evals)-1]; math.Abs(first[1]) > 1e-5 || !(last[1] > 0.01) ||
			!(last[0] < first[0]) {
			t.Errorf("%s: loss and margin were %v and are %v", s.Training.Objective, first, last)
		}
		ranks := over(t, s, 2)
		mustStart(t, ranks, oneWorker)
		sameModel(t, "2 ranks", s.OutputDir, ranks.OutputDir)

		parts := s
		parts.OutputDir = filepath.Join(t.TempDir(), "parts")
		stop := stopping(3)
		mustStart(t, parts, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
		parts.Training.Resume = "auto"
		mustStart(t, parts, oneWorker)
		sameModel(t, "resumed", s.OutputDir, parts.OutputDir)

		for want, change := range map[string]func(*Spec){
			"the run trains the vocabulary head, or the embeddings that are tied to it": func(s *Spec) {
				s.Full.Train = nil
			},
			"training.precompute: yes computes the reference of dpo and kto before the first step": func(s *Spec) {
				s.Training.Precompute = "no"
			},
		} {
			other := s
			other.OutputDir = filepath.Join(t.TempDir(), "other")
			change(&other)
			if _, err := Start(t.Context(), other, oneWorker); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// TestPrecomputeRefuses checks the messages for runs that cannot precompute their reference.
func TestPrecomputeRefuses(t *testing.T) {
	for want, change := range map[string]func(*Spec){
		"training.precompute: yes, but training.objective: cpo compares the model with no reference: write auto or " +
			"no": func(
			s *Spec) {
			s.Training.Objective, s.Objectives.DPO = "cpo", nil
		},
		"training.precompute: yes, but the rows of a stream are not read ahead (dataset.streaming): write auto or " +
			"no": func(
			s *Spec) {
			s.Dataset.Streaming, s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = true, 0, 0, false
		},
	} {
		s := dpoSpec(t, 2)
		s.Training.Precompute = "yes"
		change(&s)
		if _, err := Start(t.Context(), s, oneWorker); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s := dpoSpec(t, 4)
	s.Training.Precompute = "yes"
	stop := stopping(2)
	mustStart(t, s, Env{Env: oneWorker.Env, Observers: []Observer{stop}, Interrupted: stop.stop})
	s.Training.Resume, s.Training.Precompute = "auto", "no"
	const want = "training.precompute was yes, now it is no: write auto, or what it was"
	if _, err := Start(t.Context(), s, oneWorker); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("resumed without: %v", err)
	}
}

// TestReferenceFile checks that damaged files are computed again, and that another reference has another file.
func TestReferenceFile(t *testing.T) {
	t.Parallel()
	s := dpoSpec(t, 2)
	s.Training.Precompute, s.Dataset.CacheDir = "yes", t.TempDir()
	files := func() []string {
		found, err := filepath.Glob(filepath.Join(s.Dataset.CacheDir, "*"+dataset.ReferenceExt))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	mustStart(t, s, oneWorker)
	if len(files()) != 1 {
		t.Fatalf("files %v", files())
	}
	path := files()[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"short": whole[:len(whole)-5], "empty": {},
		"flipped": append(append([]byte(nil), whole[:200]...), append([]byte{whole[200] ^ 1}, whole[201:]...)...)} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s.OutputDir = filepath.Join(t.TempDir(), what)
		if lines := logOf(t, s); !strings.Contains(lines, "was damaged (its checksum is wrong)") {
			t.Errorf("%s: the run says %s", what, lines)
		}
		if again, err := os.ReadFile(path); err != nil || string(again) != string(whole) {
			t.Errorf("%s: the file has other bytes: %v", what, err)
		}
	}
	for i, change := range []func(*Spec){
		func(s *Spec) { s.Quantization = schemeOf("qlora_nf4") },
		func(s *Spec) { s.Training.Reference = trainedAdapter(t, func(*Spec) {}) },
		func(s *Spec) { s.Objectives.DPO.LDAlpha = 0.5 },
		func(s *Spec) { s.Dataset.MaxLength = 24 },
		func(s *Spec) { s.Training.SharePrompts = "yes" },
	} {
		other := s
		own := *s.Objectives.DPO
		other.Objectives.DPO, other.OutputDir = &own, filepath.Join(t.TempDir(), "other")
		change(&other)
		mustStart(t, other, oneWorker)
		if len(files()) != i+2 {
			t.Errorf("change %d: files %v", i, files())
		}
	}
}

// FuzzReferenceFile checks that no bytes make the reader of such files panic or take more memory than the bytes.
func FuzzReferenceFile(f *testing.F) {
	values := objective.NewReferenceValues()
	values.Add(7, []float32{1, 2})
	values.Add(9, nil)
	key := strings.Repeat("0", 64)
	file := referenceFile{key: key, values: values}
	f.Add(file.bytes())
	rows, err := parseReferenceFile(file.bytes(), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(rows)
	f.Fuzz(func(t *testing.T, text []byte) {
		parseReferenceFile(text, key) //nolint:errcheck // it must not panic
		to := objective.NewReferenceValues()
		if addReferenceRows(to, text) == nil && to.Len() > len(text)/12 {
			t.Errorf("%d rows of %d bytes", to.Len(), len(text))
		}
	})
}
