package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/text/chat"
)

// talk is a conversation with a model.
type talk struct {
	c        *console
	engine   *infer.Engine
	template string // value of --chat-template
	adapter  string // name of the adapter that answers; "" = the base model
	writer   *chat.Chat
	system   string
	// systemGiven reports whether the user set the system message, if only to "". Otherwise the system message of
	// training is used.
	systemGiven bool
	turns       []turn   // messages of user and assistant alternately
	images      bool     // the engine reads images
	shown       []string // image files of the next message
	options     infer.GenerateOptions
	terminal    bool // a person reads the output
	colour      bool
	json        bool
}

type turn struct {
	Role    string   `json:"role"`
	Content string   `json:"content"`
	Images  []string `json:"-"` // files that come before the content
}

// MarshalJSON writes a message with images as parts, as training reads it.
func (t turn) MarshalJSON() ([]byte, error) {
	if len(t.Images) == 0 {
		type plain turn
		return json.Marshal(plain(t))
	}
	return json.Marshal(map[string]any{"role": t.Role, "content": withImages(t.Images, t.Content)})
}

// said is one answer in the output of --json.
type said struct {
	Text            string  `json:"text"`
	Adapter         string  `json:"adapter,omitempty"`
	Stopped         string  `json:"stopped"`
	PromptTokens    int     `json:"prompt_tokens"`
	Tokens          int     `json:"tokens"`
	TokensPerSecond float64 `json:"tokens_per_second"`
}

const stoppedByUser = "interrupted"

// errQuit ends the conversation.
var errQuit = errors.New("quit")

// use makes the adapter called name answer from now on.
func (t *talk) use(name string) error {
	writer, err := t.engine.Chat(name, t.template)
	if err != nil {
		return errors.New(asFlag(err))
	}
	p, err := t.engine.PromptFormat(name)
	if err != nil {
		return err
	}
	t.adapter, t.writer = name, writer
	note := askedOtherwise(p, t.name(), wayChat)
	if note == "" {
		note = otherTemplate(p, t.name(), writer)
	}
	if note != "" {
		t.c.say("note: %s", note)
	}
	if t.systemGiven {
		return nil
	}
	if system := trainedSystem(p); system != t.system {
		if t.system = system; system == "" {
			t.c.say("system: none, as %s was trained", t.name())
		} else {
			t.c.say("system: %s, with which %s was trained; /system TEXT gives another, /system none removes it",
				shown(system), t.name())
		}
	}
	return nil
}

// name describes the adapter or base model that answers.
func (t *talk) name() string {
	if t.adapter == "" {
		return "the base model"
	}
	return "adapter " + t.adapter
}

// run answers line by line. On a pipe an error ends the conversation; on a terminal the user may try again.
func (t *talk) run(ctx context.Context, in lines) error {
	for {
		line, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			if t.terminal {
				fmt.Fprintln(t.c.out)
			}
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(line) == "":
			continue
		}
		if err = t.take(ctx, line); errors.Is(err, errQuit) {
			return nil
		}
		if err != nil && (!t.terminal || fatal(err)) {
			return err
		}
		if err != nil {
			t.c.say("%s", err)
		}
	}
}

// fatal reports whether the engine cannot be used after err.
func fatal(err error) bool { var e *engineError; return errors.As(err, &e) }

type engineError struct{ error }

func (e *engineError) Unwrap() error { return e.error }

// take handles one line: a command, or a message to answer.
func (t *talk) take(ctx context.Context, line string) error {
	if strings.HasPrefix(line, "/") {
		return t.command(ctx, line)
	}
	t.turns = append(t.turns, turn{Role: "user", Content: line, Images: t.shown})
	t.shown = nil
	return t.answer(ctx)
}

// answer generates a reply to the conversation, which ends with the user's message. If there is no reply, it removes
// that message.
func (t *talk) answer(ctx context.Context) error {
	prompt, err := t.written()
	if err == nil {
		if n, most := len(prompt.IDs), t.engine.MaxLen(); n >= most {
			err = usage(fmt.Errorf("the conversation has %d tokens, and there is room for %d: /undo takes back the "+
				"last exchange, /reset all; --max-length gives more", n, most))
		}
	}
	if err != nil {
		t.turns = t.turns[:len(t.turns)-1]
		return err
	}
	o := t.options
	o.MaxTokens = min(o.MaxTokens, t.engine.MaxLen()-len(prompt.IDs))
	text, last, err := t.generate(ctx, prompt, o)
	if err != nil || text == "" && last.Stopped == stoppedByUser {
		t.turns = t.turns[:len(t.turns)-1]
		return err
	}
	t.turns = append(t.turns, turn{Role: "assistant", Content: text})
	return t.show(last)
}

// written renders the conversation with the chat template.
func (t *talk) written() (infer.Prompt, error) {
	messages, err := json.Marshal(t.turns)
	if err != nil {
		return infer.Prompt{}, err
	}
	conv, err := chat.Read(chat.Raw{Key: "messages", Messages: messages, System: t.system,
		WithImages: t.images})
	if err != nil {
		return infer.Prompt{}, usage(err)
	}
	p, err := infer.ChatPrompt(t.writer, t.engine.Base.Tokenizer, conv)
	if err != nil {
		return p, usage(errors.New(asFlag(err)))
	}
	if len(conv.Images) == 0 {
		return p, nil
	}
	files, err := imageFiles(conv.Images)
	if err == nil {
		p, err = t.engine.ShowImages(p, files)
	}
	if err != nil {
		return p, usage(err)
	}
	return p, nil
}

// generate computes the answer and prints it token by token on a terminal. Ctrl-C ends the answer there.
func (t *talk) generate(ctx context.Context, prompt infer.Prompt, o infer.GenerateOptions) (string, said, error) {
	if err := t.engine.Start(0, t.adapter, prompt, o); err != nil {
		return "", said{}, err
	}
	defer t.engine.Stop(0)
	s := said{Adapter: t.adapter, PromptTokens: len(prompt.IDs)}
	var text strings.Builder
	began := time.Now()
	step := func(ctx context.Context) error {
		for s.Stopped == "" {
			tokens, err := t.engine.Step(ctx)
			if err != nil {
				return err
			}
			for _, token := range tokens {
				if token.Err != nil {
					return token.Err
				}
				if token.Part {
					s.Tokens++
				}
				s.Stopped = token.Ended
				text.WriteString(token.Text)
				if t.terminal {
					if _, err := io.WriteString(t.c.out, plainText(token.Text)); err != nil {
						return fmt.Errorf("write the answer: %w", err)
					}
				}
			}
		}
		return nil
	}
	err := interruptible(ctx, step)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil && t.terminal {
		s.Stopped, err = stoppedByUser, nil
	} else if err != nil && ctx.Err() == nil {
		err = &engineError{err}
	}
	s.Text, s.TokensPerSecond = text.String(), float64(s.Tokens)/time.Since(began).Seconds()
	return s.Text, s, err
}

// show ends an answer on a terminal, and prints the whole answer on a pipe.
func (t *talk) show(s said) error {
	var err error
	switch {
	case t.json:
		enc := json.NewEncoder(t.c.out)
		enc.SetEscapeHTML(false)
		err = enc.Encode(s)
	case !t.terminal:
		_, err = fmt.Fprintln(t.c.out, strings.ReplaceAll(s.Text, "\n", `\n`))
	default:
		if !strings.HasSuffix(s.Text, "\n") {
			fmt.Fprintln(t.c.out)
		}
		note := fmt.Sprintf("(%d tokens, %.1f tokens/s", s.Tokens, s.TokensPerSecond)
		switch s.Stopped {
		case infer.StoppedLength:
			note += ", cut at the limit"
		case stoppedByUser:
			note += ", stopped"
		}
		if note += ")"; t.colour {
			note = "\x1b[2m" + note + "\x1b[0m"
		}
		_, err = fmt.Fprintln(coloured(t.c.out), note)
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// last returns the number of turns before the last exchange.
func (t *talk) last() int {
	n := len(t.turns)
	for n > 0 && t.turns[n-1].Role != "user" {
		n--
	}
	return max(0, n-1)
}

// adapters returns the names that /adapter accepts.
func (t *talk) adapters() []string {
	names := t.engine.Adapters()
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
