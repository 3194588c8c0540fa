package dataset_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
)

// toolsTemplate writes tools, calls and texts.
const toolsTemplate = `{% if tools %}TOOLS {{ tools | tojson }}
{% endif %}{% for m in messages %}{{ m.role }}: {% if m.tool_calls %}{% for c in m.tool_calls %}CALL {{ c.function | tojson }}{% endfor %}{% endif %}{{ m.content or '' }}</s>
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`

// decoded is a row's text; the tokenizer writes a space behind a special token that the text does not have.
func decoded(t *testing.T, set *dataset.Set, row int) string {
	return strings.ReplaceAll(stories(t).Decode(set.Train.Row(row).IDs, false), "</s> ", "</s>")
}

// TestContextIsRead: what stands beside a conversation or an answer and has a known meaning reaches the rows, and what
// nothing reads is named with its rows.
func TestContextIsRead(t *testing.T) {
	for _, c := range []struct {
		name, row, asChat string
		want              string // the first row's text
		unread            string
	}{
		{"ms-swift", `{"query":"And 3+3?","response":"6","history":[["What is 2+2?","4"]],"system":"Answer with a number."}`, "yes",
			"<s>system: Answer with a number.</s>\nuser: What is 2+2?</s>\nassistant: 4</s>\nuser: And 3+3?</s>\nassistant: 6</s>\n", ""},
		{"ms-swift as plain text", `{"query":"And 3+3?","response":"6","history":[["What is 2+2?","4"]],"system":"Answer with a number."}`, "no",
			"<s> And 3+3?\n 6</s>", "history in 1 row, system in 1 row; set dataset.as_chat: yes to read system and history"},
		{"OpenOrca", `{"system_prompt":"Answer like a pirate.","question":"Who are you?","response":"Arr."}`, "yes",
			"<s>system: Answer like a pirate.</s>\nuser: Who are you?</s>\nassistant: Arr.</s>\n", ""},
		{"OpenOrca as plain text", `{"system_prompt":"Answer like a pirate.","question":"Who are you?","response":"Arr."}`, "",
			"<s> Who are you?\n Arr.</s>", "system_prompt in 1 row; set dataset.as_chat: yes to read system and history"},
		{"a context beside a question", `{"context":"Anna has a red car.","question":"Which colour is the car?","answer":"Red."}`, "yes",
			"<s>user: Which colour is the car?</s>\nassistant: Red.</s>\n",
			"context in 1 row; set dataset.format: alpaca and dataset.fields: {instruction: question, input: context, output: answer} to train it behind the question"},
		{"a system column", `{"system":"Answer like a pirate.","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Arr."}]}`, "",
			"<s>system: Answer like a pirate.</s>\nuser: Hi</s>\nassistant: Arr.</s>\n", ""},
		{"system_prompt beside turns", `{"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Arr."}],"system_prompt":"Be a pirate."}`, "",
			"<s>system: Be a pirate.</s>\nuser: Hi</s>\nassistant: Arr.</s>\n", ""},
		{"a system column beside the same message", `{"system":"Be kind.","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}`, "",
			"<s>system: Be kind.</s>\nuser: Hi</s>\nassistant: Ho</s>\n", ""},
		{"a system column beside another message", `{"system":"Be rude.","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}`, "",
			"<s>system: Be kind.</s>\nuser: Hi</s>\nassistant: Ho</s>\n", "system in 1 row"},
		{"a system column beside a system turn", `{"system":"Be rude.","conversations":[{"from":"system","value":"Be kind."},{"from":"human","value":"Hi"},{"from":"gpt","value":"Ho"}]}`, "",
			"<s>system: Be kind.</s>\nuser: Hi</s>\nassistant: Ho</s>\n", "system in 1 row"},
		{"a system message alone", `{"system":"","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}`, "",
			"<s>system: Be kind.</s>\nuser: Hi</s>\nassistant: Ho</s>\n", ""},
		{"functions", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"No call."}],"functions":[{"name":"f","parameters":{}}]}`, "",
			`<s>TOOLS [{"type": "function", "function": {"name": "f", "parameters": {}}}]` + "\nuser: Hi</s>\nassistant: No call.</s>\n", ""},
		{"functions as text", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"No call."}],"functions":"[{\"name\":\"f\"}]"}`, "",
			`<s>TOOLS [{"type": "function", "function": {"name": "f"}}]` + "\nuser: Hi</s>\nassistant: No call.</s>\n", ""},
		{"functions that are tools", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"No call."}],"functions":[{"type":"function","function":{"name":"f"}}]}`, "",
			`<s>TOOLS [{"type": "function", "function": {"name": "f"}}]` + "\nuser: Hi</s>\nassistant: No call.</s>\n", ""},
		{"tools as texts", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"No call."}],"tools":["{\"name\":\"f\"}"],"functions":[]}`, "",
			`<s>TOOLS [{"name": "f"}]` + "\nuser: Hi</s>\nassistant: No call.</s>\n", ""},
		{"bookkeeping", `{"id":7,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}],"prompt_id":"x","source":"web","notes":"n","empty":"","none":null,"list":[ ],"Unnamed: 0":1,"":2,"a\u001bb":3}`, "",
			"<s>user: Hi</s>\nassistant: Ho</s>\n", `notes in 1 row, "a\x1bb" in 1 row; bookkeeping: id, prompt_id, source, Unnamed: 0, ""`},
	} {
		set, report, err := withSources(t, c.row, toolsTemplate, "<s>", "</s>", func(cfg *dataset.Config) { cfg.AsChat = c.asChat })
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := decoded(t, set, 0)
		if strings.TrimPrefix(got, "<s>") != strings.TrimPrefix(c.want, "<s>") {
			t.Errorf("%s:\n%q\nwant\n%q", c.name, got, c.want)
		}
		if keys := report.KeysNotRead(); keys != c.unread {
			t.Errorf("%s: not read: %s\nwant %s", c.name, keys, c.unread)
		}
		if named := strings.Contains(report.String(), "\n  keys not read: "+c.unread+"\n"); named != (c.unread != "") {
			t.Errorf("%s: %v", c.name, report)
		}
	}
}

// TestUnreadIsCounted: over rows and files, in the report that a run keeps, with bounds.
func TestUnreadIsCounted(t *testing.T) {
	turns := `"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]`
	rows := `{` + turns + `,"notes":"a"}` + "\n" + `{"functions":[{"name":"f"}],` + turns + `,"notes":"","context":{"a":1}}` + "\n" +
		`{` + turns + `,"notes":"b","tools":[],"functions":[{"name":"g"}]}`
	set, report, err := withSources(t, rows, toolsTemplate, "<s>", "</s>", func(*dataset.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", `"f"`, `"g"`} { // the first row's keys are not the only ones
		if got := decoded(t, set, i); !strings.Contains(got, want) || strings.Contains(got, "TOOLS") != (want != "") {
			t.Errorf("row %d: %q", i, got)
		}
	}
	if got := report.KeysNotRead(); got != "notes in 2 rows, context in 1 row" {
		t.Errorf("not read: %s", got)
	}
	if w := report.Warnings(); !slices.Contains(w, "keys not read: notes in 2 rows, context in 1 row") {
		t.Errorf("warnings: %q", w)
	}
	var kept struct {
		Unread []struct {
			Key  string
			Rows int
		} `json:"unread_keys"`
	}
	raw, err := json.Marshal(report)
	if err := json.Unmarshal(raw, &kept); err != nil || len(kept.Unread) != 2 || kept.Unread[1].Key != "context" || kept.Unread[0].Rows != 2 {
		t.Errorf("%s: %v", raw, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `{"text":"a","key%d%s":1}`+"\n", i, strings.Repeat("x", 500))
	}
	_, report, err = withSources(t, many.String(), "", "", "", func(*dataset.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Unread) != 64 || report.UnreadMore != 36 || len(report.KeysNotRead()) > 6000 || !strings.HasSuffix(report.KeysNotRead(), ", and others") {
		t.Errorf("%d keys, %d more: %s", len(report.Unread), report.UnreadMore, report.KeysNotRead())
	}
}

// TestTwoFormatsThatFit: a row that holds a conversation and a prompt with its answer is trained as neither by itself.
func TestTwoFormatsThatFit(t *testing.T) {
	turns := `[{"from":"human","value":"first"},{"from":"gpt","value":"one"},{"from":"human","value":"last question"},{"from":"gpt","value":"last answer"}]`
	for _, c := range []struct{ row, format, want string }{
		{`{"instruction":"last question","response":"last answer","conversations":` + turns + `}`, "",
			"the keys instruction, response, conversations fit the formats alpaca (instruction, response) and sharegpt (conversations): set dataset.format to the one to train on"},
		{`{"instruction":"last question","response":"last answer","conversations":` + turns + `}`, "sharegpt", "user: first</s>\nassistant: one</s>\n"},
		{`{"instruction":"last question","response":"last answer","conversations":` + turns + `}`, "alpaca", "### Instruction:\nlast question"},
		{`{"prompt":"a","chosen":"b","rejected":"c","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, "", "fit the formats preference (chosen, rejected) and messages (messages)"},
		{`{"question":"a","answer":"b","instruction":"c","output":"d"}`, "", "fit the formats alpaca (instruction, output) and completion (question, answer)"},
		{`{"instruction":"a","input":"","output":"b","text":"c"}`, "", "### Instruction:\na"}, // Stanford's own file
	} {
		set, report, err := withSources(t, c.row, toolsTemplate, "<s>", "</s>", func(cfg *dataset.Config) { cfg.Format = c.format })
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = decoded(t, set, 0)
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s, %q: %s\nwant %s\n%v", c.row, c.format, text, c.want, report)
		}
	}
}

// TestToolsThatATemplateDoesNotWrite: they are counted and said, all of them or those that are left out.
func TestToolsThatATemplateDoesNotWrite(t *testing.T) {
	const turns = `{% for m in messages %}{{ m.role + ':' + m.content + '</s>' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}`
	row := func(tools string) string {
		return `{"messages":[{"role":"user","content":"look"},{"role":"assistant","content":"see"}],"tools":` + tools + `}`
	}
	two := `[{"type":"function","function":{"name":"look"}},{"name":"see"}]`
	for _, c := range []struct {
		template, row        string
		tools, conversations int
		said                 string
	}{
		{turns, row(two), 2, 1, "\n  tools: the template does not write 2 tools of 1 conversation: "},
		{turns, row(two) + "\n" + row("null") + "\n" + row("[]") + "\n" + row(two), 4, 2, "\n  tools: the template does not write 4 tools of 2 conversations: "},
		{"{% if tools %}{{ tools | tojson }}{% endif %}" + turns, row(two), 0, 0, ""},
		{"{% if tools %}{{ tools[0] | tojson }}{% endif %}" + turns, row(two), 1, 1, "1 tool of 1 conversation"}, // the messages have the other's name
		{"{% if tools %}You may call tools.{% endif %}" + turns, row(two), 2, 1, "2 tools of 1 conversation"},
		{"{% if not tools is defined or not tools %}none{% endif %}" + turns, row(`[{"name":"f"}]`), 1, 1, "1 tool of"},
		{turns, row("null"), 0, 0, ""},
	} {
		set, report, err := withSources(t, c.row, c.template, "<s>", "</s>", func(*dataset.Config) {})
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		if got := report.Chat; got.Tools != c.tools || got.Toolless != c.conversations || !strings.Contains(report.String(), c.said) || strings.Contains(report.String(), "\n  tools:") != (c.said != "") {
			t.Errorf("%s, %d rows: %d tools of %d conversations\n%v", c.template, set.Train.Len(), got.Tools, got.Toolless, report)
		}
	}
}
