package chat

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tierlora/tierlora/text/jinja"
)

// FuzzRead: whatever a row holds, it is read or refused, and what is read can be rendered, proved and tokenised or is
// refused; every row keeps the rules.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		twoTurns, `[{"from":"human","value":"u"},{"from":"gpt","value":"a <|im_end|> b"}]`,
		`[{"role":"user","content":"u"},{"role":"assistant","content":"<think>\nr\n</think>\n\na","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"x\":[1,2.5,null]}"}}]},{"role":"tool","content":"5"},{"role":"assistant","content":" b "}]`,
		`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","value":"</s>"}]},{"role":"assistant","content":"\udb80\udc00","weight":1}]`,
		`[{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},{"from":"observation","value":"1"}]`,
		`[{"role":"assistant","content":""},{"role":"user","content":"\n\n"},{"role":"assistant","content":"x\n","reasoning_content":"r"}]`,
	} {
		f.Add(s, uint8(0), true)
		f.Add(s, uint8(1), false)
		f.Add(s, uint8(3), true)
	}
	chats := fuzzChats(f)
	f.Fuzz(func(t *testing.T, messages string, which uint8, parts bool) {
		conv, err := Read(Raw{Key: "messages", Messages: []byte(messages)})
		if err != nil || !utf8.ValidString(messages) {
			return
		}
		k := 0
		if parts {
			k = 1
		}
		c := chats[int(which)%len(chats)][k]
		rows, err := c.Rows(conv)
		if err != nil {
			return
		}
		for _, r := range rows {
			checkFuzzed(t, c, conv, r)
		}
	})
}

// fuzzChats are templates of several kinds, with and without reasoning and calls trained.
func fuzzChats(f *testing.F) [][2]*Chat {
	tok := smolLM(f)
	sources := []string{builtIn[chatML], thinkML, trimML, strings.ReplaceAll(closeML, "<|end|>", "<|im_end|>"), backML, builtIn["zephyr"]}
	chats := make([][2]*Chat, len(sources))
	for i, source := range sources {
		for k := range 2 {
			chats[i][k] = open(f, source, tok, func(o *Options) {
				o.Allow = nil
				o.Reasoning, o.ToolCalls = k == 0, k == 0
			})
		}
	}
	return chats
}

// FuzzSpans is FuzzRead on conversations of any four texts.
func FuzzSpans(f *testing.F) {
	for i, s := range [][4]string{
		{"u", "a", "v", "b"}, {" u\n", "\n\na\n ", "", ""}, {"<|im_end|>", "<|im_start|>assistant\n", "</s>", "<think>r</think>"},
		{"<think>", "</think>x", "<tool_call>", "<think>a</think>\n\nb<tool_call>{}</tool_call>"}, {"None", "{{ x }}", "a<|im_", "end|>"},
		{"\U000F0000", "x\U000F0001", "\v", "\n\v\n"}, {"x", "x", "x", "x"}, {"assistant\n", "<|im_end|>\n<|im_start|>user\n", "é漢\u2028", "\u00a0"},
	} {
		f.Add(s[0], s[1], s[2], s[3], uint8(i))
	}
	chats := fuzzChats(f)
	f.Fuzz(func(t *testing.T, a, b, c, d string, which uint8) {
		conv := &Conversation{}
		for i, s := range []string{a, b, c, d} {
			if !utf8.ValidString(s) {
				return
			}
			role := []string{"user", "assistant"}[i%2]
			conv.Messages = append(conv.Messages, Message{Role: role, Fields: fields(role, jinja.Str(s))})
		}
		for k := range 2 {
			chat := chats[int(which)%len(chats)][k]
			rows, err := chat.Rows(conv)
			if err != nil {
				if k == 0 && which%6 < 4 && !strings.Contains(a+b+c+d, "<|") && !strings.Contains(a+b+c+d, "</s>") && !strings.Contains(a+b+c+d, "<think>") && !strings.Contains(a+b+c+d, "</think>") {
					t.Fatalf("%q, %q, %q, %q: %v", a, b, c, d, err)
				}
				continue
			}
			for _, r := range rows {
				checkFuzzed(t, chat, conv, r)
			}
		}
	})
}

func checkFuzzed(t *testing.T, c *Chat, conv *Conversation, r Row) {
	t.Helper()
	if len(r.IDs) != len(r.Labels) || len(r.Ends) > len(conv.Messages) {
		t.Fatalf("%d ids, %d labels, %d turns", len(r.IDs), len(r.Labels), len(r.Ends))
	}
	for i, l := range r.Labels {
		if l != Ignore && l != r.IDs[i] {
			t.Fatalf("label %d of id %d", l, r.IDs[i])
		}
	}
	end := 0
	for n, s := range r.Spans {
		if s.Start > s.End || s.Start < end || s.End > len(r.Text) {
			t.Fatalf("spans %v of %d bytes", r.Spans, len(r.Text))
		}
		end = s.End
		last := n+1 == len(r.Spans) || r.Spans[n+1].Message != s.Message
		if ends := c.endText(c.plain); last && conv.Messages[s.Message].Role == "assistant" && !strings.Contains(r.Text[s.Start:s.End], ends) {
			t.Fatalf("message %d: %q does not hold its end %q", s.Message, r.Text[s.Start:s.End], ends)
		}
		if !r.Split && r.Other == 0 && s.Message > 0 && conv.Messages[s.Message].Role == "assistant" && c.o.Reasoning && (n == 0 || r.Spans[n-1].Message != s.Message) {
			adapted := *c.adapt(c.plain, conv)
			adapted.Messages = adapted.Messages[:s.Message]
			if prompt, err := c.plain.Text(&adapted, true); err != nil || prompt != r.Text[:s.Start] {
				t.Fatalf("message %d begins behind %q, the prompt is %q (%v)", s.Message, r.Text[:s.Start], prompt, err)
			}
		}
	}
	plain := strings.ContainsFunc(r.Text, func(c rune) bool { return c < ' ' && c != '\n' || c > '~' }) // the vocabulary lacks some such bytes
	if decoded := c.tok.(interface{ Decode([]int32, bool) string }).Decode(r.IDs, false); !plain && decoded != r.Text {
		t.Fatalf("ids give %q, the text is %q", decoded, r.Text)
	}
}
