package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakesOfANewUser: what people get wrong on their first day is refused with what was tried, what was wrong and
// what to do; what looks like a mistake and is none works.
func TestMistakesOfANewUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := `{"prompt": "a", "completion": "b"}` + "\n" + `{"prompt": "c", "completion": "d"}` + "\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(good))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"run.yaml": "base_model: embedded:stories260K\nlora: {r: 4, alpha: 8, target_modules: all-linear}\ndataset: " +
			"{path: good.jsonl, max_length: 64}\n" +
			"training: {max_steps: 1, batch_size: 1, learning_rate: 1e-3}\noutput_dir: runs/a\ndevice: cpu\n",
		"good.jsonl": good, "bom.jsonl": "\xef\xbb\xbf" + strings.ReplaceAll(good, "\n", "\r\n"),
		"good.jsonl.gz": packed.String(), "packed.jsonl": packed.String(),
		"comma.jsonl": strings.ReplaceAll(good, "\n", ",\n"), "inside.jsonl": `{"prompt": "a", "completion": "b",}`,
		"mixed.jsonl": good + `{"instruction": "a", "output": "b"}`,
		"empty.jsonl": "", "semicolons.csv": "prompt;completion\na;b\n", "quotes.jsonl": "{'prompt': 'a'}",
		"number.jsonl": `{"prompt": "a", "completion": 5}`,
		"long.jsonl":   `{"prompt": "` + strings.Repeat("word ", 300) + `", "completion": "b"}`,
		"odd.jsonl":    `{"question_text": "a", "reply": "b"}`,
		"talk.jsonl":   `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`,
		"bad.parquet":  "PAR1",
		"tab.yaml":     "base_model: x\nlora:\n\tr: 4\n", "axolotl.yml": "base_model: x\nsequence_len: " +
			"8\nmicro_batch_size: 1\nlora_r: 8\n",
		"model/config.json": `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, ` +
			`"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64, "max_position_embeddings": 64}`,
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errOut := trainer(t, dir, nil, "", "train", "run.yaml"); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	data := func(name string) []string { return []string{"--set", "dataset.path=" + name} }
	for _, c := range []struct {
		name string
		sets []string
		code int
		want []string // "" = it works
	}{
		{"the model's folder misspelt", []string{"--set", "base_model=./modle"}, 3,
			[]string{"the folder ./modle does not exist; the nearest name is ./model"}},
		{"the model's folder elsewhere", []string{"--set", "base_model=./quite/another"}, 3,
			[]string{"the folder ./quite/another does not exist"}},
		{"the data's name misspelt", data("goood.jsonl"), 3, []string{"goood.jsonl", "the nearest name is good.jsonl"}},
		{"a column that is not there", []string{"--set", "dataset.format=completion", "--set",
			"dataset.fields={prompt: query}"}, 1,
			[]string{`good.jsonl:1: field "query" is missing; the row has prompt, completion: dataset.fields says ` +
				`which keys are read`}},
		{"columns of no format", data("odd.jsonl"), 1, []string{"odd.jsonl:1: no format fits the keys question_text, " +
			"reply", "set dataset.format and dataset.fields"}},
		{"no template", data("talk.jsonl"), 1, []string{"the model's files hold no chat template",
			"name one by dataset.chat_template, a .jinja file or one of chatml"}},
		{"the folder of a run", []string{"--set", "output_dir=runs/a"}, 1,
			[]string{"output_dir runs/a holds a run already",
				"set training.resume to auto to resume it, or choose another output_dir"}},
		{"rank 0", []string{"--set", "lora.r=0"}, 2, []string{"lora.r=0: 0 must be from 1 to 4096"}},
		{"a module misspelt", []string{"--set", "lora.target_modules=[q_prj]"}, 1,
			[]string{"q_prj] matches no linear layer of the model; it has down_proj, gate_proj"}},
		{"a comma behind each row", data("comma.jsonl"), 1, []string{"comma.jsonl:1: ",
			"remove the comma, each row stands in a line of its own"}},
		{"a comma behind the last key", data("inside.jsonl"), 1, []string{"inside.jsonl:1: ", "remove the comma"}},
		{"rows of two formats", data("mixed.jsonl"), 1, []string{`mixed.jsonl:3: field "prompt" is missing; the row ` +
			`has instruction, output`, "rows of one source have one format"}},
		{"an empty file", data("empty.jsonl"), 1, []string{"empty.jsonl: the file holds no row"}},
		{"semicolons", data("semicolons.csv"), 1, []string{"semicolons.csv:1: the columns seem to be parted by a " +
			"semicolon: want commas in .csv and tabs in .tsv"}},
		{"quotes of Python", data("quotes.jsonl"), 1, []string{"quotes.jsonl:1: ",
			"keys and strings stand in double quotes"}},
		{"a number for a text", data("number.jsonl"), 1, []string{`number.jsonl:1: field "completion" is a number, ` +
			`want a string`}},
		{"rows that are too long", data("long.jsonl"), 1, []string{"the answer is cut off entirely at max_length",
			"raise dataset.max_length, or shorten the rows"}},
		{"a damaged Parquet file", data("bad.parquet"), 1,
			[]string{"bad.parquet: the Parquet file is damaged: it has 4 bytes"}},
		{"a byte order mark and CR LF", data("bom.jsonl"), 0, nil},
		{"gzip", data("good.jsonl.gz"), 0, nil},
		{"gzip under another name", data("packed.jsonl"), 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"train", "run.yaml", "--set", "output_dir=runs/" + strings.ReplaceAll(c.name, " ",
				"-")}, c.sets...)
			code, _, errOut := trainer(t, dir, nil, "", args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errOut)
			}
			for _, want := range c.want {
				if !strings.Contains(errOut, want) {
					t.Errorf("not said: %s\n%s", want, errOut)
				}
			}
			if c.name == "the folder of a run" && strings.Contains(errOut, "rows: ") {
				t.Errorf("the data was read before: %s", errOut)
			}
		})
	}
	for _, folder := range []string{"cut/checkpoint-9", "cut/checkpoint-10", "all/b"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, folder, "adapter_config.json"), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"train", "rum.yaml"}, 2,
			`there is no configuration "rum.yaml", here, in configs/ or built in; the nearest name is run.yaml`},
		{[]string{"train", "tab.yaml"}, 2, "tab.yaml:3: not valid YAML: found character that cannot start any token: " +
			"a tab stands in the indentation, which is made of spaces in YAML"},
		{[]string{"train", "axolotl.yml"}, 2, "trainer: axolotl.yml looks like a configuration of Axolotl: trainer " +
			"import axolotl.yml --out run.yaml translates it\naxolotl.yml:"},
		{[]string{"generate", "--model", "embedded:stories260K", "--adapter", "run/a", "--prompt", "x"}, 2,
			"no adapter folder in PEFT's format: stat run/a/adapter_config.json: no such file or directory; the " +
				"nearest name is runs/a/adapter_config.json"},
		{[]string{"generate", "--model", "embedded:stories260K", "--adapter", "cut", "--prompt", "x"}, 2,
			"stat cut/adapter_config.json: no such file or directory; its newest checkpoint is cut/checkpoint-10"},
		{[]string{"merge", "--adapter", "all", "--out", "m"}, 2,
			"stat all/adapter_config.json: no such file or directory; there is one in all/b"},
		{[]string{"generate", "--model", "embedded:stories260K", "--adapter", "run.yaml", "--prompt", "x"}, 2,
			"--adapter run.yaml: it is a file; name the folder in PEFT's format, which has adapter_config.json and " +
				"adapter_model.safetensors"},
	} {
		code, _, errOut := trainer(t, dir, nil, "", c.args...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d, want %d and %s\n%s", c.args, code, c.code, c.want, errOut)
		}
	}
}
