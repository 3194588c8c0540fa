package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// TestPastANonFiniteStep: the error of such a step says what to do, and what it says leads past the step.
func TestPastANonFiniteStep(t *testing.T) {
	s := testSpec(t, 6)
	// the second step's update ends beyond float32
	s.Training.LearningRate, s.Training.LRScheduler, s.Training.MaxGradNorm = 1e30, "constant", 0
	r, err := Start(context.Background(), s, Env{})
	want := `^step 2: loss or gradient is not finite: loss NaN, gradient norm NaN; rows \S+gsm8k_300\.jsonl:\d+ \S+gsm8k_300\.jsonl:\d+\. ` +
		`Look at these rows \(trainer inspect data\); if they are fine, lower training\.learning_rate or training\.max_grad_norm\. ` +
		`The state before the step is in ` + regexp.QuoteMeta(filepath.Join(s.OutputDir, "checkpoint-1")) +
		`; to get past it: resume with --resume auto --set training\.learning_rate=1e\+29, ` +
		`or with --set training\.on_nonfinite=skip, which leaves such steps out$`
	if !errors.Is(err, ErrNotFinite) || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Fatalf("got  %v\nwant %s", err, want)
	}
	s.Training.Resume, s.Training.OnNonFinite = "auto", "skip"
	var said []string
	env := Env{}
	env.Log = func(line string) { said = append(said, line) }
	r, err = Start(context.Background(), s, env)
	if err != nil || r.Resumed != 1 || r.Steps != 6 {
		t.Errorf("with skip: resumed after %d, ended at %d: %v", r.Resumed, r.Steps, err)
	}
	if text := strings.Join(said, "\n"); strings.Count(text,
		"; the step is left out (training.on_nonfinite: skip)") != 5 ||
		!strings.Contains(text, "step 2: loss or gradient is not finite") {
		t.Errorf("it said\n%s", text)
	}
}

// spoiledModel is stories260K with a number of one tensor that is NaN.
func spoiledModel(t *testing.T) (dir, tensor string) {
	const name = "layers.2.mlp.up_proj.weight"
	return editedModel(t, name, func(data []byte) { copy(data[4*7:], []byte{0, 0, 0xc0, 0x7f}) }), name
}

// editedModel is stories260K with one tensor, given by the end of its name, edited.
func editedModel(t *testing.T, end string, edit func(data []byte)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.StoriesDir(t))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, weights.SingleFile)
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var tensors []weights.Tensor
	edited := 0
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		if strings.HasSuffix(name, end) {
			x.Data = append([]byte(nil), x.Data...)
			edit(x.Data)
			edited++
		}
		tensors = append(tensors, x)
	}
	raw, err := weights.Encode(tensors, nil)
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // the old one is mapped
	}
	if err != nil || edited != 1 {
		t.Fatal(edited, err)
	}
	return dir
}

// TestBaseThatIsNotFinite: whatever reads the model names the tensor, not the data.
func TestBaseThatIsNotFinite(t *testing.T) {
	ctx := context.Background()
	dir, tensor := spoiledModel(t)
	earlier := testSpec(t, 1)
	mustStart(t, earlier, Env{})
	start := func(edit func(*Spec)) error {
		s := testSpec(t, 2)
		s.BaseModel = dir
		edit(&s)
		_, err := Start(ctx, s, Env{})
		if exists(s.OutputDir, "checkpoint-0") || exists(s.OutputDir, "checkpoint-1") ||
			exists(s.OutputDir, "adapter_model.safetensors") {
			t.Error("the run saved something")
		}
		return err
	}
	for name, do := range map[string]func() error{
		"lora": func() error { return start(func(s *Spec) { s.Adapter, s.Quantization = "lora", nil }) },
		"lora, skip": func() error {
			return start(func(s *Spec) { s.Adapter, s.Quantization, s.Training.OnNonFinite = "lora", nil, "skip" })
		},
		"lora, eval": func() error {
			return start(func(s *Spec) { s.Adapter, s.Quantization, s.Dataset.ValSplit = "lora", nil, 0.05 })
		},
		"qlora": func() error { return start(func(s *Spec) {}) },
		"evaluate": func() error {
			s := testSpec(t, 1)
			s.BaseModel, s.Adapter, s.Quantization = dir, "lora", nil
			_, err := infer.Evaluate(ctx, s.Evaluation(""), session.Env{})
			return err
		},
		"generate": func() error { return generates(dir, "", infer.GenerateOptions{MaxTokens: 4}) },
		"with sampling": func() error {
			return generates(dir, "",
				infer.GenerateOptions{MaxTokens: 4, Temperature: 1})
		},
		"and adapter": func() error { return generates(dir, earlier.OutputDir, infer.GenerateOptions{MaxTokens: 4}) },
		"merge": func() error {
			_, err := export.Merge(ctx, export.MergeOptions{Model: dir, Adapters: export.One(earlier.OutputDir),
				Out: filepath.Join(t.TempDir(), "merged")}, session.Env{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := do()
			if err == nil || !strings.Contains(err.Error(), tensor) {
				t.Fatalf("the error does not name %s: %v", tensor, err)
			}
			if strings.Contains(err.Error(), "rows") || strings.Contains(err.Error(), ".jsonl") {
				t.Errorf("it blames the data: %v", err)
			}
		})
	}
}

func generates(model, adapterDir string, o infer.GenerateOptions) error {
	g, err := infer.NewGenerator(context.Background(), session.Options{Model: model, Device: "cpu"},
		adapterDir, session.Env{})
	if err != nil {
		return err
	}
	_, err = g.Generate(context.Background(), "Once", o, nil)
	return errors.Join(err, g.Close())
}
