package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

func TestGenerateDevice(t *testing.T) {
	cuda := exitUnfit
	if n, _ := graph.GPUs(); n > 0 {
		cuda = exitDone
	}
	for device, want := range map[string]int{"cpu": exitDone, "auto": exitDone, "cuda": cuda, "tpu": exitUsage} {
		var out, errOut bytes.Buffer
		code := run([]string{"generate", "--model", "embedded:stories260K", "--prompt", "Once upon", "--max-tokens",
			"3", "--device", device}, strings.NewReader(""), &out, &errOut)
		if code != want || (code == exitDone) != (out.Len() > 0) ||
			(code != exitDone) != strings.Contains(errOut.String(), device) {
			t.Errorf("--device %s: exit code %d, want %d; %q, %q", device, code, want, out.String(), errOut.String())
		}
	}
}

// TestGenerateSampling: flags that are out of range are all named at once, and those in range decide what is said.
func TestGenerateSampling(t *testing.T) {
	generate := func(flags ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := run(append([]string{"generate", "--model", "embedded:stories260K", "--prompt", "Once upon a time",
			"--max-tokens", "24", "--device", "cpu"}, flags...), strings.NewReader(""), &out, &errOut)
		return code, out.String(), errOut.String()
	}
	code, _, said := generate("--min-p", "2", "--repetition-penalty", "0", "--frequency-penalty", "101",
		"--presence-penalty", "NaN", "--quantization", "q4")
	want := "trainer: --min-p 2: must lie in 0 to 1\n--repetition-penalty 0: must be above 0 and at most " +
		"100\n--frequency-penalty 101: must lie in -100 to 100\n" +
		"--presence-penalty NaN: must lie in -100 to 100\n--quantization q4: must be one of fp4, int8, nf4\n"
	if code != exitUsage || said != want {
		t.Errorf("exit code %d, %s\nwant %s", code, said, want)
	}
	_, plain, _ := generate()
	_, least, _ := generate("--temperature", "1.5", "--min-p", "1")
	if plain == "" || least != plain {
		t.Errorf("of the tokens that are as likely as the likeliest there is one: %q, without sampling %q", least,
			plain)
	}
	for _, flags := range [][]string{{"--repetition-penalty", "2"}, {"--quantize", "nf4"}, {"--temperature", "2",
		"--seed", "3"}} {
		code, other, said := generate(flags...)
		if code != exitDone || other == plain {
			t.Errorf("%v: exit code %d, %q as without; %s", flags, code, other, said)
		}
	}
}

// TestGenerateJSON: an answer is JSON of the form, whatever the model; one that is cut off is said to be.
func TestGenerateJSON(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	schema :=
		`{"type":"object","properties":{"ok":{"type":"boolean"},"who":{"enum":["Tim","Lily"]}},"required":["ok","who"],"additionalProperties":false}`
	good := file("good.json", schema)
	generate := func(in string, flags ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := run(append([]string{"generate", "--model", "embedded:stories260K", "--prompt", "Once upon a time",
			"--device", "cpu"}, flags...), strings.NewReader(in), &out, &errOut)
		return code, out.String(), errOut.String()
	}
	check := func(text string) {
		t.Helper()
		var got struct {
			OK  *bool
			Who string
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.OK == nil || got.Who != "Tim" &&
			got.Who != "Lily" {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, seed := range []string{"1", "2", "3"} {
		code, text, said := generate("", "--json-schema", good, "--temperature", "1.5", "--seed", seed)
		if code != exitDone {
			t.Errorf("exit code %d: %s", code, said)
		}
		check(text)
	}
	_, text, _ := generate(schema, "--json-schema", "-", "--json")
	var answer struct{ Text, Stopped string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Stopped != "end" {
		t.Errorf("%s: %v", text, err)
	}
	check(answer.Text)
	if code, text, said := generate("", "--json-object", "--max-tokens", "4"); code != exitFailed ||
		json.Valid([]byte(text)) || said != "trainer: generate: the JSON is not whole: --max-tokens 4 cut it off\n" {
		t.Errorf("exit code %d, %q, %s", code, text, said)
	}
	if code, _, said := generate("", "--json-schema", good, "--stop", "o"); code != exitFailed ||
		!strings.Contains(said, `--stop "o" cut it off`) {
		t.Errorf("exit code %d, %s", code, said)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--json-object", "--json-schema", good}, "--json-object and --json-schema: give one of them"},
		{[]string{"--json-schema", filepath.Join(dir, "none.json")}, "none.json: open "},
		{[]string{"--json-schema", `{"type":"object"}`},
			`--json-schema {"type":"object"}: it takes the name of a file: write the schema into one`},
		{[]string{"--json-schema", dir}, "is a folder"},
		{[]string{"--json-schema", file("broken.json", `{"type":`)}, "broken.json: schema: "},
		{[]string{"--json-schema", file("ref.json", `{"type":"object","properties":{"a":{"pattern":"x"}}}`)},
			"schema.properties.a.pattern: is not supported"},
		{[]string{"--json-schema", file("text.json", `{"type":"string"}`)}, "want type object or array"},
		{[]string{"--json-schema", "-", "--prompt", "-"},
			"--json-schema -: standard input is the prompt already; name a file"},
	} {
		if code, _, said := generate("", c.flags...); code != exitUsage || !strings.Contains(said, c.want) {
			t.Errorf("%v: exit code %d, %s, want %q", c.flags, code, said, c.want)
		}
	}
}

// TestGenerateInstruction: an instruction is asked as rows of the format alpaca are written.
func TestGenerateInstruction(t *testing.T) {
	dir := t.TempDir()
	config := `{"base_model": "embedded:stories260K", "lora": {"r": 1}, "dataset": {"path": "rows.jsonl"}, ` +
		`"output_dir": "out", "device": "cpu"}`
	row := `{"instruction": "Name it.", "input": "A red fruit", "output": "apple"}`
	for name, text := range map[string]string{"run.yaml": config, "rows.jsonl": row} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, asTrained, errOut := trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--rows", "1", "--json")
	var rows []struct {
		Tokens []struct {
			Text    string
			Trained bool
		}
	}
	if err := json.Unmarshal([]byte(asTrained), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v: %s%s", err, asTrained, errOut)
	}
	prompt := ""
	for _, token := range rows[0].Tokens[1:] { // behind <s>
		if !token.Trained {
			prompt += token.Text
		}
	}
	ask := func(args ...string) (int, string, string) {
		return trainer(t, dir, nil, "", append([]string{"generate", "--model", "embedded:stories260K", "--device",
			"cpu", "--max-tokens", "12"}, args...)...)
	}
	_, want, _ := ask("--prompt", strings.TrimPrefix(prompt, " ")) // the tokenizer puts a space before a text
	if code, got, errOut := ask("--instruction", "Name it.", "--input", "A red fruit"); code != exitDone ||
		got != want || got == "" {
		t.Errorf("exit code %d, %q, want %q: %s", code, got, want, errOut)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--instruction", "a", "--prompt", "b"}, "--instruction is a prompt of its own"},
		{[]string{"--instruction", "a", "--system", "b"}, "--instruction is a prompt of its own"},
		{[]string{"--instruction", " "}, "--instruction: the text is empty"},
		{[]string{"--prompt", "a", "--input", "b"}, "--input: give the --instruction that it is the input of"},
	} {
		if code, _, errOut := ask(c.args...); code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d: %s", c.args, code, errOut)
		}
	}
}
