package main

import (
	"html"
	"strings"
	"testing"
	"unicode"

	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/text/chat"
)

// FuzzMessages: a file of messages is read or refused, and what is read has messages.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{`[]`, `{"messages":[{"role":"user","content":"a"}],"tools":null}`, "\ufeff[1]",
		`{"messages":`, `"x"`, ` {"chat_template_kwargs":{}} `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, raw := chatOptions{messages: "-"}, chat.Raw{Key: "messages"}
		if err := o.readMessages(&console{in: strings.NewReader(text)}, &raw); err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if raw.Messages == nil {
			t.Fatal("neither messages nor an error")
		}
		if conv, err := chat.Read(raw); err == nil && len(conv.Messages) == 0 {
			t.Error("a conversation without messages")
		}
	})
}

// FuzzVisible: what is shown steers no terminal and holds no markup.
func FuzzVisible(f *testing.F) {
	for _, s := range []string{"a\x1b[0m", "\\n\n", "\u202e", "\xff\xfe", "<b>&amp;</b>", "\r\n\t\u2028", "\\x1b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range safetext.Visible(s) {
			if r != '\n' && r != ' ' && !unicode.IsPrint(r) {
				t.Fatalf("%q shows %U", s, r)
			}
		}
		if page := pageText(s); strings.ContainsAny(page, `<>"'`) || html.UnescapeString(page) != strings.ReplaceAll(
			safetext.Visible(s), "\\n\n", "↵\n") {
			t.Fatalf("%q is %q on a page", s, page)
		}
	})
}
