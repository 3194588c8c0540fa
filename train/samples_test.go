package train

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/tasks"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/replay"
)

// sampled keeps what a run's samples and tasks say.
type sampled struct {
	Silent
	all   []SampleInfo
	tasks []TaskMetrics
}

func (s *sampled) Task(t TaskMetrics) error {
	s.tasks = append(s.tasks, t)
	return nil
}

// taskFiles are a task whose answers the model writes, and one of choices.
func taskFiles(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	at := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rows := at("rows.jsonl", `{"q":"Once upon a","c":["time","purple elephant"],"g":0,"a":"the"}`+"\n"+`{"q":"The little girl was","c":["so happy","three years old and very tall"],"g":1,"a":"zebra"}`+"\n")
	return []string{
		at("written.yaml", "{kind: contains, data: '"+rows+"', prompt: '{{q}}', answer: '{{a}}', max_tokens: 20}"),
		at("chosen.yaml", "{kind: multiple_choice, data: '"+rows+"', prompt: '{{q}}', choices_field: c, "+
			"gold_field: g}"),
	}
}

func (s *sampled) Sample(i SampleInfo) error { s.all = append(s.all, i); return nil }

// TestSamplesChangeNothing: a run with samples and tasks trains the same adapter, in the memory that was planned; its
// answers are those of the base model before and of the saved adapter after.
func TestSamplesChangeNothing(t *testing.T) {
	t.Parallel()
	for _, val := range []float64{0, 0.05} {
		plain := testSpec(t, 4)
		plain.LoRA.Dropout, plain.Training.LearningRate = 0.1, 1e-2
		plain.Dataset.ValSplit = val
		mustStart(t, plain, Env{})

		with := plain
		with.OutputDir = filepath.Join(t.TempDir(), "with samples")
		with.Training.SamplePrompts, with.Training.SampleMaxTokens,
			with.Training.EvalSteps = []string{"Once upon a time", "The cat"}, 150, 2
		with.Training.EvalTasks, with.Training.ReportTo = taskFiles(t), []string{"csv"}
		planned, err := PlanRun(context.Background(), with, Env{})
		if err != nil {
			t.Fatal(err)
		}
		seen := &sampled{}
		r := mustStart(t, with, Env{Observers: []Observer{seen}})
		quiet := &sampled{}
		var was replay.Manifest
		golden.JSON(t, filepath.Join(with.OutputDir, replay.ManifestFile), &was)
		if v, err := Verify(context.Background(), with, Env{Observers: []Observer{quiet}}, was, 3); err != nil ||
			!v.Equal || quiet.all != nil {
			t.Errorf("verify: %v, %+v, %d samples", err, v, len(quiet.all))
		}
		if r.HeldBytes != planned.TotalBytes {
			t.Errorf("the run holds %d bytes, planned were %d", r.HeldBytes, planned.TotalBytes)
		}
		if !bytes.Equal(golden.ReadFile(t, plain.OutputDir, adapter.WeightsFile),
			golden.ReadFile(t, with.OutputDir, adapter.WeightsFile)) {
			t.Error("samples change the adapter")
		}
		if n := strings.Count(string(golden.ReadFile(t, with.OutputDir, MetricsFile)), `"task":`); n != 12 ||
			len(seen.tasks) != 12 {
			t.Fatalf("metrics.jsonl has %d lines about tasks, %d were told, want 12", n, len(seen.tasks))
		}
		table, said := golden.ReadFile(t, with.OutputDir, CSVFile), golden.ReadFile(t, with.OutputDir, SamplesFile)
		if want := sampleLines(t, seen.all); string(said) != want {
			t.Errorf("%s has\n%s\nwant\n%s", SamplesFile, said, want)
		}
		again := with
		again.Training.Resume, again.Training.MaxSteps = "auto", 4
		mustStart(t, again, Env{})
		if now := golden.ReadFile(t, with.OutputDir, CSVFile); !bytes.Equal(table, now) {
			t.Errorf("metrics.csv of the finished run, begun anew:\n%s\nit was\n%s", now, table)
		}
		if now := golden.ReadFile(t, with.OutputDir, SamplesFile); !bytes.Equal(said, now) {
			t.Errorf("%s of the finished run, begun anew:\n%s\nit was\n%s", SamplesFile, now, said)
		}
		var steps []int
		for _, s := range seen.all {
			steps = append(steps, s.Step)
		}
		if want := []int{0, 0, 2, 2, 4, 4}; !slices.Equal(steps, want) {
			t.Fatalf("samples after steps %v, want %v", steps, want)
		}
		for _, at := range []struct {
			dir         string
			first, task int
		}{{"", 0, 0}, {with.OutputDir, 4, 8}} {
			g, err := infer.NewGenerator(context.Background(), with.Session(), at.dir, session.Env{})
			if err != nil {
				t.Fatal(err)
			}
			told := seen.tasks[at.task : at.task+4]
			for _, name := range with.Training.EvalTasks {
				task, err := tasks.Find(name)
				if err != nil {
					t.Fatal(err)
				}
				want, err := tasks.Run(context.Background(), g, task, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range want.Metrics {
					if got := told[0]; got.Task != task.Name || got.Metric != m.Name || got.Value != m.Value ||
						got.StdErr != m.StdErr || got.Questions != 2 {
						t.Errorf("adapter %q: the run says %+v of task %s, want %+v", at.dir, got, task.Name, m)
					}
					told = told[1:]
				}
			}
			for i, prompt := range with.Training.SamplePrompts {
				made, err := g.Continue(context.Background(), g.Text(prompt),
					infer.GenerateOptions{MaxTokens: 150}, nil)
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
	if want := "training.sample_prompts[0]: 5 tokens and an answer of up to 511 are more than the model's 512 " +
		"positions: shorten it or lower training.sample_max_tokens"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	s.Training.SamplePrompts, s.Training.EvalTasks = nil, []string{"gsm9k"}
	_, err = PlanRun(context.Background(), s, Env{})
	if want := `training.eval_tasks[0]: there is no task "gsm9k": the built-in ones are gsm8k; a task of your own is a .yaml or .json file`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	s.Training.EvalTasks = nil
	s.Training.SamplePrompts, s.Training.SampleMaxTokens = append(slices.Repeat([]string{"x"}, maxSamples), ""), 0
	if got, want := fmt.Sprint(s.Training.Validate()),
		"[training.sample_max_tokens: 0 must be at least 1 training.sample_prompts[64]: is empty "+
			"training.sample_prompts: there are 65, more than 64]"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSamplesOfLongRoPE: texts that are short and long to LongRoPE, beside rows that are long, are those that
// generation gives.
func TestSamplesOfLongRoPE(t *testing.T) {
	for prompt, tokens := range map[string]int{"a b": 3, "a b a b": 20} {
		s := familySpec(t, golden.FamilyModel{Folder: "phi", Name: "phi4_mini"})
		s.Adapter, s.Quantization = "lora", nil
		s.Training.MaxSteps, s.Training.SamplePrompts, s.Training.SampleMaxTokens = 2, []string{prompt}, tokens
		seen := &sampled{}
		r := mustStart(t, s, Env{Observers: []Observer{seen}})
		if plan, err := PlanRun(context.Background(), s, Env{}); err != nil || plan.TotalBytes != r.HeldBytes {
			t.Errorf("the run holds %d bytes, planned were %d: %v", r.HeldBytes, plan.TotalBytes, err)
		}
		g, err := infer.NewGenerator(context.Background(), s.Session(), s.OutputDir, session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		made, err := g.Continue(context.Background(), g.Text(prompt), infer.GenerateOptions{MaxTokens: tokens}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(g.Text(prompt).IDs) + tokens; n > 12 != (tokens > 3) {
			t.Errorf("%q and its answer are %d tokens", prompt, n)
		}
		if got := seen.all[len(seen.all)-1].Answer; got != made.Text || got == "" {
			t.Errorf("the sample %q is %q, generated %q", prompt, got, made.Text)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
