package chat

import "testing"

// Templates whose generation prompt opens a reasoning which a turn continues otherwise, or has none of; and one that
// ends turns only between messages.
const (
	promptHead = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}`
	promptFoot = `{% endif %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}`
	// shutML closes an empty reasoning at once, as Nemotron 3 does.
	shutML = promptHead + `{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n' }}{% else %}<think></think>{% endif %}{{ m.content }}` +
		promptFoot + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}`
	// wideML writes a line more in the prompt than in the turn.
	wideML = promptHead + `{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' + m.content }}` +
		promptFoot + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n\n' }}{% endif %}`
	// thoughtML has an empty thought in the prompt, as Gemma 4 has.
	thoughtML = promptHead + `{{ '<|channel>thought\n' + m.reasoning_content + '\n<channel|>' + m.content }}` +
		promptFoot + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<|channel>thought\n<channel|>' }}{% endif %}`
	// closedML writes the end of a reasoning alone, as GLM 4.7 and DeepSeek 3.2 do: <think> and </think> share their first letter.
	closedML = promptHead + `{{ '</think>' + m.content }}` + promptFoot + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}{% endif %}`
	// callML writes calls where the prompt opens a reasoning: both begin with <t.
	callML = promptHead + `{{ '<tool_call>\n' + m.content + '\n</tool_call>' }}` +
		promptFoot + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}`
	// betweenML ends a turn on a line of its own, and the last one not at all, as Apriel does.
	betweenML = `{% for m in messages %}{{ '<|begin_' + m.role + '|>\n' + m.content }}` +
		`{% if m.role == 'assistant' and not loop.last %}{{ '\n<|end|>' }}{% endif %}{{ '\n' if not loop.last }}{% endfor %}{% if add_generation_prompt %}{{ '\n<|begin_assistant|>\n' }}{% endif %}`
)

func TestPromptsThatForkFromTurns(t *testing.T) {
	talk := `[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"v"},{"role":"assistant","content":"b","reasoning_content":"s"}]`
	plain := `[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"},{"role":"assistant","content":"b"}]`
	for _, c := range []struct {
		name, template, messages, want string
		other                          int
	}{
		{"no reasoning", shutML, plain, `["</think>a<|im_end|>" "</think>b<|im_end|>"]`, 2},
		{"reasoning", shutML, talk, `["r\n</think>\na<|im_end|>" "s\n</think>\nb<|im_end|>"]`, 0},
		{"a line more in the prompt", wideML, talk, `["r\n</think>\n\na<|im_end|>" "s\n</think>\n\nb<|im_end|>"]`, 2},
		{"an empty thought in the prompt", thoughtML, talk, `["r\n<channel|>a<|im_end|>" "s\n<channel|>b<|im_end|>"]`, 2},
		{"the end of a reasoning alone", closedML, plain, `["</think>a<|im_end|>" "</think>b<|im_end|>"]`, 2},
		{"a call", callML, plain, `["<tool_call>\na\n</tool_call><|im_end|>" "<tool_call>\nb\n</tool_call><|im_end|>"]`, 2},
		{"an end on a line of its own", betweenML, plain, `["a\n<|end|>" "b" "\n<|end|>"]`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			conv, err := Read(Raw{Key: "messages", Messages: []byte(c.messages)})
			if err != nil {
				t.Fatal(err)
			}
			rows, err := newChat(t, c.template, "<s>", "</s>", nil).Rows(conv)
			if err != nil {
				t.Fatal(err)
			}
			if got := spans(rows); got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			for _, r := range rows {
				checkLabels(t, r)
				if r.Other != c.other {
					t.Errorf("%d turns begin otherwise than their prompt, want %d", r.Other, c.other)
				}
			}
		})
	}
}

func TestForksWithoutReasoning(t *testing.T) {
	talk := `[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"r"}]`
	for name, source := range map[string]string{"reasoning": shutML, "a line more in the prompt": wideML} {
		conv, err := Read(Raw{Key: "messages", Messages: []byte(talk)})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := newChat(t, source, "<s>", "</s>", func(o *Options) { o.Reasoning = false }).Rows(conv)
		if got := spans(rows); err != nil || got != `["a<|im_end|>"]` {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
