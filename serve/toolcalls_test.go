package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
)

const (
	hermes  = "<tool_call>\n{\"name\": <function-name>}\n</tool_call>"
	mistral = "[AVAILABLE_TOOLS] [TOOL_CALLS]"
	llama   = `Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}`
)

// TestToolCalls: how each family writes calls, in pieces of every length, and what is none.
func TestToolCalls(t *testing.T) {
	for _, c := range []struct{ template, text, content, calls string }{
		{hermes, `<tool_call>` + "\n" + `{"name": "look", "arguments": {"at": "sky"}}` + "\n</tool_call>", "",
			`look({"at":"sky"})`},
		{hermes,
			"I look.\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{\"x\":[1,2]}}</tool_call>", "I look.\n", `a({}) b({"x":[1,2]})`},
		{hermes, `<tool_call>{"name":"a","arguments":{"n":1}}`, "", `a({"n":1})`},
		{hermes, `<tool_call>{"name":"a","arguments":{"n":`, `<tool_call>{"name":"a","arguments":{"n":`, ""},
		{hermes, `<tool_call>{"name":"a","arguments":{"s":"</tool_call> and <tool_call>"}}</tool_call>`, "",
			`a({"s":"</tool_call> and <tool_call>"})`},
		{hermes, `<tool_call>{"name":"a","arguments":{}}</tool_`, "", `a({})`},
		{hermes, `<tool_call>{"name":"a","arguments":{}} and</tool_call>`,
			`<tool_call>{"name":"a","arguments":{}} and</tool_call>`, ""},
		{hermes, `<tool_call>{"name":7}</tool_call>`, `<tool_call>{"name":7}</tool_call>`, ""},
		{hermes, `1 <tool 2 < 3`, `1 <tool 2 < 3`, ""},
		{hermes, `ends with <tool_c`, `ends with <tool_c`, ""},
		{mistral, `[TOOL_CALLS] [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": "{\"y\": 2}"}]`, "",
			`a({"x":1}) b({"y": 2})`},
		{mistral, `[TOOL_CALLS]a[ARGS]{"x": 1}[TOOL_CALLS]b[CALL_ID]123456789[ARGS]{}`, "", `a({"x":1}) b({})`},
		{mistral, `[TOOL_CALLS]a[ARGS]{"x": "[TOOL_CALLS]b[ARGS]"}`, "", `a({"x":"[TOOL_CALLS]b[ARGS]"})`},
		{mistral, `[TOOL_CALLS] [{"name": "a", "arguments": {"x": "[TOOL_CALLS]"}}]`, "", `a({"x":"[TOOL_CALLS]"})`},
		{mistral, `[TOOL_CALLS] nonsense`, `[TOOL_CALLS] nonsense`, ""},
		{llama, `{"name": "a", "parameters": {"x": "1"}}`, "", `a({"x":"1"})`},
		{llama, `<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"k": null}}`, "",
			`a({}) b({"k":null})`},
		{llama, `{"answer": 42}`, `{"answer": 42}`, ""},
		{llama, `The JSON is {"name": "a", "parameters": {}}`, `The JSON is {"name": "a", "parameters": {}}`, ""},
		{"no format", `<tool_call>{"name":"a","arguments":{}}</tool_call>`,
			`<tool_call>{"name":"a","arguments":{}}</tool_call>`, ""},
	} {
		for _, size := range []int{1, 3, 7, 1000} {
			r := callReader{format: callsOf(c.template)}
			content := ""
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				content += r.push(rest[:n])
				rest = rest[n:]
			}
			text, calls := r.finish()
			content += text
			var got []string
			for _, call := range calls {
				if call.ID == "" || call.Type != "function" || !json.Valid([]byte(call.Function.Arguments)) {
					t.Errorf("%+v", call)
				}
				got = append(got, fmt.Sprintf("%s(%s)", call.Function.Name, call.Function.Arguments))
			}
			want := strings.ReplaceAll(c.calls, `{"y": 2}`, `{"y":2}`)
			if content != c.content || strings.Join(got, " ") != want {
				t.Errorf("%q by %d: content %q, calls %q; want %q, %q", c.text, size, content, got, c.content, want)
			}
		}
	}
}

// TestToolCallsOfAServer: tools reach the template, and calls come back in OpenAI's form, whole and streamed.
func TestToolCallsOfAServer(t *testing.T) {
	e := newFake(t, 1)
	answer := []string{"Let me see. ", "<tool", "_call>\n{\"name\": \"look\",",
		" \"arguments\": {\"at\": \"sky\"}}\n</tool_call>", ""}
	var prompts []int
	e.words = func(p infer.Prompt, _ string, _ Sampling, n int) string {
		if n == 0 {
			prompts = append(prompts, len(p.IDs))
		}
		return answer[n]
	}
	w := open(t, library(t, talkTemplate), e, Options{})
	const tools = `,"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`
	body := func(more string) string {
		return `{"model":"base","messages":[{"role":"user","content":"hi"}]` + more + `}`
	}
	_, text := w.post(t, "/v1/chat/completions", body(tools))
	got := decode[chatReply](t, text).Choices[0]
	if got.Finish != "tool_calls" || *got.Message.Content != "Let me see. " || len(got.Message.ToolCalls) != 1 ||
		got.Message.ToolCalls[0].Function != (functionCall{"look", `{"at":"sky"}`}) {
		t.Error(text)
	}
	_, text = w.post(t, "/v1/chat/completions", body(tools+`,"stream":true`))
	content, finish := "", ""
	var calls []call
	for _, event := range streamOf(t, text) {
		d := decode[chatChunk](t, event).Choices[0]
		if d.Delta.Content != nil {
			content += *d.Delta.Content
		}
		calls = append(calls, d.Delta.ToolCalls...)
		if d.Finish != nil {
			finish = *d.Finish
		}
	}
	if content != "Let me see. " || finish != "tool_calls" || len(calls) != 1 || calls[0].Index == nil ||
		*calls[0].Index != 0 || calls[0].Function.Name != "look" {
		t.Error(text)
	}
	for _, more := range []string{"", tools + `,"tool_choice":"none"`} { // nobody asked for calls
		_, text = w.post(t, "/v1/chat/completions", body(more))
		if got := decode[chatReply](t, text).Choices[0]; got.Finish != "stop" || !strings.Contains(*got.Message.Content,
			"<tool_call>") {
			t.Error(text)
		}
	}
	if len(prompts) != 4 || prompts[0] != prompts[1] || prompts[0] <= prompts[2] || prompts[2] != prompts[3] {
		t.Errorf("prompts of %v tokens: the tools did not reach the template", prompts)
	}
	// The conversation continues with the call and its result, and a developer's message is the system's.
	status, text := w.post(t, "/v1/chat/completions",
		`{"model":"base","messages":[{"role":"developer","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"hi"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\":\"sky\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"blue"}]}`)
	if status != 200 {
		t.Error(text)
	}
}

// TestNoCallsInHistory: clients send back messages with every key of the reply, null or empty where nothing was called.
// The prompt is the one without these keys, with templates that ask whether a message has calls.
func TestNoCallsInHistory(t *testing.T) {
	const template = "{% for m in messages %}{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}{{ " +
		"raise_exception('one call') }}{% endif %}" +
		"{{ m.role + m.content + m.tool_calls[0].function.name }}{% else %}{{ m.role + m.content }}{% endif %}</s>{% " +
		"endfor %}"
	l := library(t, template)
	prompt := func(plain, calling string) string {
		t.Helper()
		r, err := l.conversation(
			[]byte(`{"model":"base","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"` +
				plain + `},{"role":"user","content":"look"},
			{"role":"assistant"` + calling + `,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"blue"}]}`))
		if err != nil {
			t.Fatalf("%s%s: %v", plain, calling, err)
		}
		return fmt.Sprint(r.prompts[0].IDs)
	}
	want := prompt("", `,"content":""`)
	for _, plain := range []string{`,"tool_calls":[]`, `,"tool_calls":null`,
		`,"tool_calls":null,"function_call":null,"refusal":null,"annotations":[],"audio":null`} {
		for _, calling := range []string{"", `,"content":null`} {
			if got := prompt(plain, calling); got != want {
				t.Errorf("%s%s: %q, want %q", plain, calling, got, want)
			}
		}
	}
}
