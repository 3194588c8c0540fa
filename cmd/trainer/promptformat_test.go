package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
)

// answerPlace is chatPlace with rows of a prompt and an answer, and adapters that were trained on them in several ways.
func answerPlace(t *testing.T) string {
	t.Helper()
	dir := chatPlace(t)
	put(t, dir, map[string]string{
		"qa.csv":      "question,answer,tone\n" + strings.Repeat("hi,A cat.,Be kind.\n", 4),
		"alpaca.json": `[{"instruction":"hi","output":"A cat."}]`,
	})
	for out, sets := range map[string][]string{
		"chat": {"dataset.path=qa.csv", "dataset.as_chat=yes",
			"dataset.fields={prompt: question, completion: answer, system: tone}"},
		"plain":  {"dataset.path=qa.csv"},
		"alpaca": {"dataset.path=alpaca.json", "dataset.as_chat=no"},
	} {
		args := []string{"train", "run.yaml", "--set", "output_dir=" + out, "--set", "training.save_steps=1"}
		for _, set := range sets {
			args = append(args, "--set", set)
		}
		code, _, errOut := trainer(t, dir, nil, "", args...)
		if code != 0 {
			t.Fatalf("%s: %s", out, errOut)
		}
		if warned := strings.Contains(errOut, "warning: "+dataset.PlainTextWarning); warned != (out == "plain") {
			t.Errorf("%s: the run warns: %v\n%s", out, warned, errOut)
		}
	}
	return dir
}

// TestPromptFormat: a run records which prompts it trained on, and what asks otherwise is told so in one line.
func TestPromptFormat(t *testing.T) {
	t.Parallel()
	dir := answerPlace(t)
	for out, want := range map[string]dataset.PromptFormat{
		"chat":              {Prompts: []string{"chat"}, Formats: []string{"completion"}, System: "Be kind."},
		"chat/checkpoint-1": {Prompts: []string{"chat"}, Formats: []string{"completion"}, System: "Be kind."},
		"plain":             {Prompts: []string{"completion"}, Formats: []string{"completion"}, Separator: "\n"},
		"alpaca":            {Prompts: []string{"alpaca"}, Formats: []string{"alpaca"}},
	} {
		p, err := dataset.FindPromptFormat(nil, filepath.Join(dir, out))
		if err != nil || p == nil {
			t.Fatalf("%s: %v", out, err)
		}
		got := *p
		if (got.Template == "") == got.Has("chat") || (got.TemplateSHA256 == "") == got.Has("chat") {
			t.Errorf("%s: template %q %q", out, got.Template, got.TemplateSHA256)
		}
		got.Template, got.TemplateSHA256 = "", ""
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("%s: %s, want %s", out, a, b)
		}
	}
	const (
		notChat = " and is asked with conversations in a chat template: generate "
		notAsk  = " and is asked with Alpaca's text: generate "
		useSaid = `system: "Be kind.", with which adapter chat was trained; --system TEXT gives another, --system ` +
			`"" none`
		endsWith = `note: adapter plain was trained on prompts that end with the separator "\n", and this one does ` +
			`not: add it`
	)
	for _, c := range []struct {
		args string
		want string // in standard error; "" = no line of its kind
	}{
		{"--adapter chat --chat --prompt hi", useSaid},
		{"--adapter chat --messages one.json", useSaid},
		{"--adapter chat --chat --prompt hi --system=", ""},
		{"--adapter chat --chat --prompt hi --system Shout.", ""},
		{"--adapter chat --prompt hi", "note: adapter chat was trained on conversations in a chat template, and is " +
			"asked with a text as it is: generate --chat asks as in training"},
		{"--adapter chat --instruction hi", "note: adapter chat was trained on conversations in a chat template," +
			notAsk + "--chat asks as in training"},
		{"--adapter plain --chat --prompt hi", "note: adapter plain was trained on prompts and answers as plain text," +
			notChat + "--prompt TEXT without --chat asks as in training"},
		{"--adapter plain --prompt hi", endsWith},
		{"--adapter plain --prompt hi\n", ""},
		{"--adapter plain --instruction hi", "note: adapter plain was trained on prompts and answers as plain text," +
			notAsk + "--prompt TEXT without --chat asks as in training"},
		{"--adapter alpaca --chat --prompt hi", "note: adapter alpaca was trained on Alpaca's text," + notChat +
			"--instruction TEXT asks as in training"},
		{"--adapter alpaca --prompt hi", "note: adapter alpaca was trained on Alpaca's text, and is asked with a " +
			"text as it is: generate --instruction TEXT asks as in training"},
		{"--adapter alpaca --instruction hi", ""},
		{"--model model --chat --prompt hi", ""},
		{"--adapter chat --chat --prompt hi --system= --chat-template model/chat_template.jinja", ""},
		{"--adapter chat --chat --prompt hi --system= --chat-template chatml",
			"note: adapter chat was trained with another chat template than the built-in template chatml: leave out " +
				"--chat-template to take the one beside the adapter"},
	} {
		code, _, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--max-tokens", "1", "--model",
			"model"}, strings.Split(c.args, " ")...)...)
		said := ""
		for line := range strings.Lines(errOut) {
			if strings.HasPrefix(line, "note: ") || strings.HasPrefix(line, "system: ") {
				said += strings.TrimSuffix(line, "\n")
			}
		}
		if code != 0 || said != c.want {
			t.Errorf("%s: exit code %d\n got %q\nwant %q", c.args, code, said, c.want)
		}
	}
	tokens := func(args ...string) int {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--max-tokens", "1", "--json",
			"--adapter", "chat", "--chat", "--prompt", "hi"}, args...)...)
		var got infer.Generated
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("%v: exit code %d, %v\n%s", args, code, err, errOut)
		}
		return got.PromptTokens
	}
	if own, same, none := tokens(), tokens("--system", "Be kind."), tokens("--system", ""); own != same || none >= own {
		t.Errorf("%d tokens with the system message of training, %d with it given, %d without", own, same, none)
	}
	// chat says it at the start and at every switch, and a person's own system message stays.
	code, _, errOut := trainer(t, dir, nil,
		"/system\n/adapter plain\n/system\n/adapter chat\n/system Shout.\n/adapter plain\n/system\n", "chat",
		"--adapter", "chat", "--adapter", "plain")
	for _, want := range []string{
		`system: "Be kind.", with which adapter chat was trained; /system TEXT gives another, /system none removes it` +
			"\n",
		"system: Be kind.\n", "note: adapter plain was trained on prompts and answers as plain text,",
		"system: none, as adapter plain was trained\n", "there is no system message\n", "system: Shout.\n",
	} {
		if code != 0 || !strings.Contains(errOut, want) {
			t.Errorf("chat: exit code %d, no %q in\n%s", code, want, errOut)
		}
	}
	code, _, errOut = trainer(t, dir, nil, "/system\n", "chat", "--adapter", "chat", "--system", "")
	if code != 0 || !strings.Contains(errOut, "there is no system message\n") {
		t.Errorf("chat --system \"\": exit code %d\n%s", code, errOut)
	}
	// A merged model and exports keep it.
	for _, args := range [][]string{
		{"merge", "--adapter", "chat", "--out", "merged"}, {"export", "--adapter", "chat", "--format", "ollama",
			"--out", "ollama"}, {"export", "--adapter", "alpaca", "--format", "ollama", "--out", "ollama2"},
		{"export", "--model", "merged", "--format", "ollama", "--out", "ollama3"},
	} {
		if code, out, errOut := trainer(t, dir, nil, "", args...); code != 0 || strings.Contains(out+errOut,
			"was trained on plain text (alpaca)") != (args[len(args)-1] == "ollama2") {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errOut)
		}
	}
	for name, want := range map[string]bool{"ollama": true, "ollama2": false, "ollama3": true} {
		text, err := os.ReadFile(filepath.Join(dir, name, "Modelfile"))
		if err != nil || strings.Contains(string(text), `SYSTEM """Be kind."""`) != want {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	for _, folder := range []string{"chat", "merged"} {
		code, out, errOut := trainer(t, dir, nil, "", "push", folder, "--repo", "me/x", "--dry-run")
		if code != 0 || !strings.Contains(out, dataset.PromptFormatFile) {
			t.Errorf("push %s: exit code %d\n%s%s", folder, code, out, errOut)
		}
	}
	code, _, errOut = trainer(t, dir, nil, "", "generate", "--model", "merged", "--chat", "--prompt", "hi",
		"--max-tokens", "1")
	if code != 0 || !strings.Contains(errOut, `system: "Be kind.", with which the model was trained;`) {
		t.Errorf("the merged model: exit code %d\n%s", code, errOut)
	}
}

// TestTasksAsTrained: questions are put with the system message of training, and a task that is put otherwise says so.
func TestTasksAsTrained(t *testing.T) {
	t.Parallel()
	dir := answerPlace(t)
	put(t, dir, map[string]string{
		"task.yaml": "kind: contains\ndata: qa.csv\nprompt: \"{{ question }}\"\nanswer: \"{{ answer " +
			"}}\"\nmax_tokens: 1\n",
		"text.yaml": "kind: contains\nchat: never\ndata: qa.csv\nprompt: \"{{ question }}\"\nanswer: \"{{ answer " +
			"}}\"\nmax_tokens: 1\n",
	})
	for _, c := range []struct{ adapter, task, want string }{
		{"chat", "task.yaml",
			`system: "Be kind.", with which adapter chat was trained; a task file of your own may name another` + "\n"},
		{"chat", "text.yaml", "note: task text: adapter chat was trained on conversations in a chat template, and is " +
			"asked with a text as it is: "},
		{"plain", "task.yaml", "note: task task: adapter plain was trained on prompts and answers as plain text, and " +
			"is asked with conversations in a chat template: "},
		{"plain", "text.yaml", ""},
	} {
		code, _, errOut := trainer(t, dir, nil, "", "eval", "--adapter", c.adapter, "--task", c.task)
		said := strings.Contains(errOut, "note: ") || strings.Contains(errOut, "system: ")
		if code != 0 || !strings.Contains(errOut, c.want) || said != (c.want != "") {
			t.Errorf("%s, %s: exit code %d, want %q in\n%s", c.adapter, c.task, code, c.want, errOut)
		}
	}
}

// TestPromptFormatBroken: a damaged record is an error that says what to do; without one nothing is said.
func TestPromptFormatBroken(t *testing.T) {
	t.Parallel()
	dir := answerPlace(t)
	file := filepath.Join(dir, "chat", dataset.PromptFormatFile)
	for _, text := range []string{"{", `{"prompts": 5}`, strings.Repeat(" ", 2<<20)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"generate", "--prompt", "hi"}, {"chat"}} {
			code, out, errOut := trainer(t, dir, nil, "", append(args, "--adapter", "chat")...)
			if code != exitUsage || out != "" || !strings.Contains(errOut, "read prompt_format.json: ") ||
				!strings.Contains(errOut, "remove it to go without") {
				t.Errorf("%v of %.20q: exit code %d\n%s%s", args, text, code, out, errOut)
			}
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := trainer(t, dir, nil, "", "generate", "--prompt", "hi", "--adapter", "chat", "--max-tokens", "1")
	if code != 0 || strings.Contains(errOut, "note: ") {
		t.Errorf("without a record: exit code %d\n%s", code, errOut)
	}
}
