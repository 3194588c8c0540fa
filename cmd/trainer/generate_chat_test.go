package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train"
)

// put writes files into a folder.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSmolLM2AnswersAsTransformers: the greedy answers to three conversations, as transformers generates them.
func TestSmolLM2AnswersAsTransformers(t *testing.T) {
	model := golden.SmolLM2(t)
	var want []struct {
		Prompt string  `json:"prompt"`
		IDs    []int32 `json:"prompt_ids"`
		NewIDs []int32 `json:"new_ids"`
		Text   string  `json:"text"`
	}
	golden.JSON(t, golden.Outside(t, "goldens/smollm2/generate.json"), &want)
	const end = "<|im_end|>"
	for _, w := range want {
		_, user, _ := strings.Cut(w.Prompt, "user\n")
		user, _, _ = strings.Cut(user, end)
		messages, err := json.Marshal([]map[string]string{{"role": "user", "content": user}})
		if err != nil {
			t.Fatal(err)
		}
		// The model's own template would add a system prompt, which the reference's prompts do not have.
		code, out, errOut := trainer(t, t.TempDir(), nil, string(messages), "generate", "--model", model, "--device",
			"cpu", "--messages", "-",
			"--chat-template", "chatml", "--max-tokens", "48", "--json")
		var got infer.Generated
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v\n%s", code, err, errOut)
		}
		text, ended := strings.CutSuffix(w.Text, end)
		stopped, by := infer.StoppedLength, ""
		if ended {
			stopped, by = infer.StoppedEnd, end
		}
		if got.Text != text || got.PromptTokens != len(w.IDs) || got.Stopped != stopped || got.StoppedBy != by {
			t.Errorf("%q: %q after %d tokens, %s by %q; want %q after %d, %s", user, got.Text, got.PromptTokens,
				got.Stopped, got.StoppedBy, text, len(w.IDs), stopped)
		}
	}
}

const chatRun = `base_model: ./model
lora: {r: 2, alpha: 4, target_modules: [q_proj]}
dataset: {path: talks.jsonl, max_length: 128}
training: {max_steps: 2, batch_size: 2}
output_dir: out
device: cpu
`

const talkTemplate = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}{% if " +
	"add_generation_prompt %}assistant:{% endif %}"

// chatPlace is a folder with the small model, which has a template, and conversations.
func chatPlace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "model"), os.DirFS(golden.StoriesDir(t))); err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{
		"model/tokenizer_config.json": `{"bos_token": "<s>", "eos_token": "</s>"}`,
		"model/chat_template.jinja":   talkTemplate,
		"run.yaml":                    chatRun,
		"one.json":                    `[{"role":"user","content":"hi"}]`,
		"talks.jsonl": strings.Repeat(
			`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"A cat."}]}`+"\n", 4),
	})
	return dir
}

// TestChatFromTrainingToAnswer: a run saves the template that it trains with and what it says of its data; generate
// takes base model and template from the adapter.
func TestChatFromTrainingToAnswer(t *testing.T) {
	dir := chatPlace(t)
	other := strings.NewReplacer(": ", " says ", "assistant:", "assistant says").Replace(talkTemplate)
	put(t, dir, map[string]string{"other.jinja": other})
	code, _, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "-v", "--set", "dataset.chat_template=other.jinja")
	if code != 0 {
		t.Fatal(errOut)
	}
	if saved, err := os.ReadFile(filepath.Join(dir, "out/chat_template.jinja")); err != nil || string(saved) != other {
		t.Errorf("the saved template: %q, %v", saved, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", train.DataReportFile))
	var report dataset.Report
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil || report.Kept != 4 || report.Duplicates != 3 || report.Chat.Turns != 4 ||
		report.Template.Name != "other.jinja" || report.Batches == nil || report.Batches.Count != 2 {
		t.Errorf("the report: %v\n%s", err, text)
	}
	if !strings.Contains(errOut, "trained: every message of the assistant, up to and with </s>") {
		t.Errorf("the log:\n%s", errOut)
	}
	generate := func(args ...string) (infer.Generated, string) {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--json", "--max-tokens",
			"3"}, args...)...)
		var got infer.Generated
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("%v: exit code %d, %v\n%s", args, code, err, errOut)
		}
		return got, errOut
	}
	answer, said := generate("--adapter", "out", "--chat", "--prompt", "hi")
	if !strings.Contains(said, "base model: ./model, which the adapter names") {
		t.Errorf("said %q", said)
	}
	same, _ := generate("--adapter", "out", "--model", "model", "--messages", "one.json")
	if answer.Text != same.Text || answer.PromptTokens != same.PromptTokens {
		t.Errorf("--prompt gives %+v, --messages %+v", answer, same)
	}
	own, _ := generate("--adapter", "out", "--chat", "--prompt", "hi", "--chat-template", "model/chat_template.jinja")
	if own.PromptTokens >= answer.PromptTokens {
		t.Errorf("%d tokens by the model's template, %d by the adapter's", own.PromptTokens, answer.PromptTokens)
	}
	// Without --max-tokens an answer may take what the model has room for: 512 positions in all.
	code, out, errOut := trainer(t, dir, nil, "", "generate", "--adapter", "out", "--chat", "--prompt", "hi", "--json",
		"--temperature", "100", "--seed", "3")
	var long infer.Generated
	if err := json.Unmarshal([]byte(out), &long); code != 0 || err != nil || long.Stopped == infer.StoppedLength &&
		long.PromptTokens+len(long.IDs) != 512 {
		t.Errorf("exit code %d, %v, %s after %d and %d tokens\n%s", code, err, long.Stopped, long.PromptTokens,
			len(long.IDs), errOut)
	}
	system, _ := generate("--adapter", "out", "--chat", "--prompt", "hi", "--system", "Be kind.")
	if system.PromptTokens <= answer.PromptTokens {
		t.Errorf("%d tokens with a system message, %d without", system.PromptTokens, answer.PromptTokens)
	}
}

func TestTemplateArguments(t *testing.T) {
	dir := chatPlace(t)
	put(t, dir, map[string]string{
		"kw.jinja": "{% if loud %}LOUD and long {% endif %}{% for t in tools or [] %}{{ t.function.name }}{% " +
			"endfor %}" + talkTemplate,
		"tools.json": `{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"look at the sky","parameters":{}}}]}`,
		"args.json":  `{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"loud":true}}`,
	})
	tokens := func(args ...string) int {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--model", "model", "--chat-template",
			"kw.jinja", "--max-tokens", "1", "--json"}, args...)...)
		var got infer.Generated
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("%v: exit code %d, %v\n%s", args, code, err, errOut)
		}
		return got.PromptTokens
	}
	quiet, loud := tokens("--messages", "one.json"), tokens("--messages", "one.json", "--chat-template-kwargs",
		`{"loud": true}`)
	if tools := tokens("--messages", "tools.json"); tools <= quiet {
		t.Errorf("%d tokens with tools, %d without", tools, quiet)
	}
	if inFile := tokens("--messages", "args.json"); quiet >= loud || inFile != loud {
		t.Errorf("%d tokens, %d with the argument, %d with it in the file", quiet, loud, inFile)
	}
}

// TestBrokenConversations: what is wrong with a conversation to answer, with the whole words and the exit code.
func TestBrokenConversations(t *testing.T) {
	t.Parallel()
	dir := chatPlace(t)
	adapterConfig := func(base string) string {
		return `{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], ` +
			`"base_model_name_or_path": ` + base + `}`
	}
	put(t, dir, map[string]string{
		"bare/adapter_config.json":  adapterConfig("null"),
		"moved/adapter_config.json": adapterConfig(`"./gone"`),
		"picky.jinja": "{% if messages[0].role != 'system' %}{{ raise_exception('a system message must " +
			"come first') }}{% endif %}x",
		"bad.jinja": "{% for m in messages %}",
		"folder/x":  "",
	})
	if err := os.CopyFS(filepath.Join(dir, "plain"), os.DirFS(golden.StoriesDir(t))); err != nil {
		t.Fatal(err)
	}
	model := []string{"--model", "model"}
	file := func(text string, more ...string) func() []string {
		return func() []string {
			put(t, dir, map[string]string{"m.json": text})
			return append(append(model[:2:2], "--messages", "m.json"), more...)
		}
	}
	flags := func(args ...string) func() []string { return func() []string { return args } }
	ask := func(args ...string) func() []string {
		return flags(append(append(model[:2:2], "--prompt", "hi"), args...)...)
	}
	const neither = "want a JSON list of messages, or an object with messages and tools"
	for _, c := range []struct {
		name string
		args func() []string
		code int
		want string
	}{
		{"no list", file(`"hi"`), 2, "--messages m.json: " + neither},
		{"a number", file(`5`), 2, "--messages m.json: " + neither},
		{"empty file", file(" \n"), 2, "--messages m.json: it is empty: want a JSON list of messages"},
		{"empty list", file("[]"), 2,
			`--messages m.json: field "messages" is an empty list: a conversation has at least one message`},
		{"no messages", file(`{"tools":[]}`), 2, "--messages m.json: the object has no messages"},
		{"unknown key", file(`{"messages":[],"message":1}`), 2,
			`--messages m.json: unknown key "message": an object has messages, tools and chat_template_kwargs`},
		{"half a file", file(`{"messages":[{"role":"user"`), 2,
			"--messages m.json: line 1, column 28: expected ',' or '}' behind the value, found the end of the text"},
		{"half a list", file(`[{"role":"user"`), 2,
			`--messages m.json: field "messages": JSON at byte 15: '}' is missing`},
		{"unknown role", file(`[{"role":"narrator","content":"x"}]`), 2,
			`--messages m.json: messages[0].role is "narrator", want one of system, developer, user, assistant, ` +
				`tool, function, ipython`},
		{"no role", file(`[{"content":"x"}]`), 2, "--messages m.json: messages[0] has no role; it has content"},
		{"no content", file(`[{"role":"user"}]`), 2, "--messages m.json: messages[0] has no content; it has role"},
		{"null content", file(`[{"role":"user","content":null}]`), 2,
			"--messages m.json: messages[0].content is null: only a message with tool_calls may go without"},
		{"tools of the wrong kind", file(`{"messages":[{"role":"user","content":"x"}],"tools":5}`), 2,
			`--messages m.json: field "tools" is a number, want a list of tools`},
		{"the assistant last", file(`[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]`), 2,
			"--messages m.json: messages[1], the last one, is the assistant's own: end with the message that is to " +
				"be answered"},
		{"two system messages", file(`[{"role":"system","content":"x"},{"role":"user","content":"y"}]`,
			"--system", "z"), 2,
			"--messages m.json: messages[0] is a system message, and --system gives one too: keep one"},
		{"no such file", flags("--model", "model", "--messages", "none.json"), 2,
			"--messages none.json: open none.json: no such file or directory; the nearest name is one.json"},
		{"a folder", flags("--model", "model", "--messages", "folder"), 2,
			"--messages folder: folder is a folder, want a regular file"},
		{"prompt and messages", file(`[]`, "--prompt", "x"), 2,
			"--prompt and --messages: give one of them; --system adds a system message"},
		{"neither", flags("--model", "model", "--chat"), 2, "give a text to continue: --prompt TEXT, an instruction: " +
			"--instruction TEXT, or a conversation to answer: --messages FILE"},
		{"chat is false", ask("--chat=false", "--system", "x"), 2, "--system and --chat=false contradict each other"},
		{"empty stop", ask("--stop", ""), 2,
			"--stop: a stop text is empty: it would end every answer before its first character"},
		{"kwargs are no JSON", ask("--chat-template-kwargs", "a=b"), 2,
			"--chat-template-kwargs: JSON at byte 0: a value cannot begin with 'a'"},
		{"kwargs replace messages", ask("--chat-template-kwargs", `{"messages": []}`), 2,
			`--chat-template-kwargs: the template's variables: messages is set from the conversation, its tools or ` +
				`the tokenizer, and cannot be given as a variable`},
		{"kwargs are a list", ask("--chat-template-kwargs", "[1]"), 2,
			`--chat-template-kwargs: want a JSON object, such as {"enable_thinking": false}`},
		{"empty template name", ask("--chat-template", ""), 2, "--chat-template: the name is empty"},
		{"unknown template", ask("--chat-template", "chatmel"), 2,
			`--chat-template is "chatmel", want one of default, chatml, vicuna, zephyr, or a .jinja file`},
		{"no such template", ask("--chat-template", "none.jinja"), 2,
			"read --chat-template: stat none.jinja: no such file or directory"},
		{"a template that ends early", ask("--chat-template", "bad.jinja"), 2,
			"bad.jinja: line 1: TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following " +
				"tags: 'endfor' or 'else'. " +
				"The innermost block that needs to be closed is 'for'."},
		{"a template that refuses", ask("--chat-template", "picky.jinja"), 2,
			"picky.jinja refuses the conversation: a system message must come first"},
		{"a model without a template", flags("--model", "plain", "--chat", "--prompt", "x"), 2,
			"the model's files hold no chat template (chat_template.jinja, or chat_template in " +
				"tokenizer_config.json), so a conversation has no text: " +
				"name one by --chat-template, a .jinja file or one of chatml, vicuna, zephyr"},
		{"no model", flags("--chat", "--prompt", "x"), 2,
			"name a model: --model DIR, or an adapter that names its base model: --adapter DIR"},
		{"an adapter without a base", flags("--adapter", "bare", "--prompt", "x"), 2,
			"adapter bare names no base model: base_model_name_or_path is empty in its adapter_config.json; name a " +
				"model: --model DIR"},
		{"a base that moved", flags("--adapter", "moved", "--prompt", "x"), 3,
			"the base model that adapter moved names: find model: the folder ./gone does not exist; name where it is " +
				"now: --model DIR"},
		{"no adapter", flags("--adapter", "folder", "--prompt", "x"), 2,
			"--adapter folder: no adapter folder in PEFT's format: stat folder/adapter_config.json: no such file or " +
				"directory"},
	} {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--max-tokens", "1", "--device",
			"cpu"}, c.args()...)...)
		if code != c.code || out != "" || errOut != "trainer: "+c.want+"\n" {
			t.Errorf("%s: exit code %d, want %d; %q\n got %s\nwant trainer: %s", c.name, code, c.code, out,
				errOut, c.want)
		}
	}
}
