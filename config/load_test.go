package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// least is a configuration with only what must be given.
const least = "base_model: m\ndataset: {path: d.jsonl}\noutput_dir: out\n"

func merged(t *testing.T, text string, environ, sets []string) train.Spec {
	t.Helper()
	c, problems := Merge("run.yaml", []byte(text), environ, sets)
	for _, p := range problems {
		t.Error(p)
	}
	return c.Spec
}

func TestEveryConfigIsValid(t *testing.T) {
	count := 0
	for _, name := range configs.Names() {
		text, ok := configs.Read(name)
		if !ok {
			t.Fatalf("%s can't be read", name)
		}
		c, problems := Merge(name, text, nil, nil)
		for _, p := range problems {
			t.Error(p)
		}
		if want := "runs/" + name; c.Spec.OutputDir != want {
			t.Errorf("%s: output_dir %s, want %s", name, c.Spec.OutputDir, want)
		}
		count++
	}
	files, err := filepath.Glob("../configs/*.yaml")
	if err != nil || count != len(files) || count < 8 {
		t.Errorf("%d configurations validated, %d in the folder (%v)", count, len(files), err)
	}
	t.Logf("%d configurations validated", count)
}

// The tiers run the steps that they are named for.
func TestTiersRunTheirSteps(t *testing.T) {
	for name, steps := range map[string]int{
		"gpu_smollm2_quick": 10, "gpu_smollm2_convergence": 100, "gpu_tinyllama_memory": 50,
		"gpu_tinyllama_extended": 500, "gpu_llama7b_full": 1000, "cpu_smollm2_quick": 10,
		"cpu_smollm2_convergence": 100,
	} {
		text, _ := configs.Read(name)
		s := merged(t, string(text), nil, nil)
		if s.Training.MaxSteps != steps || s.Training.GradientAccumulationSteps != 1 || s.Adapter != "qlora" ||
			s.Quantization == nil || (s.Expect.MaxVRAM == "") != (s.Device == "cpu") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestDefaults(t *testing.T) {
	s := merged(t, least, nil, nil)
	want := train.DefaultSpec()
	want.BaseModel, want.Dataset.Path, want.OutputDir = "m", "d.jsonl", "out"
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
}

func TestQLoRAHasItsQuantization(t *testing.T) {
	c, problems := Merge("run.yaml", []byte(least+"adapter: qlora\n"), nil, nil)
	q := quant.Default()
	if len(problems) > 0 || !reflect.DeepEqual(c.Spec.Quantization, &q) {
		t.Errorf("quantization %+v, problems %v", c.Spec.Quantization, problems)
	}
	want := []string{"adapter qlora without a quantization section: the base model is quantised to 4 bits (nf4, " +
		"blocks of 64, double_quant true)"}
	if !reflect.DeepEqual(c.Notes, want) {
		t.Errorf("notes %q, want %q", c.Notes, want)
	}
	s := merged(t, least+"adapter: qlora\nquantization: {double_quant: false}\n", nil, nil)
	q.DoubleQuant = false
	if !reflect.DeepEqual(s.Quantization, &q) {
		t.Errorf("quantization %+v, want %+v", s.Quantization, q)
	}
}

// TestObjectiveHasItsSection: a section of an objective that is there, or that training.objective asks for, has the
// defaults of its keys; others stay away.
func TestObjectiveHasItsSection(t *testing.T) {
	if s := merged(t, least, nil, nil); s.Objectives != (objective.Config{}) {
		t.Errorf("sections %+v, want none", s.Objectives)
	}
	for _, text := range []string{"smoothed_cross_entropy: {label_smoothing: 0.1}\n", ""} {
		c, _ := Merge("run.yaml", []byte(least+"training: {objective: smoothed_cross_entropy}\n"+text), nil, nil)
		want := objective.Defaults().SmoothedCrossEntropy
		if text != "" {
			want.LabelSmoothing = 0.1
		}
		if got := c.Spec.Objectives.SmoothedCrossEntropy; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestOneValueManySpellings(t *testing.T) {
	for _, value := range []string{"2e-4", "0.0002", `"2e-4"`, "'0.0002'", "2.0E-4", "20e-5"} {
		if s := merged(t, least+"training: {learning_rate: "+value+"}\n", nil, nil); s.Training.LearningRate != 0.0002 {
			t.Errorf("learning_rate: %s is %v", value, s.Training.LearningRate)
		}
		if s := merged(t, least, nil, []string{"training.learning_rate=" + value}); s.Training.LearningRate != 0.0002 {
			t.Errorf("--set training.learning_rate=%s is %v", value, s.Training.LearningRate)
		}
		if s := merged(t, least, []string{"TRAINER_TRAINING_LEARNING_RATE=" + value},
			nil); s.Training.LearningRate != 0.0002 {
			t.Errorf("TRAINER_TRAINING_LEARNING_RATE=%s is %v", value, s.Training.LearningRate)
		}
	}
}

func TestTargetModules(t *testing.T) {
	for text, want := range map[string]adapter.Targets{
		"all-linear":       {"all-linear"},
		"[all-linear]":     {"all-linear"},
		"[k_proj]":         {"k_proj"}, // shorter than the default
		"[a, b, c]":        {"a", "b", "c"},
		`'.*\.(q|v)_proj'`: {`.*\.(q|v)_proj`},
		"\n    - q_proj\n": {"q_proj"},
	} {
		if s := merged(t, least+"lora:\n  target_modules: "+text+"\n", nil, nil); !reflect.DeepEqual(
			s.LoRA.TargetModules, want) {
			t.Errorf("target_modules: %s is %q, want %q", text, s.LoRA.TargetModules, want)
		}
	}
	s := merged(t, least+"lora:\n  target_modules: []\n  target_parameters: [experts.down_proj]\n", nil, nil)
	if len(s.LoRA.TargetModules) != 0 || !reflect.DeepEqual(s.LoRA.TargetParameters, []string{"experts.down_proj"}) {
		t.Errorf("parameters alone are %q and %q", s.LoRA.TargetModules, s.LoRA.TargetParameters)
	}
	if s := merged(t, least, nil, []string{"lora.target_modules=[x, y]"}); !reflect.DeepEqual(s.LoRA.TargetModules,
		adapter.Targets{"x", "y"}) {
		t.Errorf("--set gives %q", s.LoRA.TargetModules)
	}
}

func TestPrecedence(t *testing.T) {
	file := least + "seed: 1\ntraining: {max_steps: 1, batch_size: 1, eval_steps: 0}\nlora:\n  rank_pattern: " +
		"{layers.0.Q: 4, v: 5}\n"
	environ := []string{"TRAINER_TRAINING_MAX_STEPS=2", "TRAINER_TRAINING_BATCH_SIZE=2",
		"TRAINER_SEED=18446744073709551615", "TRAINER_CUBLASLT=x", "TRAINER_TRAINING_EPOCHS=", "OTHER=1"}
	sets := []string{"training.max_steps=7", "training.max_steps=3", "output_dir=a=b", "lora.rank_pattern.v=6",
		"dataset.fields={prompt: Q}", "training.resume="}
	s := merged(t, file, environ, sets)
	if s.Training.MaxSteps != 3 || s.Training.BatchSize != 2 || s.Seed != 1<<64-1 || s.OutputDir != "a=b" ||
		s.Training.Epochs != 1 || s.Training.Resume != "" {
		t.Errorf("max_steps %d, batch_size %d, seed %d, output_dir %q, epochs %v", s.Training.MaxSteps,
			s.Training.BatchSize, s.Seed, s.OutputDir, s.Training.Epochs)
	}
	if want := map[string]int{"layers.0.Q": 4, "v": 6}; !reflect.DeepEqual(s.LoRA.RankPattern, want) {
		t.Errorf("rank_pattern %v, want %v", s.LoRA.RankPattern, want)
	}
	if want := map[string]string{"prompt": "Q"}; !reflect.DeepEqual(s.Dataset.Fields, want) {
		t.Errorf("fields %v, want %v", s.Dataset.Fields, want)
	}
}

func TestRenderIsAFixpoint(t *testing.T) {
	texts := map[string]string{
		"least": least,
		"odd": least + "adapter: qlora\nseed: 18446744073709551615\nlora: {alpha: 1e-300, target_modules: '.*\\.q: " +
			"#x', rank_pattern: {'a.B: c': 3}, alpha_pattern: {X: 0.1}}\nexpect: {max_vram: 1GB}\n",
		"texts": "base_model: 'null'\noutput_dir: \"a\\u2028d \"\ndataset: {path: '123', separator: " +
			"\"a\\tb\\nc\\u2028d\\n\\n \", fields: {prompt: 'yes', completion: '~'}, format: completion}\n",
	}
	for _, name := range configs.Names() {
		text, _ := configs.Read(name)
		texts[name] = string(text)
	}
	for name, text := range texts {
		first := merged(t, text, nil, nil)
		rendered := Render(first)
		second := merged(t, string(rendered), nil, nil)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%s: rendered as\n%s\nit loads as\n%+v\nwas\n%+v", name, rendered, second, first)
		}
		if again := Render(second); string(again) != string(rendered) {
			t.Errorf("%s: rendered twice\n%s\nand\n%s", name, rendered, again)
		}
		if text := string(rendered); !strings.Contains(text, "weight_decay: 0.01\n") || !strings.HasSuffix(text, "\n") {
			t.Errorf("%s: a default is missing in\n%s", name, rendered)
		}
	}
}

func TestFindConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(name, want string) {
		t.Helper()
		if _, found, err := findConfig(name); err != nil || found != want {
			t.Errorf("%s is found as %q (%v), want %q", name, found, err, want)
		}
	}
	for _, name := range []string{"cpu_stories_quick.yaml", "cpu_stories_quick", "configs/cpu_stories_quick.yaml"} {
		expect(name, "embedded:cpu_stories_quick.yaml")
	}
	write("configs/cpu_stories_quick.yaml", "x")
	expect("cpu_stories_quick", "configs/cpu_stories_quick.yaml")
	write("cpu_stories_quick.yaml", "x")
	expect("cpu_stories_quick.yaml", "cpu_stories_quick.yaml")
	write("other.yml", "x")
	expect("other.yml", "other.yml")

	_, _, err := findConfig("cpu_storys_quick.yaml")
	if want := `there is no configuration "cpu_storys_quick.yaml", here, in configs/ or built in; the nearest ` +
		`built-in one is cpu_stories_quick`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	write("large.yaml", strings.Repeat("#", MaxBytes+1))
	_, err = Load("large.yaml", nil)
	if want := "large.yaml: larger than 1048576 bytes: this is no configuration"; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte(least + "lora: {target_modules: [a, '.*'], rank_pattern: {a.b: 2}}\nquantization:\nadapter: " +
		"qlora\nexpect: {loss_decrease: 3e-1}\n"))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("? [a]\n: b\n<<: {}\n"))
	f.Add([]byte("lora: {rank_pattern: {? {} : 1}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, problems := Merge("run.yaml", text, nil, []string{"training.max_steps=1"})
		if len(problems) > 0 {
			return
		}
		again, problems := Merge("again", Render(c.Spec), nil, nil)
		if len(problems) > 0 || !reflect.DeepEqual(again.Spec, c.Spec) {
			t.Errorf("not a fixpoint: %v\n%s", problems, Render(c.Spec))
		}
	})
}
