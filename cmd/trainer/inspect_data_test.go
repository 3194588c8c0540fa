package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
)

// hostile is a conversation whose texts would steer a terminal or a browser.
const hostile = `{"messages":[{"role":"user","content":"<script>alert(1)</script> \u001b[31m \u202e\u0007 </s> \\n & ` +
	`\"q\""},{"role":"assistant","content":"A\ncat."}]}` + "\n" +
	`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"no","weight":0},{"role":"user","content":"ho"},{"role":"assistant","content":"yes"}]}` + "\n"

func hostilePlace(t *testing.T) string {
	t.Helper()
	dir := chatPlace(t)
	put(t, dir, map[string]string{"talks.jsonl": hostile, "folder/x": "", "notes.txt": "mine"})
	return dir
}

func TestInspectConversations(t *testing.T) {
	dir := hostilePlace(t)
	code, out, errOut := trainer(t, dir, nil, "", "inspect", "data", "run.yaml") // which looks for escape sequences
	for _, want := range []string{
		"\n  special tokens: 1 inside the messages of 1 rows, read as plain text: </s> in 1 row\n",
		"\n  batches: 1 per epoch, of ",
		"\ntalks.jsonl:1 (train): ", "\n-- user, message 0: ", "\n-- assistant, message 1: ",
		" trained, special, ends the turn\n", `"<0x1B>"`,
		"\n-- assistant, message 1: 11 tokens, none trained\n", "\n-- assistant, message 3: 3 of 11 tokens trained\n",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errOut)
		}
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--json")
	var rows []dataset.Inspected
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 2 ||
		len(rows[1].Parts) != 4 || rows[1].Parts[3].Role != "assistant" || rows[1].Parts[1].Trained != 0 {
		t.Errorf("--json: exit code %d, %v, %+v\n%s", code, err, rows, errOut)
	}
}

// In a terminal the text runs on, and nothing in it steers the terminal: the only escape sequences are ours.
func TestInspectedRowsInColour(t *testing.T) {
	row := dataset.Inspected{Where: "d.jsonl:1", Split: "train", Trained: 2, Cut: 3,
		Parts: []dataset.Part{{Role: "user", Message: 0, From: 0, To: 2}, {Role: "assistant", Message: 1, From: 2,
			To: 5, Trained: 2}},
		Tokens: []dataset.Token{
			{ID: 7, Piece: "x", Text: "a\x1b[31m\n\u202e\u0085"}, {ID: 1, Piece: "<s>", Text: "<s>", Special: true},
			{ID: 9, Piece: "\x80"},
			{ID: 8, Piece: "y", Text: `b\n`, Trained: true, Across: true}, {ID: 2, Piece: "</s>", Text: "</s>",
				Trained: true, Special: true, End: true},
		}}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	showRows(w, []dataset.Inspected{row}, make([]rowImages, 1), true, 0)
	w.Flush()
	plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(b.String(), "")
	_, shown, _ := strings.Cut(plain, "d.jsonl:1")
	want := ` (train): 5 tokens, 2 trained, 3 cut off at max_length
user, message 0: 2 tokens, none trained
a\x1b[31m\n
\u202e\u0085<s>
assistant, message 1: 2 of 3 tokens trained
·⟨b\\n⟩</s>∎
`
	if shown != want {
		t.Errorf("%q\nwant\n%q", shown, want)
	}
	for _, line := range strings.Split(b.String(), "\n")[2:] { // behind the legend
		if strings.Contains(line, "\x1b[") && !strings.HasSuffix(line, styleOff) {
			t.Errorf("a style goes on behind its line: %q", line)
		}
	}
	if strings.Contains(strings.ReplaceAll(b.String(), "\x1b[31m", ""), "\u202e") ||
		strings.Contains(b.String(), "\x1b[31m") {
		t.Errorf("a control character comes through: %q", b.String())
	}
}

func TestInspectPage(t *testing.T) {
	dir := hostilePlace(t)
	for range 2 { // its own page is written again
		code, out, errOut := trainer(t, dir, nil, "", "inspect", "data", "run.yaml", "--html", "rows.html")
		if code != 0 || out != "rows.html: 2 rows\n" {
			t.Fatalf("exit code %d, %q\n%s", code, out, errOut)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "rows.html"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	_, style, _ := strings.Cut(page, "<style>")
	style, body, _ := strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	if want := `content="default-src 'none'; style-src 'sha256-` + base64.StdEncoding.EncodeToString(sum[:]) +
		`'; img-src data:; base-uri 'none'; form-action 'none'"`; !strings.Contains(page, want) {
		t.Errorf("the policy does not allow the page's own style: want %s", want)
	}
	for _, bad := range []string{"<script", "javascript:", "http:", "https:", " style=", " on", "\x1b", "\u202e",
		"\x07", "url("} {
		if bad == " on" {
			if m := regexp.MustCompile(`<[^>]* on[a-z]+=`).FindString(body); m != "" {
				t.Errorf("the page has a handler: %s", m)
			}
		} else if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	// What a browser shows of the first row is the row.
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, ""))
	for _, want := range []string{"<script>alert(1)</script>", `\x1b[31m`, `\u202e`, "A↵\ncat.", "assistant message 1",
		"special tokens", "every message of the assistant"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q:\n%s", want, text)
		}
	}
	for _, want := range []string{`id 2, &lt;/s&gt;, trained, special, ends the turn">`, `<b class="s e"`,
		"prefers-color-scheme: dark", "@media print", `name="viewport"`, "How to read it"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for args, want := range map[string]string{
		"folder":             "--html folder: this is a folder: name a file in it",
		"notes.txt":          "--html notes.txt: there is a file that this command did not write: name another one",
		"":                   "--html '': name a file",
		"rows.html --json":   "--html and --json: give one of them",
		"none/there/is.html": "",
	} {
		flags := strings.Split(args, " ")
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"inspect", "data", "run.yaml", "--html"},
			flags...)...)
		if want != "" && (code != 2 || out != "" || errOut != "trainer: "+want+"\n") || code == 0 {
			t.Errorf("--html %s: exit code %d, %q, %q; want %q", args, code, out, errOut, want)
		}
	}
	if notes, err := os.ReadFile(filepath.Join(dir, "notes.txt")); err != nil || string(notes) != "mine" {
		t.Errorf("notes.txt is %q, %v", notes, err)
	}
}

// A page of very long rows stays one that a browser can show.
func TestPageIsBounded(t *testing.T) {
	row := dataset.Inspected{Tokens: make([]dataset.Token, 2*pageTokens),
		Parts: []dataset.Part{{Role: "text", Message: -1, To: 2 * pageTokens}, {Role: "text", Message: -1,
			From: 2 * pageTokens, To: 2 * pageTokens}}}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	dataPage{Report: &dataset.Report{}, Rows: []dataset.Inspected{row}}.write(w)
	w.Flush()
	if n := strings.Count(b.String(), "title=\""); n != pageTokens ||
		strings.Count(b.String(), `class="t long"`) != pageTokens/blockTokens || !strings.Contains(b.String(),
		"the rest of this row is left out") {
		t.Errorf("%d tokens on the page", n)
	}
}

func TestInspectModelTemplate(t *testing.T) {
	dir := chatPlace(t)
	code, out, errOut := trainer(t, dir, nil, "", "inspect", "template", "--model", "model")
	want := "model       model, templates default\n\ntemplate    the model's default template, "
	if code != 0 || !strings.HasPrefix(out, want) ||
		!strings.Contains(out, "\nturn ends   \"</s>\"; generation stops at </s>\nprompt      \"assistant:\"\nmasks  "+
			"     by renderings of the conversation before and with each turn\n") ||
		!strings.HasSuffix(out, "writes      system, tool results\nleaves out  tools, tool calls, reasoning\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	code, out, errOut = trainer(t, dir, nil, "", "inspect", "template", "--model", "model", "--json")
	var answer modelTemplatesJSON
	if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil || len(answer.Templates) != 1 ||
		answer.Templates[0].EndOfTurn != "</s>" || answer.Templates[0].Generation {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, errOut)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"both": {[]string{"--model", "model", "--file", "x"},
			"--model tells of the model's own template, --file renders with another: give one of them"},
		"none": {[]string{"--model", golden.StoriesDir(t)}, "the model's files hold no chat template " +
			"(chat_template.jinja, or chat_template in tokenizer_config.json), so a conversation has no text: " +
			"name one by --chat-template, a .jinja file or one of chatml, vicuna, zephyr"},
	} {
		if code, _, errOut := trainer(t, dir, nil, "", append([]string{"inspect", "template"},
			c.args...)...); code != 2 || errOut != "trainer: "+c.want+"\n" {
			t.Errorf("%s: exit code %d, %s", name, code, errOut)
		}
	}
}

// TestPaddingIsPlanned: inspect data and plan report the same padding, whatever divides the rows of a step.
func TestPaddingIsPlanned(t *testing.T) {
	t.Parallel()
	padding := regexp.MustCompile(`[0-9.]+% padding`)
	for _, sets := range [][]string{
		nil, {"training.epochs=3"}, {"training.batch_size=2", "training.gradient_accumulation_steps=4"}, {"devices=2"},
		{"dataset.packing=true"},
	} {
		said := map[string]string{}
		for _, command := range [][]string{{"plan"}, {"inspect", "data"}} {
			args := append(command, "cpu_stories_quick.yaml", "--set", "device=cpu", "--set", "dataset.max_length=256")
			for _, set := range sets {
				args = append(args, "--set", set)
			}
			code, out, errOut := trainer(t, t.TempDir(), nil, "", args...)
			if code != 0 {
				t.Fatal(errOut)
			}
			said[command[0]] = padding.FindString(out)
		}
		if said["plan"] == "" || said["plan"] != said["inspect"] {
			t.Errorf("%v: plan says %q, inspect data %q", sets, said["plan"], said["inspect"])
		}
	}
}
