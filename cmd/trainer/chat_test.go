package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
)

// TestChatOnAPipe: one answer a line, the history is part of the next prompt, and the commands do what they say.
func TestChatOnAPipe(t *testing.T) {
	dir := chatPlace(t)
	if code, _, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "--set",
		"training.learning_rate=0.1"); code != 0 {
		t.Fatal(errOut)
	}
	generated := func(args ...string) string {
		t.Helper()
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"generate", "--json", "--device", "cpu",
			"--model", "model", "--max-tokens", "6"}, args...)...)
		var got infer.Generated
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatal(code, err, errOut)
		}
		return got.Text
	}
	first := generated("--chat", "--prompt", "hi")
	adapted := generated("--chat", "--prompt", "hi", "--adapter", "out")
	history, err := json.Marshal([]turn{{Role: "user", Content: "hi"}, {Role: "assistant", Content: first},
		{Role: "user", Content: "two\nlines"}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, map[string]string{"history.json": string(history), "kept.jsonl": "{\"messages\":[]}"})
	second := generated("--messages", "history.json")
	if first == adapted {
		t.Fatal("the adapter changes nothing")
	}
	in := strings.Join([]string{
		"hi", `two\`, "lines", "/undo", `"""`, "two", `lines"""`, "/retry", "/save kept.jsonl", "/reset",
		"/adapter o", "hi", "/adapter none", "/reset", "hi", "/help", "/set", "/set temperature 0.5",
		"/set temperature=0", "/system Be kind.", "/system", "/system none",
		"/adapter", "/exit", "never read",
	}, "\n")
	code, out, errOut := trainer(t, dir, nil, in, "chat", "--model", "model", "--adapter", "o=out", "--device", "cpu",
		"--max-tokens", "6")
	if code != 0 {
		t.Fatal(code, errOut)
	}
	_ = second
	answers := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	line := func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }
	if len(answers) != 6 || answers[0] != line(adapted) || answers[4] != line(adapted) || answers[5] != line(first) ||
		answers[1] != answers[2] || answers[2] != answers[3] {
		t.Errorf("%d answers: %q; want %q with the adapter, %q without\n%s", len(answers), answers,
			adapted, first, errOut)
	}
	for _, want := range []string{"taken back; 2 messages are left", "adapter o answers from here on",
		"the base model answers from here on; ", "  /retry ", "  temperature          0", "system: Be kind.",
		"temperature is 0.5 from here on"} {
		if want = strings.TrimSuffix(want, "; "); !strings.Contains(errOut, want) {
			t.Errorf("no %q in\n%s", want, errOut)
		}
	}
	saved, err := os.ReadFile(filepath.Join(dir, "kept.jsonl"))
	if rows := strings.Split(string(saved), "\n"); err != nil || len(rows) != 3 || rows[0] != `{"messages":[]}` ||
		!strings.HasPrefix(rows[1], `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":`) ||
		!strings.Contains(rows[1], `"content":"two\nlines"`) {
		t.Errorf("%v: %s", err, saved)
	}
	// What was saved trains.
	put(t, dir, map[string]string{"rows.jsonl": strings.SplitAfterN(string(saved), "\n", 2)[1]})
	if code, _, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "--set", "dataset.path=rows.jsonl", "--set",
		"training.batch_size=1", "--set", "training.max_steps=1", "--set", "output_dir=again"); code != 0 {
		t.Errorf("training on it: %d %s", code, errOut)
	}
	// The one adapter alone.
	code, out, errOut = trainer(t, dir, nil, "hi\n/adapter none\n", "chat", "--model", "model", "--adapter", "out",
		"--adapter-only", "--device", "cpu", "--max-tokens", "6")
	if code != 2 || out != line(adapted)+"\n" ||
		!strings.HasSuffix(errOut, "trainer: with --adapter-only the base model does not answer by itself\n") {
		t.Errorf("exit code %d, %q, want %q\n%s", code, out, adapted, errOut)
	}
	// The same conversation without the adapter answers as generate does.
	code, out, errOut = trainer(t, dir, nil, "hi\n\"\"\"\ntwo\nlines\n\"\"\"\n", "chat", "--model", "model", "--device",
		"cpu", "--max-tokens", "6", "--json")
	var got []said
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var s said
		if err := d.Decode(&s); err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	if code != 0 || len(got) != 2 || got[0].Text != first || got[1].Text != second || got[0].Tokens == 0 ||
		got[0].Stopped == "" {
		t.Errorf("exit code %d, %+v, want %q and %q\n%s", code, got, first, second, errOut)
	}
}

// TestBrokenChat: what is wrong, with the whole words and the exit code.
func TestBrokenChat(t *testing.T) {
	t.Parallel()
	dir := chatPlace(t)
	for _, c := range []struct {
		in   string
		args []string
		code int
		want string
	}{
		{"/foo\n", nil, 2, "there is no command /foo; /help lists them"},
		{"/quit\n", nil, 2, "there is no command /quit; /exit ends, as Ctrl-D does"},
		{"/bye\n", nil, 2, "there is no command /bye; /exit ends, as Ctrl-D does"},
		{"/hepl\n", nil, 2, "there is no command /hepl; the nearest is /help"},
		{"/adapter x\n", nil, 2, "there is no adapter x; there are none"},
		{"/retry\n", nil, 2, "there is no message to answer again"},
		{"/undo\n", nil, 2, "there is nothing to take back"},
		{"/save\n", nil, 2, "want a file: /save talks.jsonl"},
		{"/save x.jsonl\n", nil, 2, "there is nothing to save yet"},
		{"hi\n/save gone/x.jsonl\n", nil, 2, "save the conversation: open gone/x.jsonl: no such file or directory"},
		{"/set heat 1\n", nil, 2, "there is no setting heat; there are temperature, top_p, top_k, min_p, " +
			"repetition_penalty, presence_penalty, frequency_penalty, seed, max_tokens"},
		{"/set temperature\n", nil, 2, "want a name and a value, such as /set temperature 0.2"},
		{"/set temperature hot\n", nil, 2, "temperature: hot is not a number that it takes"},
		{"/set temperature -1\n", nil, 2, "temperature is -1: must lie in 0 to 100"},
		{"/set max_tokens 0\n", nil, 2, "max_tokens is 0: must be at least 1"},
		{strings.Repeat("word ", 200) + "\n", []string{"--max-length", "64"}, 2, "the conversation has 614 tokens, " +
			"and there is room for 64: /undo takes back the last exchange, /reset all; --max-length gives more"},
		{"", []string{"--max-tokens", "0"}, 2, "--max-tokens 0: must be at least 1"},
		{"", []string{"--temperature", "-1"}, 2, "temperature is -1: must lie in 0 to 100"},
		{"", []string{"--adapter", "none=x"}, 2,
			"--adapter none=x: the name none is taken: give it another, --adapter OTHER=x"},
	} {
		code, _, errOut := trainer(t, dir, nil, c.in, append([]string{"chat", "--model", "model", "--device", "cpu",
			"--max-tokens", "3"}, c.args...)...)
		if code != c.code || !strings.HasSuffix(errOut, "trainer: "+c.want+"\n") {
			t.Errorf("%q %q: exit code %d, %s", c.in, c.args, code, errOut)
		}
	}
}
