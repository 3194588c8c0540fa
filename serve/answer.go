package serve

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/infer"
)

var errTimeout = errors.New("the request took longer than this server allows")

func itoa(i int) string { return strconv.Itoa(i) }

// event is the scheduler's news about one answer of a request.
type event struct {
	answer int
	piece  string
	tokens []Scored // new tokens of the answer, without an end token that is not text
	prompt []Scored
	last   bool
	err    error
}

// inbox passes events from the scheduler, which never waits, to the goroutine that serves the client. The answers'
// largest lengths bound its size.
type inbox struct {
	mu     sync.Mutex
	events []event
	some   chan struct{}
}

func (b *inbox) put(e event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	select {
	case b.some <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.events
	b.events = nil
	return all
}

// answering is a request whose answers are being generated.
type answering struct {
	*request
	inbox   inbox
	answers []ended // written by the scheduler, read after the answer has ended
	open    int     // number of answers that have not ended
}

// ended describes how an answer ended.
type ended struct {
	how    string // a value of infer.Generated.Stopped
	tokens int
}

// start queues a request's sequences. They end when ctx is cancelled.
func (l *Library) start(ctx context.Context, s *Scheduler, r *request) (*answering, error) {
	a := &answering{request: r, inbox: inbox{some: make(chan struct{}, 1)}, answers: make([]ended, r.answers()),
		open: r.answers()}
	all := make([]*Sequence, r.answers())
	for i := range all {
		p := r.at(i)
		q := &Sequence{Adapter: r.model.Adapter, Prompt: p.Prompt, Sampling: r.sampling, Take: a.taker(l, i),
			End: func(err error) {
				a.inbox.put(event{answer: i, last: true, err: err})
			}}
		q.Sampling.Seed = r.seed(i)
		q.Sampling.MaxTokens = max(1, r.sampling.MaxTokens)
		all[i] = q
	}
	return a, s.Submit(ctx, all...)
}

// taker returns the Sequence.Take of answer i.
func (a *answering) taker(l *Library, i int) func(Token) {
	marks := l.marks(a.at(i).calls)
	return func(t Token) {
		e := event{answer: i, piece: t.Text, prompt: t.Prompt}
		if a.score {
			e.piece, t.Part = "", false
		} else if a.logprobs && (!a.chat || t.Part) {
			e.tokens = []Scored{scored(t.ID, t.Logprob, t.Top)}
		}
		if t.Part {
			a.answers[i].tokens++
			e.piece += marks[t.ID]
		}
		if a.answers[i].how = t.Ended; a.score && t.Ended != "" {
			a.answers[i].how = infer.StoppedLength
		}
		a.inbox.put(e)
	}
}

func scored(id int32, logprob float64, top []TopToken) Scored {
	return Scored{TopToken: TopToken{ID: id, Logprob: logprob}, Top: top}
}

// marks returns the special tokens that a tool call format shows as text.
func (l *Library) marks(f *callFormat) map[int32]string {
	if f == nil {
		return nil
	}
	marks := map[int32]string{}
	for _, text := range f.marks {
		if id, ok := l.Tokenizer.ID(text); ok && l.Tokenizer.IsSpecial(id) {
			marks[id] = text
		}
	}
	return marks
}

// next waits for events, or for the clock, upon which it returns none. It returns an error if the request has ended
// with one.
func (a *answering) next(ctx context.Context, clock <-chan time.Time) ([]event, error) {
	var events []event
	for len(events) == 0 {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-clock:
			return nil, nil
		case <-a.inbox.some:
			events = a.inbox.take()
		}
	}
	for _, e := range events {
		if e.err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, e.err
		}
		if e.last {
			a.open--
		}
	}
	return events, nil
}

// finish returns OpenAI's finish_reason of answer i.
func (a *answering) finish(i int, calls bool) string {
	switch {
	case a.answers[i].how == infer.StoppedLength:
		return "length"
	case calls:
		return "tool_calls"
	}
	return "stop"
}

// usageOf counts the tokens of a request.
func (a *answering) usageOf() usage {
	u := usage{PromptTokens: a.promptTokens()}
	for _, answer := range a.answers {
		u.CompletionTokens += answer.tokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// whole is a complete answer.
type whole struct {
	text   strings.Builder
	tokens []Scored
	prompt []Scored
}

// collect waits for all answers.
func (a *answering) collect(ctx context.Context) ([]whole, error) {
	all := make([]whole, len(a.answers))
	for a.open > 0 {
		events, err := a.next(ctx, nil)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			w := &all[e.answer]
			w.text.WriteString(e.piece)
			w.tokens = append(w.tokens, e.tokens...)
			w.prompt = append(w.prompt, e.prompt...)
		}
	}
	return all, nil
}
