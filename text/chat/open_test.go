package chat

import (
	"slices"
	"strings"
	"testing"
)

// Templates that write the next turn's prompt behind every conversation, asked for or not.
const (
	// responseML has it as plain text, as the first DeepSeek Coder has.
	responseML = `{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n' }}` +
		`{% else %}{{ '### Response:\n' + m.content + '\n<|EOT|>\n' }}{% endif %}{% endfor %}{{ '### Response:\n' }}`
	// startML opens a ChatML turn.
	startML = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}`
	// commandML ends turns of all roles with one token and answers with one more, as Command R7B does.
	commandML = `{{ bos_token }}<|START|><|SYSTEM|>preamble<|END|>{% for m in messages %}{% if m.role == 'user' %}{{ '<|START|><|USER|>' + m.content + '<|END|>' }}` +
		`{% else %}{{ '<|START|><|BOT|><|ANSWER|>' + m.content + '<|ANSWERED|><|END|>' }}{% endif %}{% endfor %}<|START|><|BOT|>`
)

func TestPromptsThatAreAlwaysWritten(t *testing.T) {
	const talk = `[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"},{"role":"assistant","content":"b"}]`
	for _, c := range []struct {
		name, template, want, end, stop string
	}{
		{"text", responseML, `["a\n<|EOT|>" "b\n<|EOT|>"]`, "\n<|EOT|>", "<|EOT|>"},
		{"ChatML", startML, `["a<|im_end|>" "b<|im_end|>"]`, "<|im_end|>", "<|im_end|>"},
		{"several tokens", commandML, `["<|ANSWER|>a<|ANSWERED|><|END|>" "<|ANSWER|>b<|ANSWERED|><|END|>"]`, "<|ANSWERED|><|END|>", "<|END|>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, roles := range [][]string{{"assistant"}, {"assistant", "user"}} {
				conv, err := Read(Raw{Key: "messages", Messages: []byte(talk)})
				if err != nil {
					t.Fatal(err)
				}
				chat := newChat(t, c.template, "<s>", "</s>", func(o *Options) { o.Roles = roles })
				rows, err := chat.Rows(conv)
				if err != nil {
					t.Fatal(err)
				}
				if got := spans(rows); len(roles) == 1 && got != c.want {
					t.Errorf("\ngot  %s\nwant %s", got, c.want)
				} else if len(roles) == 2 && (len(rows) != 1 || len(rows[0].Spans) != 4) {
					t.Errorf("users too: %s", got)
				}
				whole, _ := chat.plain.Text(conv, false)
				for _, r := range rows {
					checkLabels(t, r)
					if r.Text != whole || r.Other != 0 {
						t.Errorf("%d turns begin otherwise than their prompt; the row is %q, the template writes %q", r.Other, r.Text, whole)
					}
				}
				if e := chat.EndOfTurn(conv); e.Text != c.end || !slices.Equal(e.IDs, []int32{markID(c.stop)}) {
					t.Errorf("a turn ends with %q, generation stops at %v, want %q, %s", e.Text, e.IDs, c.end, c.stop)
				}
				if p, err := chat.Prompt(&Conversation{Messages: conv.Messages[:1]}); err != nil || !strings.HasPrefix(whole, p) {
					t.Errorf("the prompt %q (%v) does not begin %q", p, err, whole)
				}
			}
		})
	}
}

// TestEmptyAnswerWithoutEnd: some templates write nothing at all for an empty answer.
func TestEmptyAnswerWithoutEnd(t *testing.T) {
	const template = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	conv, err := Read(Raw{Key: "messages", Messages: []byte(`[{"role":"user","content":"u"},{"role":"assistant","content":""}]`)})
	if err != nil {
		t.Fatal(err)
	}
	const want = `messages[1]: the message is empty, and the template then does not end the turn with "<|im_end|>" as it ends others, so the model would not learn to stop: leave such conversations out`
	if _, err := newChat(t, template, "<s>", "</s>", nil).Rows(conv); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
