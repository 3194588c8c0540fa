package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
)

// TestForms: response_format and a tool_choice that asks for a call reach the engine as a form, and what was asked for
// comes back in OpenAI's form, whole and streamed.
func TestForms(t *testing.T) {
	e := newFake(t, 1)
	var seen []Sampling
	var prompts []infer.Prompt
	answer := ""
	e.words = func(p infer.Prompt, _ string, o Sampling, n int) string {
		if n == 0 {
			seen, prompts = append(seen, o), append(prompts, p)
			return answer
		}
		return ""
	}
	l := library(t, talkTemplate)
	w := open(t, l, e, Options{})
	body := func(more string) string {
		return `{"model":"base","messages":[{"role":"user","content":"hi"}]` + more + `}`
	}
	follows := func(text string) bool {
		a := seen[len(seen)-1].Form.Start()
		for i := range len(text) {
			if !a.Next(text[i]) {
				return false
			}
		}
		return a.Done()
	}
	answer = `{"a":1}`
	for _, c := range [][3]string{
		{`{"type":"json_object"}`, `{"a":1}`, `[]`},
		{`{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}`, `{"a":1}`, `{"b":1}`},
	} {
		_, text := w.post(t, "/v1/chat/completions", body(`,"response_format":`+c[0]))
		if got := decode[chatReply](t, text).Choices[0]; got.Finish != "stop" || *got.Message.Content != answer {
			t.Error(text)
		}
		if !follows(c[1]) || follows(c[2]) {
			t.Errorf("%s: another form", c[0])
		}
	}
	const tools = `,"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"type":"string"}},"required":["at"],"additionalProperties":false}}},
		{"type":"function","function":{"name":"listen"}}]`
	answer = `{"name": "look", "arguments": {"at":"sky"}}`
	for choice, other := range map[string]bool{`"required"`: true,
		`{"type":"function","function":{"name":"look"}}`: false} {
		_, text := w.post(t, "/v1/chat/completions", body(tools+`,"tool_choice":`+choice))
		got := decode[chatReply](t, text).Choices[0]
		if got.Finish != "tool_calls" || got.Message.Content != nil || len(got.Message.ToolCalls) != 1 ||
			got.Message.ToolCalls[0].Function != (functionCall{"look", `{"at":"sky"}`}) {
			t.Error(text)
		}
		if !follows(answer) || follows(`{"name": "look", "arguments": {}}`) ||
			follows(`{"name": "listen", "arguments": {}}`) != other {
			t.Errorf("%s: another form", choice)
		}
		if ids := prompts[len(prompts)-1].IDs; !strings.HasSuffix(l.Tokenizer.Decode(ids, false), "<tool_call>\n") {
			t.Errorf("the prompt ends with %q", l.Tokenizer.Decode(ids, false))
		}
		_, text = w.post(t, "/v1/chat/completions", body(tools+`,"stream":true,"tool_choice":`+choice))
		var calls []call
		for _, event := range streamOf(t, text) {
			d := decode[chatChunk](t, event).Choices[0]
			calls = append(calls, d.Delta.ToolCalls...)
			if c := d.Delta.Content; c != nil && *c != "" {
				t.Errorf("text beside the call: %q", *c)
			}
		}
		if len(calls) != 1 || !json.Valid([]byte(calls[0].Function.Arguments)) {
			t.Error(text)
		}
	}
}
