//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

// TestServeAsTrained: a conversation without a system message gets that of training, unless --system says otherwise,
// and requests of another form than the training's are noted once.
func TestServeAsTrained(t *testing.T) {
	t.Parallel()
	dir := answerPlace(t)
	const (
		chat = "/chat/completions"
		text = "/completions"
	)
	body := func(model, messages string) string {
		return `{"model":"` + model + `","max_tokens":8,"temperature":0,"messages":[` + messages + `]}`
	}
	const user, kind, loud = `{"role":"user","content":"hi"}`, `{"role":"system","content":"Be kind."}`,
		`{"role":"system","content":"Shout."}`
	s := startServer(t, dir, nil, "--model", "model", "--adapter", "chat", "--adapter", "plain", "--slots", "1",
		"--max-length", "128")
	own := s.ask(t, chat, body("chat", user), "")
	if same := s.ask(t, chat, body("chat", kind+","+user), ""); own != same {
		t.Errorf("%q without a system message, %q with that of training", own, same)
	}
	other := s.ask(t, chat, body("chat", loud+","+user), "")
	for range 2 {
		s.ask(t, text, `{"model":"chat","prompt":"hi","max_tokens":2}`, "")
	}
	s.end(syscall.SIGTERM)
	said := s.errOut.String()
	for _, want := range []string{
		`system: "Be kind.", with which adapter chat was trained, for conversations that bring none; --system TEXT ` +
			`gives another, --system "" none` + "\n",
		"note: /v1/chat/completions: adapter plain was trained on prompts and answers as plain text, and is asked " +
			"with conversations in a chat template: ",
		"/v1/completions: adapter chat was trained on conversations, and is asked with a text as it is: " +
			"/v1/chat/completions asks as in training\n",
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(said, want), want, said)
		}
	}
	for system, want := range map[string]string{"Shout.": other, "Be kind.": own} {
		s := startServer(t, dir, nil, "--model", "model", "--adapter", "chat", "--slots", "1", "--max-length", "128",
			"--system", system)
		if got := s.ask(t, chat, body("chat", user), ""); got != want {
			t.Errorf("--system %q: %q, want %q", system, got, want)
		}
		s.end(syscall.SIGTERM)
		if strings.Contains(s.errOut.String(), "system: ") {
			t.Errorf("--system %q:\n%s", system, s.errOut)
		}
	}
}
