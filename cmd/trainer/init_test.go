package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/session"
)

// initRows are rows of each format, and what trainer init makes of them.
var initRows = []struct{ file, row, goal, format, line string }{
	{"chat.jsonl", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}`,
		"chat", "messages", "chat_template: chatml"},
	{"instruct.jsonl", `{"instruction": "Name a prime.", "output": "7"}`, "instruct", "alpaca", "max_length: 128"},
	{"text.jsonl", `{"text": "Once upon a time there was a dog."}`, "text", "text", "packing: true"},
	{"ids.jsonl", `{"input_ids": [5, 6, 7, 8], "labels": [-100, 6, 7, 8]}`, "tokens", "tokenized", "max_length: 128"},
	{"pairs.jsonl", `{"prompt": "Two and two?", "chosen": " Four", "rejected": " Five, or six"}`, "preference",
		"preference",
		"objective: dpo"},
	{"ids_of_pairs.jsonl", `{"chosen_input_ids": [5, 6, 7], "chosen_labels": [-100, 6, 7], "rejected_input_ids": [5, ` +
		`8], ` +
		`"rejected_labels": [-100, 8]}`, "preference", "tokenized_preference", "beta: 0.1"},
	{"labelled.jsonl", `{"prompt": "Two and two?", "completion": " Four", "label": true}`, "preference", "unpaired",
		"objective: kto"},
	{"ids_of_labelled.jsonl", `{"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "label": false}`, "preference",
		"tokenized_unpaired", "beta: 0.1"},
	{"classes.jsonl", `{"text": "A dog.", "label": "animal"}` + "\n" + `{"text": "A house.", "label": "thing"}`,
		"classification", "classification", "labels: [animal, thing]"},
	{"numbers.jsonl", `{"text": "A dog.", "label": 0.5}`, "classification", "classification", "problem_type: regression"},
	{"words.jsonl", `{"tokens": ["A", "dog"], "ner_tags": [0, 2]}`, "token_classification", "token_classification",
		"num_labels: 3"},
	{"rank.jsonl", `{"query": "Dogs?", "document": "A dog barks.", "label": 1}`, "reranking", "classification",
		"objective: rerank"},
	{"vectors.jsonl", `{"anchor": "Dogs?", "positive": "A dog barks."}`, "embedding", "pairs", "temperature: 0.05"},
	{"questions.jsonl", `{"question": "How many is two and two?", "answer": "2 + 2 = 4 #### 4"}`, "reasoning",
		"prompts",
		"rewards:\n    - {name: right, type: number, column: answer}"},
	{"mine.csv", "prompt,completion\nTwo and two?,Four", "instruct", "completion", "epochs: 3"},
}

func TestInit(t *testing.T) {
	t.Parallel()
	for _, c := range initRows {
		t.Run(c.file, func(t *testing.T) {
			dir := t.TempDir()
			text := strings.Repeat(c.row+"\n", 20)
			if strings.HasSuffix(c.file, ".csv") {
				text = c.row + "\n"
			}
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			args := []string{"init", "--model", "embedded:stories260K", "--data", c.file, "--device", "cpu", "--out",
				"run.yaml"}
			if _, ofHead := headGoals[c.goal]; ofHead || c.goal == goalReasoning {
				args = append(args, "--goal", c.goal)
			}
			code, out, errOut := trainer(t, dir, nil, "", args...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errOut)
			}
			for _, want := range []string{"goal     " + c.goal, "format " + c.format, "written  run.yaml",
				"as they are trained:", "chosen   lora"} {
				if !strings.Contains(out, want) {
					t.Errorf("not said: %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "its parts are unknown") {
				t.Errorf("rows are not shown in their parts:\n%s", out)
			}
			config, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
			if err != nil || !strings.Contains(string(config), "\n  "+c.line+"\n") || !strings.Contains(string(config),
				"format: "+c.format) {
				t.Errorf("no line %q (%v) in\n%s", c.line, err, config)
			}
			args = []string{"train", "run.yaml", "-q", "--set", "training.max_steps=1", "--set",
				"training.warmup_ratio=0"}
			if c.goal == goalReasoning {
				args = append(args, "--set", "grpo.max_completion_length=8")
			}
			if code, out, errOut := trainer(t, dir, nil, "", args...); code != 0 {
				t.Errorf("train: exit code %d\n%s%s", code, out, errOut)
			}
			code, _, errOut = trainer(t, dir, nil, "", "init", "--model", "embedded:stories260K", "--data", c.file,
				"--out", "run.yaml")
			if again, _ := os.ReadFile(filepath.Join(dir, "run.yaml")); code != 2 ||
				errOut != "trainer: init: run.yaml is there already; name another file with --out\n" ||
				string(again) != string(config) {
				t.Errorf("a second time: exit code %d: %s", code, errOut)
			}
		})
	}
}

// The memory decides between lora, qlora and moments in 8 bits, and the plan of what is written fits.
func TestInitFits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A shape whose frozen weights weigh more than its activations.
	config :=
		`{"model_type": "llama", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}`
	if err := os.MkdirAll(filepath.Join(dir, "shape"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"shape/config.json": config,
		"a.jsonl": strings.Repeat(`{"instruction": "Name a prime.", "output": "7"}`+"\n", 20)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	adapters := map[string]string{}
	for _, vram := range []string{"1GiB", "60MiB", "35MiB"} {
		code, out, errOut := trainer(t, dir, nil, "", "init", "--model", "shape", "--data", "a.jsonl", "--device",
			"cpu", "--vram", vram, "--json", "--out", vram+".yaml")
		var answer struct {
			Plan struct {
				Total int64 `json:"total_bytes"`
				Limit int64 `json:"limit_bytes"`
			}
			Config string
		}
		if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
			t.Fatalf("%s: exit code %d: %v %s", vram, code, err, errOut)
		}
		limit, err := session.ParseBytes(vram)
		if err != nil || answer.Plan.Total == 0 || answer.Plan.Total > limit {
			t.Errorf("%s: the plan holds %d bytes: %v", vram, answer.Plan.Total, err)
		}
		for line := range strings.Lines(answer.Config) {
			for _, key := range []string{"adapter: ", "optimizer: "} {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
					adapters[vram] = strings.TrimSpace(adapters[vram] + " " + name)
				}
			}
		}
		if code, _, errOut := trainer(t, dir, nil, "", "validate", vram+".yaml"); code != 0 {
			t.Errorf("%s: exit code %d: %s", vram, code, errOut)
		}
	}
	if adapters["1GiB"] != "lora" || adapters["60MiB"] != "qlora" || adapters["35MiB"] != "qlora adamw_8bit" {
		t.Errorf("chosen: %v", adapters)
	}
	code, _, errOut := trainer(t, dir, nil, "", "init", "--model", "shape", "--data", "a.jsonl", "--device", "cpu",
		"--vram", "1MiB", "--out", "none.yaml")
	if _, err := os.Stat(filepath.Join(dir, "none.yaml")); code != 4 || err == nil ||
		!strings.Contains(errOut,
			"init: no run of shape fits; the smallest that was tried is qlora and adamw_8bit with 1 x 256 tokens") {
		t.Errorf("exit code %d, %v: %s", code, err, errOut)
	}
}

// TestInitAsks: what can't be right is asked again, with the reason.
func TestInitAsks(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"rows.jsonl", "there.yaml"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(answers string) (*initOptions, string, error) {
		o, out := &initOptions{}, strings.Builder{}
		err := o.ask(t.Context(), &console{in: strings.NewReader(answers), err: &out})
		return o, out.String(), err
	}
	o, out, err := ask("\nembedded:stories260K\nrows.jsonl\n\n")
	if err != nil || o.model != "embedded:stories260K" || o.data != "rows.jsonl" || o.out != initFile {
		t.Errorf("%+v: %v", o, err)
	}
	if want := "Model (a folder, org/name or embedded:stories260K): "; strings.Count(out, want) != 2 {
		t.Errorf("asked %q", out)
	}
	o, out, err = ask("./gone\nembedded:stories260K\nrow.jsonl\nrows.jsonl\nrun.txt\nthere.yaml\nmine.yaml\n")
	if err != nil || o.model != "embedded:stories260K" || o.data != "rows.jsonl" || o.out != "mine.yaml" {
		t.Errorf("%+v: %v", o, err)
	}
	for _, want := range []string{"  find model: the folder ./gone does not exist\n",
		"  stat row.jsonl: no such file or directory; the nearest name is rows.jsonl\n",
		"  --out run.txt: a configuration's name ends in .yaml\n",
		"  there.yaml is there already; name another file with --out\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("not said: %q in %q", want, out)
		}
	}
	if _, _, err := ask("embedded:stories260K\n"); err == nil || err.Error() != "init: the answers end before a "+
		"model and data are named" || exitCode(err) != 2 {
		t.Errorf("%v", err)
	}
	for name, there := range map[string]bool{"org/rows": true, "data/*.jsonl": true, "embedded:gsm8k_300.jsonl": true,
		"a/b.jsonl": false, "./rows": false, "none": false} {
		if err := dataIsThere(name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInitBroken(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.jsonl": `{"instruction": "x", "output": "y"}` + "\n",
		"broken.jsonl": "{\n", "odd.jsonl": `{"colour": "red"}` + "\n", "empty.jsonl": "", "there.yaml": "x",
		"model/config.json": "{"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stories := "embedded:stories260K"
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "init: give --model and --data (on a terminal it asks for them)"},
		{"--data a.jsonl", 2, "init: give --model: a folder, a name such as org/name, or embedded:stories260K"},
		{"--model " + stories, 2, "init: give --data: a file, folder, pattern, or data set of the hub"},
		{"--model " + stories + " --data a.jsonl --goal win", 2,
			"init: --goal win: must be one of chat, instruct, text, tokens, preference"},
		{"--model " + stories + " --data a.jsonl --goal chat", 2, "init: --goal chat: the rows of a.jsonl are of the " +
			"format alpaca, which is for instruct; chat takes rows of the formats messages, sharegpt, " +
			"chat_completion (docs/DATA.md)"},
		{"--model " + stories + " --data a.jsonl --goal text", 2, "init: --goal text: the rows of a.jsonl are of the " +
			"format alpaca, which is for instruct; text takes rows with the key text"},
		{"--model " + stories + " --data a.jsonl --vram lots", 2,
			`init: --vram: "lots" is no amount of memory: write it like "256MiB", "2GiB" or "2GB"`},
		{"--model " + stories + " --data a.jsonl --vram 0", 2,
			"init: --vram: no run fits in nothing; leave the flag out to use what is free"},
		{"--model " + stories + " --data a.jsonl --device tpu", 2,
			`init: --device: "tpu" is not one of auto, cpu, cuda`},
		{"--model " + stories + " --data a.jsonl --out run.txt", 2,
			"init: --out run.txt: a configuration's name ends in .yaml"},
		{"--model " + stories + " --data a.jsonl --out there.yaml", 2,
			"init: there.yaml is there already; name another file with --out"},
		{"--model " + stories + " --data gone.jsonl", 2, "init: --data gone.jsonl: "},
		{"--model " + stories + " --data broken.jsonl", 2, "init: --data broken.jsonl: "},
		{"--model " + stories + " --data odd.jsonl", 2, "init: --data odd.jsonl: "},
		{"--model " + stories + " --data empty.jsonl", 2, "init: --data empty.jsonl: "},
		{"--model ./gone --data a.jsonl", 3, ""},
		{"--model ./model --data a.jsonl", 1, "open base model: "},
		{"more", 2, `trainer init takes no argument, got "more"`},
	} {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"init"}, strings.Fields(c.args)...)...)
		if code != c.code || out != "" || !strings.HasPrefix(errOut, "trainer: "+c.want) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, errOut)
		}
		if _, err := os.Stat(filepath.Join(dir, initFile)); err == nil {
			t.Fatalf("%s: a configuration was written", c.args)
		}
	}
}

// TestInitReasoning checks that the reward is chosen by the values of the column with the answer, and that rows without
// one are refused.
func TestInitReasoning(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]string{"number": {"1 + 1 = 2 #### 2", "3/4"}, "choice": {"A", "C"},
		"math": {`\boxed{x^2}`, "7"}} {
		if got := judgeOf(values); got != want {
			t.Errorf("%q: %s, want %s", values, got, want)
		}
	}
	dir := t.TempDir()
	row := `{"question": "Why?", "source": "me"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(row), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := trainer(t, dir, nil, "", "init", "--model", "embedded:stories260K", "--data", "a.jsonl",
		"--goal", "reasoning")
	want := "trainer: init: --goal reasoning: the rows of a.jsonl have no column with the right answer; it may be " +
		"called answer, solution, final_answer, ground_truth, target, label, gold; for a reward without one write a " +
		"configuration (docs/RL.md)\n"
	if code != 2 || errOut != want {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
