package chat

import (
	"testing"

	"github.com/tierlora/tierlora/text/jinja"
)

// endTokenizer knows an end token, which the model's files need not name.
type endTokenizer struct{ markTokenizer }

func (endTokenizer) EOS() (int32, bool)         { return markID("</s>"), true }
func (endTokenizer) Token(int32) (string, bool) { return "</s>", true }

// TestBuiltInEnds: a model without tokenizer_config.json names no eos_token, which two of the built-in templates write.
func TestBuiltInEnds(t *testing.T) {
	talk := `[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]`
	named := jinja.NewDict()
	named.Set("eos_token", jinja.Str("<eos>"))
	for _, c := range []struct {
		template string
		tokens   *jinja.Dict
		want     string
	}{
		{"vicuna", jinja.NewDict(), `[" a</s>"]`},
		{"zephyr", nil, `["a</s>"]`},
		{"zephyr", named, `["a<eos>"]`},
		{"chatml", nil, `["a<|im_end|>"]`},
	} {
		chat, err := New(&Sources{Tokens: c.tokens}, c.template, endTokenizer{}, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		conv, err := Read(Raw{Key: "messages", Messages: []byte(talk)})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := chat.Rows(conv)
		if err != nil || spans(rows) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.template, spans(rows), err, c.want)
		}
	}
	own, err := New(&Sources{Templates: map[string]string{"default": "{{ eos_token is defined }}"}}, "", endTokenizer{}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := own.plain.Text(&Conversation{}, false); text != "False" || err != nil {
		t.Errorf("a model's own template: %s, %v: transformers defines no eos_token there", text, err)
	}
}

// TestMessagesAsText: a column of a CSV file can hold a list only as text.
func TestMessagesAsText(t *testing.T) {
	for _, text := range []string{
		`"[{\"role\":\"user\",\"content\":\"u\\n\"},{\"role\":\"assistant\",\"content\":\"a\"}]"`,
		`" [{\"from\":\"human\",\"value\":\"u\\n\"},{\"from\":\"gpt\",\"value\":\"a\"}] "`,
	} {
		conv, err := Read(Raw{Key: "messages", Messages: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := newChat(t, builtIn["chatml"], "<s>", "</s>", nil).Rows(conv)
		if err != nil || len(rows) != 1 || rows[0].Text != "<|im_start|>user\nu\n<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n" {
			t.Errorf("%s: %v, %v", text, rows, err)
		}
	}
	for _, text := range []string{`"hi"`, `"{}"`, `"\"[]\""`} {
		if _, err := Read(Raw{Key: "messages", Messages: []byte(text)}); err == nil || err.Error() != `field "messages" is a string, want a list of messages` {
			t.Errorf("%s: %v", text, err)
		}
	}
}
