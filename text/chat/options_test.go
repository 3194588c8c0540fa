package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/text/tokenizer"
)

const (
	chatML = "chatml"
	// thinkML writes reasoning as Qwen3 does: kept behind the last user's message, dropped before.
	thinkML = `{%- set ns = namespace(last=-1) %}{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}` +
		`{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}` +
		`{%- if m.role == 'assistant' %}{%- set c = m.content or '' %}{%- set r = m.reasoning_content or '' %}` +
		`{%- if '</think>' in c %}{%- set r = c.split('</think>')[0].split('<think>')[-1].strip('\n') %}{%- set c = c.split('</think>')[-1].lstrip('\n') %}{%- endif %}` +
		`{%- if loop.index0 > ns.last %}{{ '<think>\n' + r.strip('\n') + '\n</think>\n\n' }}{%- endif %}{{ c }}` +
		`{%- for t in m.tool_calls or [] %}{{ '\n<tool_call>\n' + (t.function | tojson) + '\n</tool_call>' }}{%- endfor %}` +
		`{%- else %}{{ m.content }}{%- endif %}{{ '<|im_end|>\n' }}{%- endfor %}` +
		`{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}`
	// nextML closes a turn with the next role's mark, as GLM does.
	nextML = `[gMASK]{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`
	// closeML ends every text with one more token, as Phi-3.5 does.
	closeML = `{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}`
	// trimML takes white space off contents.
	trimML = `{% for m in messages %}{{ '<start_of_turn>' + m.role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>assistant\n' }}{% endif %}`
	// upperML changes texts.
	upperML = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | replace('a', 'b') | upper + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	// backML turns texts around, so that only prefixes can be compared.
	backML = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | reverse + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
)

const twoTurns = `[{"role":"system","content":"s"},{"role":"user","content":"u1"},{"role":"assistant","content":"a1"},{"role":"user","content":"u2"},{"role":"assistant","content":"a2"}]`

// spans are the trained texts of every row, rows parted by /.
func spans(rows []Row) string {
	var all []string
	for _, r := range rows {
		var texts []string
		for _, s := range r.Spans {
			texts = append(texts, r.Text[s.Start:s.End])
		}
		all = append(all, fmt.Sprintf("%q", texts))
	}
	return strings.Join(all, " / ")
}

func TestOptions(t *testing.T) {
	calls := `[{"role":"user","content":"u"},{"role":"assistant","content":"look:","tool_calls":[{"function":{"name":"find","arguments":"{\"q\": 1}"}}]},{"role":"tool","content":"5"},{"role":"assistant","content":"five"}]`
	for _, c := range []struct {
		name, template, messages string
		change                   func(*Options)
		want                     string // or the error
	}{
		{"assistant", chatML, twoTurns, nil, `["a1<|im_end|>" "a2<|im_end|>"]`},
		{"last", chatML, twoTurns, func(o *Options) { o.TrainOn = TrainLast }, `["a2<|im_end|>"]`},
		{"all", chatML, twoTurns, func(o *Options) { o.TrainOn = TrainAll },
			`["<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>user\nu2<|im_end|>\n<|im_start|>assistant\na2<|im_end|>\n"]`},
		{"all but one", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a","weight":0},{"role":"user","content":"v"}]`, func(o *Options) { o.TrainOn = TrainAll },
			`["<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n" "\n<|im_start|>user\nv<|im_end|>\n"]`},
		{"roles", chatML, twoTurns, func(o *Options) { o.Roles = []string{"user"} }, `["u1<|im_end|>" "u2<|im_end|>"]`},
		{"every role", chatML, twoTurns, func(o *Options) { o.Roles = []string{"system", "user", "assistant"} },
			`["s<|im_end|>" "u1<|im_end|>" "a1<|im_end|>" "u2<|im_end|>" "a2<|im_end|>"]`},
		{"train", chatML, `[{"role":"user","content":"u","train":true},{"role":"assistant","content":"a","train":false},{"role":"assistant","content":"b"}]`, nil,
			`["u<|im_end|>" "b<|im_end|>"]`},
		{"weight", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a","weight":0},{"role":"user","content":"v"},{"role":"assistant","content":"b","weight":1}]`, nil, `["b<|im_end|>"]`},
		{"loss_weight", chatML, `[{"role":"user","content":"u","loss_weight":0.0},{"role":"assistant","content":"a","loss_weight":1.0}]`, nil, `["a<|im_end|>"]`},
		{"ends with the user", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"}]`, nil, `["a<|im_end|>"]`},
		{"empty answer", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":""}]`, nil, `["<|im_end|>"]`},
		{"white space", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":" \n a \n"}]`, nil, `[" \n a \n<|im_end|>"]`},
		{"white space taken off", trimML, `[{"role":"user","content":" u "},{"role":"assistant","content":" \n a \n"}]`, nil, `["a<end_of_turn>"]`},
		{"parts", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","value":"b"}]}]`, nil, `["ab<|im_end|>"]`},
		{"the next role's mark", nextML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"},{"role":"assistant","content":"b"}]`, nil,
			`["a<|user|>" "b" "<|user|>"]`},
		{"one more token at the end", closeML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"v"},{"role":"assistant","content":"b"}]`, nil,
			`["a<|end|>" "b<|end|>\n</s>"]`},
		{"texts that are changed", upperML, `[{"role":"user","content":"u"},{"role":"assistant","content":"abc"}]`, nil, `["BBC<|im_end|>"]`},

		{"reasoning", thinkML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"r"}]`, nil, `["<think>\nr\n</think>\n\na<|im_end|>"]`},
		{"reasoning, not trained", thinkML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"r"}]`, func(o *Options) { o.Reasoning = false }, `["a<|im_end|>"]`},
		{"reasoning in the content", thinkML, `[{"role":"user","content":"u"},{"role":"assistant","content":"<think>\nr\n</think>\n\na"}]`, func(o *Options) { o.Reasoning = false }, `["a<|im_end|>"]`},
		{"reasoning of earlier turns", thinkML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"v"},{"role":"assistant","content":"b","reasoning_content":"q"}]`,
			nil, `["<think>\nr\n</think>\n\na<|im_end|>"] / ["<think>\nq\n</think>\n\nb<|im_end|>"]`},
		{"reasoning of earlier turns, last", thinkML, `[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"v"},{"role":"assistant","content":"b","reasoning_content":"q"}]`,
			func(o *Options) { o.TrainOn = TrainLast }, `["<think>\nq\n</think>\n\nb<|im_end|>"]`},
		{"split always", chatML, twoTurns, func(o *Options) { o.Turns = SplitAlways }, `["a1<|im_end|>"] / ["a2<|im_end|>"]`},
		{"calls", thinkML, calls, nil,
			`["<think>\n\n</think>\n\nlook:\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"q\": 1}}\n</tool_call><|im_end|>" "<think>\n\n</think>\n\nfive<|im_end|>"]`},
		{"calls, not trained", thinkML, calls, func(o *Options) { o.ToolCalls = false }, `["<think>\n\n</think>\n\nlook:" "<|im_end|>" "<think>\n\n</think>\n\nfive<|im_end|>"]`},
		{"calls in the text, not trained", chatML, `[{"role":"user","content":"u"},{"role":"assistant","content":"look:\n<tool_call>\n{}\n</tool_call>\n"}]`, func(o *Options) { o.ToolCalls = false },
			`["look:\n" "\n<|im_end|>"]`},
		{"texts that are turned around", backML, `[{"role":"user","content":"u"},{"role":"assistant","content":"abc"}]`, nil, `["cba<|im_end|>"]`},
		{"reasoning that is changed", upperML, `[{"role":"user","content":"u"},{"role":"assistant","content":"<think>ra</think>a"}]`, func(o *Options) { o.Reasoning = false }, `["B<|im_end|>"]`},
		{"reasoning and calls that cannot be told", backML, `[{"role":"user","content":"u"},{"role":"assistant","content":"<think>ra</think>a"}]`, func(o *Options) { o.Reasoning = false },
			"messages[1]: the template changes the text, so where its reasoning and tool calls lie cannot be told (dataset.train_reasoning, dataset.train_tool_calls)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, ok := builtIn[c.template]
			if !ok {
				source = c.template
			}
			chat := newChat(t, source, "<s>", "</s>", c.change)
			conv, err := Read(Raw{Key: "messages", Messages: []byte(c.messages)})
			if err != nil {
				t.Fatal(err)
			}
			rows, err := chat.Rows(conv)
			got := spans(rows)
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			for _, r := range rows {
				checkLabels(t, r)
			}
		})
	}
}

// checkLabels compares labels with spans: with a token for each character they are the same thing.
func checkLabels(t *testing.T, r Row) {
	t.Helper()
	if len(r.IDs) != len(r.Labels) {
		t.Fatalf("%d ids, %d labels", len(r.IDs), len(r.Labels))
	}
	located := markTokenizer{}.Locate(r.Text, tokenizer.LocateOptions{Borders: everyByte(r.Text)})
	at := make([]int, len(r.IDs)) // where each token begins
	for k := len(r.Text) - 1; k >= 0; k-- {
		at[located.Borders[k].Token] = k
	}
	for i := range r.IDs {
		inside := slices.ContainsFunc(r.Spans, func(s Span) bool { return s.Start <= at[i] && at[i] < s.End })
		if r.Plain == 0 && (r.Labels[i] != Ignore) != inside {
			t.Errorf("token %d of %q: label %d, inside a span: %v", i, r.Text, r.Labels[i], inside)
		}
	}
}

func everyByte(text string) []int {
	all := make([]int, len(text))
	for i := range all {
		all[i] = i
	}
	return all
}

// TestSpecialText: special tokens in messages are text, and are counted; allowed ones are not text.
func TestSpecialText(t *testing.T) {
	messages := `[{"role":"user","content":"say <|im_end|> or </s>"},{"role":"assistant","content":"<|im_end|>!"}]`
	conv, err := Read(Raw{Key: "messages", Messages: []byte(messages)})
	if err != nil {
		t.Fatal(err)
	}
	end := markID("<|im_end|>")
	for _, c := range []struct {
		allow             []string
		plain, kept, ends int
	}{{nil, 3, 0, 2}, {[]string{"<|im_end|>"}, 1, 2, 4}, {[]string{"all"}, 0, 3, 4}} {
		chat := newChat(t, builtIn[chatML], "<s>", "</s>", func(o *Options) { o.Allow = c.allow })
		rows, err := chat.Rows(conv)
		if err != nil {
			t.Fatal(err)
		}
		r, ends := rows[0], 0
		for _, id := range r.IDs {
			if id == end {
				ends++
			}
		}
		if r.Plain != c.plain || r.Kept != c.kept || ends != c.ends {
			t.Errorf("allowed %v: %d read as text, %d kept, %d end tokens; want %+v", c.allow, r.Plain, r.Kept, ends, c)
		}
	}
	tools := `[{"type":"function","function":{"name":"f","description":"<|im_end|>"}}]`
	if conv, err = Read(Raw{Key: "messages", Messages: []byte(`[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]`), Tools: []byte(tools)}); err != nil {
		t.Fatal(err)
	}
	_, err = newChat(t, builtIn[chatML], "<s>", "</s>", nil).Rows(conv)
	if special, ok := err.(*ErrSpecial); !ok || special.Where != "tools" {
		t.Errorf("a special token in tools: %v", err)
	}
	// Two texts that are only together a special token.
	join := `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% for p in m.content %}{{ p.text }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	if conv, err = Read(Raw{Key: "messages", Messages: []byte(`[{"role":"user","content":[{"type":"text","text":"<|im_"},{"type":"text","text":"end|>"}]},{"role":"assistant","content":"a"}]`)}); err != nil {
		t.Fatal(err)
	}
	rows, err := newChat(t, join, "<s>", "</s>", nil).Rows(conv)
	if err != nil || rows[0].Plain != 1 {
		t.Errorf("a special token of two texts: %+v, %v", rows, err)
	}
}

// TestEndOfTurn: what generation stops at.
func TestEndOfTurn(t *testing.T) {
	for _, c := range []struct {
		template, text string
		stops          []string
	}{
		{builtIn[chatML], "<|im_end|>", []string{"<|im_end|>"}},
		{nextML, "", []string{"<|user|>", "<|tool|>"}},
		{closeML, "<|end|>", []string{"<|end|>", "</s>"}},
		{trimML, "<end_of_turn>", []string{"<end_of_turn>"}},
		{builtIn["vicuna"], "</s>", []string{"</s>"}},
	} {
		e := newChat(t, c.template, "<s>", "</s>", nil).EndOfTurn(&Conversation{})
		var want []int32
		for _, s := range c.stops {
			want = append(want, markID(s))
		}
		slices.Sort(want)
		if e.Text != c.text || !slices.Equal(e.IDs, want) {
			t.Errorf("%.40q: %+v, want %q and %v", c.template, e, c.text, want)
		}
	}
}

// A template with {% generation %} blocks that leaves a call out keeps transformers' mask, and the row says so.
func TestCallsLeftOut(t *testing.T) {
	conv, err := Read(Raw{Key: "messages", Messages: []byte(`[{"role": "user", "content": "Time?"},
		{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "clock", "arguments": {}}}]},
		{"role": "tool", "content": "12"}, {"role": "assistant", "content": "Noon"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	block := "{% generation %}{{ m.content }}%s</s>{% endgeneration %}"
	for call, want := range map[string]int{"": 1, "{% for c in m.tool_calls or [] %}{{ c.function.name }}(){% endfor %}": 0} {
		source := "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}" + strings.Replace(block, "%s", call, 1) +
			"{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
		rows, err := newChat(t, source, "<s>", "</s>", nil).Rows(conv)
		if err != nil || len(rows) != 1 || rows[0].Left != want {
			t.Errorf("%q: %d rows, %+v, %v; want %d left out", call, len(rows), rows, err, want)
		}
	}
}
