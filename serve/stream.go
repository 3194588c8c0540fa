package serve

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// keepAlive is the interval of keep-alive comments in a stream without tokens, for proxies that close silent
// connections.
const keepAlive = 15 * time.Second

type chatChunk struct {
	reply
	Choices []chatDelta `json:"choices"`
	Usage   *usage      `json:"usage,omitempty"`
}

type chatDelta struct {
	Index    int           `json:"index"`
	Delta    delta         `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type delta struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	ToolCalls []call  `json:"tool_calls,omitempty"`
}

type textChunk struct {
	reply
	Choices []textChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

// events writes server-sent events. Every write has a time limit: a client that does not read is disconnected.
type events struct {
	w     http.ResponseWriter
	limit time.Duration
	begun bool
}

func (e *events) send(text string) error {
	c := http.NewResponseController(e.w)
	if err := c.SetWriteDeadline(time.Now().Add(e.limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if !e.begun {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
		e.begun = true
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return c.Flush()
}

func (e *events) data(b *strings.Builder, v any) error {
	text, err := marshal(v)
	if err == nil {
		b.WriteString("data: ")
		b.Write(text)
		b.WriteString("\n\n")
	}
	return err
}

// streaming is a request whose answers are streamed.
type streaming struct {
	*answering
	lib     *Library
	head    reply
	readers []callReader
	texts   []*textLogprobs // one for each answer; their offsets continue
	begun   []bool
}

// streamed writes a request's answers as events until they have ended. The caller must report an error that occurs
// before the first event; a later error is the stream's last event.
func (l *Library) streamed(ctx context.Context, e *events, a *answering) error {
	s := &streaming{answering: a, lib: l, head: newReply(a.request), readers: make([]callReader, len(a.answers)),
		texts: make([]*textLogprobs, len(a.answers)), begun: make([]bool, len(a.answers))}
	if a.chat {
		s.head.Object = "chat.completion.chunk"
	}
	for i := range s.readers {
		s.readers[i].format, s.readers[i].held = a.at(i).calls, a.at(i).lead
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for a.open > 0 {
		got, err := a.next(ctx, alive.C)
		if err != nil {
			return err
		}
		if got == nil {
			if err := e.send(": waiting\n\n"); err != nil {
				return err
			}
			continue
		}
		var b strings.Builder
		for _, event := range got {
			if err := s.write(e, &b, event); err != nil {
				return err
			}
		}
		if b.Len() > 0 {
			if err := e.send(b.String()); err != nil {
				return err
			}
		}
	}
	var b strings.Builder
	if a.usage {
		u := a.usageOf()
		if err := s.chunk(e, &b, nil, nil, &u); err != nil {
			return err
		}
	}
	return e.send(b.String() + "data: [DONE]\n\n")
}

// chunk writes one event.
func (s *streaming) chunk(e *events, b *strings.Builder, c *chatDelta, t *textChoice, u *usage) error {
	if s.chat {
		out := chatChunk{reply: s.head, Choices: []chatDelta{}, Usage: u}
		if c != nil {
			out.Choices = append(out.Choices, *c)
		}
		return e.data(b, out)
	}
	out := textChunk{reply: s.head, Choices: []textChoice{}, Usage: u}
	if t != nil {
		out.Choices = append(out.Choices, *t)
	}
	return e.data(b, out)
}

func (s *streaming) write(e *events, b *strings.Builder, event event) error {
	if s.chat {
		return s.writeChat(e, b, event)
	}
	i := event.answer
	c := textChoice{Index: i, Text: event.piece}
	if s.echo && !s.begun[i] && !event.last {
		c.Text = s.at(i).echo + c.Text
	}
	if s.logprobs && !event.last {
		lp := s.lib.textLogprobs(s.answering, i, event.prompt, s.echo && !s.begun[i])
		if before := s.texts[i]; before != nil {
			lp.offset = before.offset
		}
		for _, t := range event.tokens {
			lp.add(s.lib, t, s.top)
		}
		c.Logprobs, s.texts[i] = lp, lp
	}
	s.begun[i] = true
	if event.last {
		finish := s.finish(i, false)
		c.Finish = &finish
	} else if c.Text == "" && c.Logprobs == nil {
		return nil
	}
	return s.chunk(e, b, nil, &c, nil)
}

func (s *streaming) writeChat(e *events, b *strings.Builder, event event) error {
	i := event.answer
	if !s.begun[i] {
		s.begun[i] = true
		empty := ""
		if err := s.chunk(e, b, &chatDelta{Index: i, Delta: delta{Role: "assistant", Content: &empty}}, nil,
			nil); err != nil {
			return err
		}
	}
	text := s.readers[i].push(event.piece)
	var calls []call
	if event.last {
		var rest string
		rest, calls = s.readers[i].finish()
		text += rest
	}
	var lp *chatLogprobs
	if s.logprobs && len(event.tokens) > 0 {
		lp = s.lib.chatLogprobs(event.tokens, s.top)
	}
	if text != "" || lp != nil {
		if err := s.chunk(e, b, &chatDelta{Index: i, Delta: delta{Content: &text}, Logprobs: lp}, nil,
			nil); err != nil {
			return err
		}
	}
	if len(calls) > 0 {
		for n := range calls {
			calls[n].Index = &n
		}
		if err := s.chunk(e, b, &chatDelta{Index: i, Delta: delta{ToolCalls: calls}}, nil, nil); err != nil {
			return err
		}
	}
	if !event.last {
		return nil
	}
	finish := s.finish(i, len(calls) > 0)
	return s.chunk(e, b, &chatDelta{Index: i, Finish: &finish}, nil, nil)
}
