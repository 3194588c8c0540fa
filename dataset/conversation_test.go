package dataset

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/jinja"
)

// plainTemplate ends every message with </s> and wants the user to begin.
const plainTemplate = `{% if messages[0].role == 'assistant' %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}` +
	`{% for m in messages %}{{ m.role + ':' }}{% if m.content %}{{ m.content }}{% endif %}` +
	`{% for c in m.tool_calls or [] %}{{ '[' + c.function.name + '(' + c.function.arguments | tojson + ')]' }}{% endfor %}{{ '</s>\n' }}{% endfor %}` +
	`{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}`

// withTemplate loads rows with a chat template.
func withTemplate(t testing.TB, content, template string, change func(*Config)) (*Set, *Report, error) {
	t.Helper()
	cfg := Default()
	cfg.Path, cfg.MaxLength = "data.jsonl", 4096
	if template != "" {
		tokens := jinja.NewDict()
		tokens.Set("eos_token", jinja.Str("</s>"))
		cfg.Chat = func() (*chat.Sources, error) {
			return &chat.Sources{Templates: map[string]string{"default": template}, Tokens: tokens}, nil
		}
	}
	if change != nil {
		change(&cfg)
	}
	return LoadFS(context.Background(), fstest.MapFS{"data.jsonl": {Data: []byte(content)}}, cfg, bytesTokenizer{})
}

const goodTalk = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}`

// brokenTalks is every way a conversation is known to be wrong, with the whole error.
var brokenTalks = []struct {
	name, content, template string
	change                  func(*Config)
	want                    string
}{
	{"messages is text", `{"messages":"hi"}`, plainTemplate, nil, `data.jsonl:1: field "messages" is a string, want a list of messages`},
	{"messages is empty", `{"messages":[]}`, plainTemplate, nil, `data.jsonl:1: field "messages" is an empty list: a conversation has at least one message`},
	{"messages is null", goodTalk + "\n" + `{"messages":null}`, plainTemplate, nil, `data.jsonl:2: field "messages" is null`},
	{"message is text", `{"messages":["hi"]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0] is a string, want an object with role and content`},
	{"message is a list", `{"messages":[["user","hi"]]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0] is a list, want an object with role and content`},
	{"no role", `{"messages":[{"content":"hi","name":"x"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0] has no role; it has content, name`},
	{"role is a number", `{"messages":[{"role":1,"content":"hi"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].role is a number, want a string`},
	{"unknown role", `{"messages":[{"role":"narrator","content":"hi"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].role is "narrator", want one of system, developer, user, assistant, tool, function, ipython`},
	{"no content", `{"messages":[{"role":"user"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0] has no content; it has role`},
	{"null content", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1].content is null: only a message with tool_calls may go without`},
	{"content is a number", `{"messages":[{"role":"user","content":5}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].content is a number, want a string or a list of text parts`},
	{"content is an object", `{"messages":[{"role":"user","content":{"text":"hi"}}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].content is an object, want a string or a list of text parts`},
	{"part is text", `{"messages":[{"role":"user","content":["hi"]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].content[0] is a string, want an object like {"type": "text", "text": …}`},
	{"part is an image", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].content[0] is of type "image_url": only text is trained on (docs/IMAGES.md lists ` +
			`the models and formats that read images)`},
	{"part without text", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].content[0] has no text; it has type`},
	{"part with a null text", `{"messages":[{"role":"user","content":[{"type":"text","text":null}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].content[0].text is null, want a string`},
	{"reasoning is a list", `{"messages":[{"role":"assistant","content":"a","reasoning_content":["x"]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].reasoning_content is a list, want a string`},
	{"weight of a half", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho","weight":0.5}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1].weight is 0.5, want 0 or 1: other weights of the loss need dataset.weights: true`},
	{"weight of two", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho","weight":2}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1].weight is 2, want 0 or 1: other weights of the loss need dataset.weights: true`},
	{"loss_weight is text", `{"messages":[{"role":"assistant","content":"ho","loss_weight":"1"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].loss_weight is a string, want true, false or a number`},
	{"train and weight", `{"messages":[{"role":"assistant","content":"ho","train":true,"weight":0}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0] says train and weight, which contradict each other`},
	{"half a surrogate pair", `{"messages":[{"role":"user","content":"\ud83d"}]}`, plainTemplate, nil,
		`data.jsonl:1: field "messages" holds half of a surrogate pair (\ud83d), which is no character`},
	{"roles out of order", `{"messages":[{"role":"assistant","content":"I begin"},{"role":"user","content":"no"}]}`, plainTemplate, nil,
		`data.jsonl:1: the model's default template refuses the conversation: Conversation roles must alternate user/assistant/user/assistant/...`},
	{"result without a call", `{"messages":[{"role":"user","content":"hi"},{"role":"tool","content":"5"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1] is a tool's result, but no assistant's message before it calls a tool`},
	{"result of no open call", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"5"},{"role":"tool","content":"6"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[3] is a tool's result, but no call is open`},
	{"result of another call", `{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"5","tool_call_id":"b"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1].tool_call_id is "b", but no open call has that id`},
	{"call without a result", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]},{"role":"user","content":"well?"}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1] calls f, but no tool's result follows`},
	{"a user calls", `{"messages":[{"role":"user","content":"hi","tool_calls":[{"function":{"name":"f","arguments":{}}}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0] has tool_calls, but its role is user: only an assistant calls tools`},
	{"tool_calls is an object", `{"messages":[{"role":"assistant","tool_calls":{"name":"f"}}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].tool_calls is an object, want a list`},
	{"call is text", `{"messages":[{"role":"assistant","tool_calls":["f"]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].tool_calls[0] is a string, want an object`},
	{"call without a name", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].tool_calls[0].function has no name; it has arguments`},
	{"arguments are no JSON", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{x"}}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].tool_calls[0].function.arguments is a string that is no JSON: JSON at byte 1: a key in double quotes is missing`},
	{"arguments are a list", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[0].tool_calls[0].function.arguments is a string with a list, want an object`},
	{"tools is an object", `{"messages":[{"role":"user","content":"hi"}],"tools":{"name":"f"}}`, plainTemplate, nil,
		`data.jsonl:1: field "tools" is an object, want a list of tools`},
	{"tools is text that is no JSON", `{"messages":[{"role":"user","content":"hi"}],"tools":"f(x)"}`, plainTemplate, nil,
		`data.jsonl:1: field "tools" is a string that is no JSON: JSON at byte 0: a value cannot begin with 'f'`},
	{"tool is text", `{"messages":[{"role":"user","content":"hi"}],"tools":["f"]}`, plainTemplate, nil,
		`data.jsonl:1: tools[0] is a string, want an object`},
	{"variables replace the messages", `{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"messages":[]}}`, plainTemplate, nil,
		`data.jsonl:1: the template's variables: messages is set from the conversation, its tools or the tokenizer, and cannot be given as a variable`},
	{"variables are a list", `{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":[1]}`, plainTemplate, nil,
		`data.jsonl:1: the template's variables are a list, want an object`},
	{"sharegpt without a value", `{"conversations":[{"from":"human"}]}`, plainTemplate, nil,
		`data.jsonl:1: conversations[0] has no value; it has from`},
	{"sharegpt with a number", `{"conversations":[{"from":"human","value":5}]}`, plainTemplate, nil,
		`data.jsonl:1: conversations[0].value is a number, want a string`},
	{"sharegpt with an unknown role", `{"conversations":[{"from":"moderator","value":"x"}]}`, plainTemplate, nil,
		`data.jsonl:1: conversations[0].from is "moderator", want one of system, developer, user, assistant, tool, function, ipython`},
	{"sharegpt call that is no JSON", `{"conversations":[{"from":"human","value":"x"},{"from":"function_call","value":"f(x)"}]}`, plainTemplate, nil,
		`data.jsonl:1: conversations[1].value: a function_call that is no JSON: JSON at byte 0: a value cannot begin with 'f'`},
	{"the older form of a call", `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}]}`, plainTemplate, nil,
		`data.jsonl:1: messages[1].function_call is the older form of a call: write tool_calls: [{"type": "function", "function": {"name": …, "arguments": …}}], and give the message with the result the role tool`},

	{"no template", goodTalk, "", nil,
		`data.jsonl:1: the model's files hold no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so a conversation has no text: name one by dataset.chat_template, a .jinja file or one of chatml, vicuna, zephyr`},
	{"no template of that name", goodTalk, plainTemplate, func(c *Config) { c.ChatTemplate = "chatlm" },
		`data.jsonl:1: dataset.chat_template is "chatlm", want one of default, chatml, vicuna, zephyr, or a .jinja file`},
	{"no such file", goodTalk, plainTemplate, func(c *Config) { c.ChatTemplate = "absent.jinja" },
		`data.jsonl:1: read dataset.chat_template: stat absent.jinja: no such file or directory`},
	{"template that does not parse", goodTalk, "{% for m in messages %}", nil,
		`data.jsonl:1: the model's default template: line 1: TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following tags: 'endfor' or 'else'. The innermost block that needs to be closed is 'for'.`},
	{"template bomb", goodTalk, "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", nil,
		`data.jsonl:1: the model's default template: line 1: LimitError: the template takes more than 1000000 steps`},
	{"text bomb", goodTalk, "{% set x = namespace(s='ab') %}{% for i in range(60) %}{% set x.s = x.s + x.s %}{% endfor %}{{ x.s }}", nil,
		`data.jsonl:1: the model's default template: line 1: LimitError: the template builds a value of more than 16777216 bytes`},
	{"macros that call each other", goodTalk, "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", nil,
		`data.jsonl:1: the model's default template: line 1: RecursionError: macros or loops call each other more than 200 deep`},
	{"template that writes None in some conversations alone", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{}}}]}]}`,
		"{% for m in messages %}{{ m.role }}:{% if m.content is string or messages[0].content == 'hi' %}{{ m.content }}{% endif %}{{ m.tool_calls }}</s>{% endfor %}", nil,
		`data.jsonl:1: messages[1].content is null, and the template writes it as the word None: use an empty string`},
	{"template that leaves texts out", goodTalk, "{% for m in messages %}{{ m.role }}</s>{% endfor %}", nil,
		`data.jsonl:1: messages[1]: the template does not write the message's text: name one that does by dataset.chat_template, or leave such conversations out`},
	{"template that leaves calls out", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]}]}`,
		"{% for m in messages %}{{ m.role }}:{{ m.content }}</s>{% endfor %}", nil,
		`data.jsonl:1: messages[1]: the template does not write the call of f: name one that does by dataset.chat_template, or leave such conversations out`},
	{"template without an end of turn", goodTalk, "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}", nil,
		`data.jsonl:1: messages[1]: the template writes nothing behind an assistant's turn that ends it, and no special token begins the next one, so the model would not learn to stop: name a template that ends its turns by dataset.chat_template`},
	{"generation block without the end of turn", goodTalk,
		"{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}</s>{% endfor %}", nil,
		`data.jsonl:1: messages[1]: the template's {% generation %} block ends before </s>, so the model would not learn to stop: the block must hold the token that ends the turn`},
	{"no generation block", goodTalk,
		"{% for m in messages %}{{ m.role }}:{% if m.role == 'tool' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}</s>{% endfor %}", nil,
		`data.jsonl:1: messages[1]: no {% generation %} block of the template covers the turn`},
	{"prompt that is not what turns begin with", goodTalk,
		"{% for m in messages %}{{ m.role }}:{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}Answer:{% endif %}", nil,
		"data.jsonl:1: messages[1]: the template's prompt for the turn is not the beginning of the text with the turn, so its mask cannot be proved"},
	{"turns that change, not to be split", `{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`,
		"{% for m in messages %}{{ m.role }}:{% if loop.last and m.role == 'assistant' %}!{% endif %}{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
		func(c *Config) { c.SplitTurns = chat.SplitNever },
		`data.jsonl:1: messages[1]: the template writes the turn otherwise once messages follow, so its mask in the whole conversation cannot be proved (dataset.split_turns is never, dataset.train_on assistant)`},
	{"train_on_prompt", goodTalk, plainTemplate, func(c *Config) { c.TrainOnPrompt = true },
		`data.jsonl:1: dataset.train_on_prompt does nothing with format messages, where dataset.train_on says what is trained: remove it`},
	{"a key of conversations with another format", `{"text":"a"}`, plainTemplate, func(c *Config) { c.TrainOn = chat.TrainLast },
		`data.jsonl:1: dataset.train_on does nothing with format text, which has no conversations: remove it`},
	{"special token that is none", goodTalk, plainTemplate, func(c *Config) { c.AllowSpecial = []string{"<tool>"} },
		`data.jsonl:1: dataset.allow_special: "<tool>" is no special token of the tokenizer`},
	{"100,000 turns", `{"messages":[` + strings.Repeat(`{"role":"user","content":"u"},{"role":"assistant","content":"a"},`, 49_999) + `{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`,
		plainTemplate, nil,
		`data.jsonl:1: the conversation has 100000 messages: to prove the masks of its turns would take 5000050000 rendered messages, more than 1048576; split it, or set dataset.train_on: last`},
	{"nothing is trained", `{"messages":[{"role":"user","content":"hi"}]}`, plainTemplate, nil,
		`data.jsonl: no row is left to train on, all 1 were dropped: 1 because no token is trained (data.jsonl:1)`},
}

func TestBrokenTalks(t *testing.T) {
	for _, c := range brokenTalks {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			_, _, err := withTemplate(t, c.content, c.template, c.change)
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			if err == nil {
				t.Fatalf("no error, want %q", c.want)
			}
			if err.Error() != c.want {
				t.Errorf("\ngot  %s\nwant %s", err.Error(), c.want)
			}
		})
	}
}

const longTalk = `{"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"ONE"},{"role":"user","content":"two"},{"role":"assistant","content":"TWO"}]}`

// TestConversations: what becomes of rows, and what the report says of them.
func TestConversations(t *testing.T) {
	turning := "{% for m in messages %}{{ m.role }}:{% if loop.last and m.role == 'assistant' %}!{% endif %}{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
	for _, c := range []struct {
		name, content, template string
		change                  func(*Config)
		want                    []string // the trained text of each row
		report                  string
	}{
		{"messages", goodTalk, plainTemplate, nil, []string{"ho</s>"}, "conversations: 1, turns trained 1"},
		{"sharegpt", `{"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ho"}],"system":"s"}`, plainTemplate, nil, []string{"ho</s>"}, "format sharegpt"},
		{"sharegpt in OpenAI's words", `{"conversations":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}`, plainTemplate, nil, []string{"ho</s>"}, "format sharegpt"},
		{"messages under another key", `{"talk":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}`, plainTemplate,
			func(c *Config) { c.Format, c.Fields = "messages", map[string]string{"messages": "talk"} }, []string{"ho</s>"}, "format messages (messages=talk"},
		{"built-in template", goodTalk, plainTemplate, func(c *Config) { c.ChatTemplate = "zephyr" }, []string{"ho</s>"}, "turns trained 1"},
		{"turns", longTalk, plainTemplate, nil, []string{"ONE</s>TWO</s>"}, "turns trained 2"},
		{"last", longTalk, plainTemplate, func(c *Config) { c.TrainOn = chat.TrainLast }, []string{"TWO</s>"}, "turns trained 1"},
		{"cut behind a turn", longTalk, plainTemplate, func(c *Config) { c.MaxLength = 48 }, []string{"ONE</s>"}, "cut: 1 at max_length, "},
		{"cut in the first turn", `{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"0123456789012345678901234567890123456789"}]}`, plainTemplate,
			func(c *Config) { c.MaxLength = 30 }, []string{"012345678901"}, "no end: 1 rows are cut at max_length in the middle of their first turn"},
		{"split", longTalk, turning, nil, []string{"!ONE</s>", "!TWO</s>"}, "split: 1 conversations became 2 rows"},
		{"split and cut", longTalk + "\n" + goodTalk, turning, func(c *Config) { c.MaxLength, c.OnTruncated = 40, TruncatedDrop }, []string{"!ONE</s>", "!ho</s>"},
			"rows: 2 read, 2 kept, 1 dropped"},
		{"special tokens", `{"messages":[{"role":"user","content":"</s>"},{"role":"assistant","content":"</s>!"}]}`, plainTemplate, nil, []string{"</s>!</s>"},
			"special tokens: 2 inside the messages of 1 rows, read as plain text"},
		{"special tokens, allowed", `{"messages":[{"role":"user","content":"</s>"},{"role":"assistant","content":"ho"}]}`, plainTemplate,
			func(c *Config) { c.AllowSpecial = []string{"</s>"} }, []string{"ho</s>"}, "special tokens: 1 inside messages, allowed by allow_special"},
		{"special tokens in tools", goodTalk + "\n" + `{"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"</s>"}]}`, plainTemplate, nil, []string{"ho</s>"},
			"dropped: 1 because tools, calls or texts hold a special token"},
		{"texts left out", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}`,
			"{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}:{{ m.content }}</s>{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}", nil, []string{"ho</s>"},
			"left out: the template does not write 1 texts or calls of messages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, report, err := withTemplate(t, c.content, c.template, c.change)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range all(set.Train) {
				var ids []int32
				for i, l := range r.Labels {
					if l != Ignore {
						ids = append(ids, r.IDs[i])
					}
				}
				got = append(got, bytesTokenizer{}.Decode(ids, false))
			}
			if strings.Join(got, " / ") != strings.Join(c.want, " / ") {
				t.Errorf("trained %q, want %q", got, c.want)
			}
			if !strings.Contains(report.String(), c.report) {
				t.Errorf("the report does not say %q:\n%v", c.report, report)
			}
		})
	}
}

// TestConversationsInTheCache: rows of conversations come out of the cache as they went in, and another template is
// another entry.
func TestConversationsInTheCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(path, []byte(longTalk+"\n"+goodTalk+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.Path, cfg.CacheDir = path, t.TempDir()
	load := func(template string) (*Set, *Report) {
		cfg.Chat = func() (*chat.Sources, error) {
			return &chat.Sources{Templates: map[string]string{"default": template}, Tokens: jinja.NewDict()}, nil
		}
		set, report, err := Load(context.Background(), cfg, bytesTokenizer{})
		if err != nil {
			t.Fatal(err)
		}
		return set, report
	}
	first, r1 := load(plainTemplate)
	second, r2 := load(plainTemplate)
	if !strings.HasPrefix(r1.CacheNote, "tokens written") || !strings.HasPrefix(r2.CacheNote, "tokens read") {
		t.Errorf("%s; %s", r1.CacheNote, r2.CacheNote)
	}
	if !reflect.DeepEqual(all(first.Train), all(second.Train)) || !reflect.DeepEqual(r1.Chat, r2.Chat) || r2.Chat.Turns != 3 {
		t.Errorf("%+v and %+v", r1.Chat, r2.Chat)
	}
	if _, r3 := load("{# another #}" + plainTemplate); !strings.HasPrefix(r3.CacheNote, "tokens written") {
		t.Errorf("another template: %s", r3.CacheNote)
	}
}

// TestValSplitHoldsWholeConversations: the rows of a conversation that was split turn by turn are on one side.
func TestValSplitHoldsWholeConversations(t *testing.T) {
	var talks strings.Builder
	for i := range 30 {
		turn := `{"role":"user","content":"` + strings.Repeat("u", i+1) + `"},{"role":"assistant","content":"ho"}`
		talks.WriteString(`{"messages":[` + turn + "," + turn + "," + turn + "]}\n")
	}
	set, report, err := withTemplate(t, talks.String(), plainTemplate, func(c *Config) { c.SplitTurns, c.ValSplit = chat.SplitAlways, 0.2 })
	if err != nil {
		t.Fatal(err)
	}
	if report.Chat.SplitRows != 90 {
		t.Fatalf("%d rows of split conversations, want 90", report.Chat.SplitRows)
	}
	train := map[int]bool{}
	for _, r := range all(set.Train) {
		train[r.Index] = true
	}
	for _, r := range all(set.Val) {
		if train[r.Index] {
			t.Errorf("%s is on both sides", r.Where())
		}
	}
	if set.Val.Len() != 18 || len(train) != 24 {
		t.Errorf("%d rows are held out, %d conversations are trained on", set.Val.Len(), len(train))
	}
}
