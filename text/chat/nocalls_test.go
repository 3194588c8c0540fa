package chat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// history is a conversation in which an assistant's message has extra keys and another calls a tool.
func history(t *testing.T, plain, calling string) *Conversation {
	t.Helper()
	conv, err := Read(Raw{Key: "messages", Messages: []byte(`[
		{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"` + plain + `},
		{"role": "user", "content": "three"},
		{"role": "assistant"` + calling + `, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "look", "arguments": {"at": "four"}}}]},
		{"role": "tool", "content": "five", "tool_call_id": "abcdefghi", "name": "look"},
		{"role": "assistant", "content": "six"}, {"role": "user", "content": "seven"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	return conv
}

// noCalls are the ways to write that a message calls no tool, each as it follows the content.
var noCalls = []string{
	`, "tool_calls": null`, `, "tool_calls": []`, `, "tool_calls": ""`, `, "tool_calls": "[]"`, `, "tool_calls": "null"`, `, "function_call": null`,
	`, "function_call": null, "tool_calls": []`,
}

// contentTemplates write contents in the ways of models' templates.
var contentTemplates = map[string]string{
	"key":    `{% for m in messages %}<|im_start|>{{ m.role }}{% if 'tool_calls' in m %}{% if m.tool_calls|length != 1 %}{{ raise_exception('one call') }}{% endif %}{{ m.tool_calls[0].function | tojson }}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}`,
	"plus":   `{% for m in messages %}{{ '<|im_start|>' + m['role'] + m['content'] }}{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}<|im_end|>{% endfor %}`,
	"writes": `{% for m in messages %}<|im_start|>{{ m['role'] }}{{ m['content'] }}{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}<|im_end|>{% endfor %}`,
	"parts":  `{% for m in messages %}<|im_start|>{{ m['role'] }}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}<|im_end|>{% endfor %}`,
	"tested": `{% for m in messages %}<|im_start|>{{ m['role'] }}{% if m.content is none %}nothing{% else %}{{ m.content }}{% endif %}{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}<|im_end|>{% endfor %}`,
}

// TestNoCallsAndNoContent: messages whose tool_calls are null or empty are those without the key, in training and in
// prompts; a call's content that is null or absent is given as the template can take it, and stays where it takes it.
func TestNoCallsAndNoContent(t *testing.T) {
	for name, source := range contentTemplates {
		c := newChat(t, source, "<s>", "</s>", nil)
		text := func(conv *Conversation) string {
			p, err := c.Prompted(conv)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := c.Rows(conv); err != nil {
				t.Errorf("%s: rows: %v", name, err)
			}
			return p.Text
		}
		want := text(history(t, "", `, "content": ""`))
		for _, calls := range noCalls {
			if got := text(history(t, calls, `, "content": ""`)); got != want {
				t.Errorf("%s, %s:\n%s\nwant\n%s", name, calls, got, want)
			}
		}
		if name == "tested" {
			want = strings.Replace(want, `assistant{"name"`, `assistantnothing{"name"`, 1)
		}
		for _, content := range []string{`, "content": null`, ""} {
			if got := text(history(t, "", content)); got != want && (name != "tested" || content != "") {
				t.Errorf("%s, content %q:\n%s\nwant\n%s", name, content, got, want)
			}
		}
	}
}

// TestNoCallsOnTemplates does the same on the reference's templates and on those of models.
func TestNoCallsOnTemplates(t *testing.T) {
	sources := map[string]string{}
	eachTemplate(t, func(name string, g goldenTemplate) { sources[name] = g.Source })
	files, err := filepath.Glob(golden.Outside(t, "data/chat_templates/*.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources[filepath.Base(file)] = string(text)
	}
	same, null := 0, 0
	for name, source := range sources {
		c := newChat(t, source, "<s>", "</s>", nil)
		want, wantErr := c.Prompt(history(t, "", `, "content": ""`))
		for _, calls := range noCalls {
			got, err := c.Prompt(history(t, calls, `, "content": ""`))
			if (err == nil) != (wantErr == nil) || got != want {
				t.Errorf("%s, %s: %q (%v)\nwant %q (%v)", name, calls, got, err, want, wantErr)
			}
			same++
		}
		if wantErr != nil {
			continue // it writes no tools
		}
		for _, content := range []string{`, "content": null`, ""} {
			conv := history(t, "", content)
			got, err := c.Prompt(conv)
			if err != nil || strings.Count(got, "None") != strings.Count(want, "None") || strings.Count(got, "null") != strings.Count(want, "null") {
				t.Errorf("%s, content %q: %q (%v)", name, content, got, err)
			}
			if own, err := c.plain.Text(conv, true); err == nil && own != got && strings.Count(own, "None")+strings.Count(own, "null") == strings.Count(want, "None")+strings.Count(want, "null") && c.known[c.plain] != nil && !c.known[c.plain].callText && !c.known[c.plain].partsOnly {
				t.Errorf("%s, content %q: the template takes it: %q\nadapted: %q", name, content, own, got)
			}
			null++
		}
	}
	t.Logf("%d templates, %d prompts with no calls, %d with no content", len(sources), same, null)
}
