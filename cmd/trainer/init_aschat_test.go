package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
)

// TestInitAsChat: rows of a prompt and an answer become conversations where the model has a chat template, and the
// flags of rows are in what is written.
func TestInitAsChat(t *testing.T) {
	t.Parallel()
	dir := chatPlace(t)
	put(t, dir, map[string]string{
		"qa.csv":   "Frage,Antwort\n" + strings.Repeat("hi,A cat.\n", 4),
		"qa.jsonl": strings.Repeat(`{"question":"hi","answer":"A cat."}`+"\n", 4),
	})
	if err := os.CopyFS(filepath.Join(dir, "bare"), os.DirFS(filepath.Join(dir, "model"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "bare/chat_template.jinja")); err != nil {
		t.Fatal(err)
	}
	fields := []string{"--fields", "prompt=Frage,completion=Antwort"}
	for name, c := range map[string]struct {
		args []string
		said []string // in the output
		want []string // lines of the configuration
		no   []string // and keys that it does not have
		chat bool
	}{
		"template": {args: []string{"--data", "qa.jsonl"}, chat: true,
			said: []string{"goal     chat: every message of the assistant",
				"form     conversations in the model's chat template"},
			want: []string{`as_chat: "yes"`, "format: completion"}, no: []string{"system:", "fields:"}},
		"all flags": {args: append([]string{"--data", "qa.csv", "--format", "completion", "--as-chat", "yes",
			"--system", "Be kind."}, fields...), chat: true,
			said: []string{`system message "Be kind."`}, want: []string{"fields: {completion: Antwort, prompt: Frage}",
				`as_chat: "yes"`, "system: Be kind."}},
		"auto": {args: []string{"--data", "qa.jsonl", "--as-chat", "auto"}, chat: true,
			want: []string{"as_chat: auto"}},
		"goal": {args: []string{"--data", "qa.jsonl", "--goal", "instruct"}, chat: true,
			said: []string{"goal     instruct: every message"}, want: []string{`as_chat: "yes"`}},
		"no": {args: []string{"--data", "qa.jsonl", "--as-chat", "no"},
			said: []string{"goal     instruct: the answer and </s>", "form     plain text, as --as-chat says"},
			want: []string{`as_chat: "no"`}},
		"no template": {args: []string{"--data", "qa.jsonl", "--model", "bare"},
			said: []string{"form     plain text, since the model has no chat template"}, no: []string{"as_chat:"}},
		"chatml": {args: []string{"--data", "qa.jsonl", "--model", "bare", "--as-chat", "yes"}, chat: true,
			want: []string{`as_chat: "yes"`, "chat_template: chatml"}},
		"messages": {args: []string{"--data", "talks.jsonl", "--system", "Be kind."}, chat: true,
			want: []string{"system: Be kind.", "format: messages"}, no: []string{"as_chat:"}},
	} {
		out := strings.ReplaceAll(name, " ", "_") + ".yaml"
		args := append([]string{"init", "--device", "cpu", "--out", out}, c.args...)
		if !strings.Contains(strings.Join(c.args, " "), "--model") {
			args = append(args, "--model", "model")
		}
		code, said, errOut := trainer(t, dir, nil, "", args...)
		text, err := os.ReadFile(filepath.Join(dir, out))
		if code != 0 || err != nil {
			t.Errorf("%s: exit code %d, %v\n%s", name, code, err, errOut)
			continue
		}
		for _, want := range c.said {
			if !strings.Contains(said, want) {
				t.Errorf("%s: not said: %q in\n%s", name, want, said)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(string(text), "\n  "+want+"\n") {
				t.Errorf("%s: no line %q in\n%s", name, want, text)
			}
		}
		for _, key := range c.no {
			if strings.Contains(string(text), "\n  "+key) {
				t.Errorf("%s: the key %s in\n%s", name, key, text)
			}
		}
		code, _, errOut = trainer(t, dir, nil, "", "train", out, "--set", "training.max_steps=1", "--set",
			"training.warmup_ratio=0")
		if code != 0 || strings.Contains(errOut, "warning: rows are trained as plain text") {
			t.Errorf("%s: train: exit code %d\n%s", name, code, errOut)
		}
		p, err := dataset.FindPromptFormat(nil, filepath.Join(dir, "runs", strings.TrimSuffix(out, ".yaml")))
		if err != nil || p == nil || p.Has(dataset.PromptChat) != c.chat {
			t.Errorf("%s: trained on %+v: %v", name, p, err)
		}
	}
	for args, want := range map[string]string{
		"--data qa.jsonl --as-chat ja": `init: --as-chat: "ja" is not one of auto, yes, no`,
		"--data qa.jsonl --format alpacka": `init: --format: "alpacka" is not one of auto, alpaca, ` +
			`chat_completion, classification`,
		"--data qa.jsonl --fields prompt":                  "--fields",
		"--data qa.jsonl --format completion --fields q=x": `init: --fields: format completion has no field "q"`,
		"--data qa.jsonl --fields prompt=":                 "init: --fields.prompt is empty: name a key of the file",
		"--data qa.csv": "init: --data qa.csv: qa.csv:2: no format fits the keys " +
			"Frage, Antwort",
		"--data qa.jsonl --as-chat no --system x": "init: --data qa.jsonl: qa.jsonl:1: --system does " +
			"nothing with format completion, whose rows are trained as plain text: remove it, or give --as-chat yes to",
		"--data qa.jsonl --goal chat --as-chat no": "init: --goal chat: the rows of qa.jsonl are of the " +
			"format completion, which is for instruct; chat takes rows of the formats messages, sharegpt, " +
			"chat_completion (docs/DATA.md); --as-chat yes makes conversations of these rows",
		"--data qa.jsonl --format text --as-chat yes": "init: --as-chat is yes, and rows of the format text " +
			"have no prompt and answer",
		"--data talks.jsonl --format completion":            "init: --data talks.jsonl: talks.jsonl:1: ",
		"--data qa.jsonl --fields prompt=question,prompt=x": "init: --data qa.jsonl: ",
	} {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"init", "--model", "model", "--device", "cpu",
			"--out", "new.yaml"}, strings.Fields(args)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, want %q\n%s%s", args, code, want, out, errOut)
		}
	}
	code, out, errOut := trainer(t, dir, nil, "", "init", "--model", "model", "--data", "qa.jsonl", "--device", "cpu",
		"--out", "json.yaml", "--json")
	var answer struct {
		AsChat bool `json:"as_chat"`
	}
	if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil || !answer.AsChat {
		t.Errorf("--json: exit code %d, %v %s\n%s", code, err, errOut, out)
	}
}

// TestInitAsksForm: a person is asked for the form of the rows where it matters, and for a system message.
func TestInitAsksForm(t *testing.T) {
	const question = "Train them as conversations? yes, or no for plain text [yes]: "
	for name, c := range map[string]struct {
		found          looked
		o              initOptions
		answers        string
		asChat, system string
		again          bool
		asked          int
		failed         string
	}{
		"yes": {found: looked{asChat: true}, answers: "\n\n", asChat: "yes", asked: 1},
		"yes, a system": {found: looked{asChat: true}, answers: "YES\nBe kind.\n", asChat: "yes", system: "Be kind.",
			again: true, asked: 1},
		"no": {found: looked{asChat: true}, answers: "no\n", asChat: "no", again: true, asked: 1},
		"neither": {found: looked{asChat: true}, answers: "what?\n\x1b[2Jn\nno\n", asChat: "no",
			again: true, asked: 3},
		"own systems": {found: looked{asChat: true, systems: true}, answers: "y\n", asChat: "yes", asked: 1},
		"given":       {found: looked{asChat: true}, o: initOptions{asChat: "auto"}, asChat: "auto"},
		"plain rows":  {found: looked{}, answers: ""},
		"the end": {found: looked{asChat: true}, answers: "", asked: 1, failed: "init: the answers end before " +
			"the form of the rows is chosen"},
		"system without": {found: looked{asChat: true}, o: initOptions{system: "x"}, answers: "no\n", asChat: "no",
			system: "x", asked: 1, failed: "init: --system is for conversations: leave it out, or answer yes"},
	} {
		o, out := c.o, strings.Builder{}
		o.lines = bufio.NewReader(strings.NewReader(c.answers))
		again, err := c.found.askForm(&console{err: &out}, &o)
		if again != c.again || o.asChat != c.asChat || o.system != c.system || strings.Count(out.String(),
			question) != c.asked || (err != nil) != (c.failed != "") || err != nil && err.Error() != c.failed {
			t.Errorf("%s: again %v, %q, %q: %v\n%s", name, again, o.asChat, o.system, err, out.String())
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: a control character reaches the terminal: %q", name, out.String())
		}
	}
	o := initOptions{}
	if again, err := (&looked{asChat: true}).askForm(&console{}, &o); again || err != nil || o.asChat != "" {
		t.Errorf("nobody is there: %v, %v", again, err)
	}
}
