package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/internal/golden"
)

// exampleRows are data for the example configurations, by the file that they name.
var exampleRows = map[string]string{
	"data/alpaca.jsonl": `{"instruction": "Say a name.", "input": "", "output": "Tim"}` + "\n" +
		`{"instruction": "Add.", "input": "1 and 2", "output": "3"}` + "\n",
	"data/more.jsonl": `{"instruction": "Say a colour.", "output": "red"}` + "\n",
	"data/documents.jsonl": `{"text": "Once upon a time there was a cat."}` + "\n" +
		`{"text": "The cat sat. It was happy."}` + "\n",
	"data/talks.jsonl": `{"messages": [{"role": "user", "content": "Who sat?"}, {"role": "assistant", "content": ` +
		`"The cat."}]}` + "\n" +
		`{"messages": [{"role": "user", "content": "How was it?"}, {"role": "assistant", "content": "Happy."}]}` + "\n",
	"data/faq.csv": "Question,Answer\nWho sat?,The cat\nHow was it?,happy\n",
	"data/questions.jsonl": `{"question": "Who sat?", "answer": "The cat"}` + "\n" +
		`{"question": "How was it?", "answer": "happy"}` + "\n",
	"data/pairs.jsonl": `{"prompt": "Who sat?", "chosen": "The cat", "rejected": "Nobody"}` + "\n" +
		`{"prompt": "How was it?", "chosen": "happy", "rejected": "sad"}` + "\n",
}

func writeRows(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, rows := range exampleRows {
		if !strings.HasSuffix(name, ".csv") { // whose first line is the names
			rows = strings.Repeat(rows, 10)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(rows), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// brief makes a run of an example one of a second: the model in the binary, two steps, on a CPU.
var brief = []string{"--set", "base_model=embedded:stories260K", "--set", "device=cpu", "--set",
	"dataset.max_length=160",
	"--set", "training.max_steps=2", "--set", "training.gradient_accumulation_steps=1", "--set",
	"training.batch_size=2"}

// Every example trains; what is changed for the test is the model, the device and the size.
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRows(t, dir)
	extra := map[string][]string{
		"examples/chat":            {"--set", "dataset.chat_template=chatml"}, // the small model has no template
		"examples/prompts_as_chat": {"--set", "dataset.chat_template=chatml"},
		"examples/dpo":             {"--set", "dataset.as_chat=no", "--set", "training.eval_steps=1"},
		"examples/validate_resume": {"--set", "training.eval_steps=1", "--set", "training.save_steps=1"},
	}
	n := 0
	// continue_adapter needs its adapter
	for _, name := range append([]string{"examples/lora_cpu"}, configs.Examples()...) {
		if name == "examples/lora_cpu" && n > 0 {
			continue
		}
		n++
		text, _ := configs.Read(name)
		if s := merged(t, string(text)); s.OutputDir != "runs/"+name { // as it is
			t.Errorf("%s: output_dir %s", name, s.OutputDir)
		}
		code, out, errOut := trainer(t, dir, nil, "", append(append([]string{"--config", name, "--quiet"}, brief...),
			extra[name]...)...)
		if code != 0 || !strings.Contains(out, "steps    2 of 2") {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errOut)
		}
		if _, err := os.Stat(filepath.Join(dir, "runs", name, "adapter_model.safetensors")); err != nil {
			t.Error(err)
		}
	}
	if files, err := filepath.Glob(filepath.Join(golden.Root(t), "configs/examples/*.yaml")); err != nil ||
		n != len(files) || n < 7 {
		t.Errorf("%d examples run, %d are there (%v)", n, len(files), err)
	}
	// The same command again continues, as validate_resume says.
	args := append(append([]string{"--config", "examples/validate_resume"}, brief...),
		extra["examples/validate_resume"]...)
	code, out, errOut := trainer(t, dir, nil, "", append(args, "--set", "training.max_steps=3")...)
	if code != 0 || !strings.Contains(out, "steps    3 of 3, resumed after step 2") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
}

// fenced is the text of the README's first block of a language.
func fenced(t *testing.T, language string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(golden.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(readme), "\n```"+language+"\n")
	text, _, closed := strings.Cut(text, "```")
	if !ok || !closed {
		t.Fatalf("README.md has no block of %s", language)
	}
	return text
}

// The README's quickstart: its rows, its configuration and its commands, on the model in the binary.
func TestReadmeExampleRuns(t *testing.T) {
	dir := t.TempDir()
	rows, config, commands := fenced(t, "csv"), fenced(t, "yaml"), fenced(t, "sh")
	for name, text := range map[string]string{"mine.csv": rows, "mine.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s := merged(t, config); s.Dataset.Path != "mine.csv" || s.OutputDir != "runs/mine" {
		t.Errorf("dataset.path %s, output_dir %s", s.Dataset.Path, s.OutputDir)
	}
	for _, want := range []string{"trainer init --model ./SmolLM2-135M-Instruct --data mine.csv --out mine.yaml\n",
		"trainer train mine.yaml\n", "--adapter runs/mine\n"} {
		if !strings.Contains(commands, want) || !strings.Contains(fenced(t, "python"), `"runs/mine"`) {
			t.Errorf("the README's commands do not use its files, %q:\n%s", want, commands)
		}
	}
	made := t.TempDir() // what init writes goes to the same folder as the configuration by hand
	if err := os.WriteFile(filepath.Join(made, "mine.csv"), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := trainer(t, made, nil, "", "init", "--model", "embedded:stories260K", "--data", "mine.csv",
		"--out", "mine.yaml"); code != 0 {
		t.Errorf("init: exit code %d: %s", code, errOut)
	} else if text, err := os.ReadFile(filepath.Join(made, "mine.yaml")); err != nil || !strings.Contains(string(text),
		"\noutput_dir: runs/mine\n") {
		t.Errorf("init: %v\n%s", err, text)
	}
	// the small model has no template
	args := append([]string{"--config", "mine.yaml", "--quiet", "--set", "dataset.chat_template=chatml"}, brief...)
	code, out, errOut := trainer(t, dir, nil, "", args...)
	if code != 0 || !strings.Contains(out, "steps    2 of 2") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, "runs/mine", name)); err != nil {
			t.Error(err)
		}
	}
}

// An example is listed by what it is for, and is written out under its own name, without the schema's place in the
// repository.
func TestExamplesAreWrittenOut(t *testing.T) {
	dir := t.TempDir()
	if code, out, errOut := trainer(t, dir, nil, "", "configs"); code != 0 ||
		!strings.Contains(out, "examples/lora_cpu                LoRA on a CPU: ") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "configs", "write", "examples/lora_cpu"); code != 0 {
		t.Fatal(errOut)
	}
	text, err := os.ReadFile(filepath.Join(dir, "lora_cpu.yaml"))
	if err != nil || !strings.HasPrefix(string(text), "# LoRA on a CPU") {
		t.Errorf("%v, %.80q", err, text)
	}
}
