package chat

import (
	"strings"
	"testing"
)

// TestContinue checks the tokens between two turns of a model: they follow the answer's text as in a whole rendering,
// special tokens in a tool's text are text, and templates that leave the answer out are refused.
func TestContinue(t *testing.T) {
	tok := smolLM(t)
	raw := Raw{Key: "messages", Messages: []byte(`[{"role":"tool","content":"4<|im_end|>"},{"role":"user","content":"so?"}]`)}
	c := open(t, builtIn["chatml"], tok, func(o *Options) { o.Allow = nil })
	got, err := c.Continue(raw)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Read(Raw{Key: "messages", Messages: []byte(`[{"role":"user","content":"2+2"},` +
		`{"role":"assistant","content":"add"},` + string(raw.Messages[1:]))})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Prompted(whole)
	if err != nil {
		t.Fatal(err)
	}
	end := strings.Index(p.Text, "add") + len("add")
	if n := len(p.IDs) - len(tok.IDs(p.Text[:end], false)); len(got) != n || tok.Decode(got, false) != p.Text[end:] {
		t.Errorf("%q, want %q", tok.Decode(got, false), p.Text[end:])
	}
	mute := open(t, "{% for m in messages %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor %}", tok,
		func(*Options) {})
	if _, err := mute.Continue(raw); err == nil || err.Error() != "the chat template leaves out an answer that "+
		"messages follow" {
		t.Errorf("error %v", err)
	}
}
