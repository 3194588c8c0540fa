package infer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Values of Generated.Stopped.
const (
	StoppedEnd    = "end"    // a token ended the text or the turn
	StoppedText   = "stop"   // the answer contains one of GenerateOptions.Stop
	StoppedLength = "length" // the answer has GenerateOptions.MaxTokens tokens
)

// Generated is one generated answer.
type Generated struct {
	Text            string        `json:"text"`
	IDs             []int32       `json:"ids"` // all computed tokens, including those of a stop text
	PromptTokens    int           `json:"prompt_tokens"`
	Stopped         string        `json:"stopped"`
	StoppedBy       string        `json:"stopped_by,omitempty"` // the token or text that ended the answer
	Duration        time.Duration `json:"duration_ns"`
	TokensPerSecond float64       `json:"tokens_per_second"`
}

// Prompt is the input that a model continues.
type Prompt struct {
	IDs []int32
	// Images are the images of the prompt; nil = it has none.
	Images *dataset.RowImages
	Ends   []int32 // tokens that end the text, besides the model's own end tokens
	End    string  // text that ends the answer if no token does; "" = none
}

// Generator continues prompts one at a time with a model and an optional adapter. It is an Engine with one slot whose
// cache grows with the requests. It is not safe for concurrent use.
type Generator struct {
	*session.Session
	engine     *Engine // nil before the first text
	adapterDir string  // "" = none
	rules
	shared bool // another owner's memory: see SamplePlan
}

// NewGenerator opens a model and, unless adapterDir is empty, the adapter in that PEFT folder.
func NewGenerator(ctx context.Context, o session.Options, adapterDir string, env session.Env) (*Generator, error) {
	s, err := session.Open(ctx, o, env)
	if err != nil {
		return nil, err
	}
	if err := s.UseAdapter(adapterDir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	g, err := newGenerator(s, adapterDir)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return g, nil
}

// newGenerator makes a Generator that has no memory yet.
func newGenerator(s *session.Session, adapterDir string) (*Generator, error) {
	if s.Base.Tokenizer.OnlyNumbers() {
		return nil, fmt.Errorf("generate: %w", tokenizer.ErrNumbers)
	}
	rules, err := rulesOf(s)
	if err != nil {
		return nil, err
	}
	if adapterDir != "" {
		ends, err := adapterEnds(adapterDir)
		if err != nil {
			return nil, err
		}
		for _, id := range ends {
			rules.ends[id] = true
		}
	}
	return &Generator{Session: s, adapterDir: adapterDir, rules: rules}, nil
}

// Close releases the memory, the mapped weights and the device.
func (g *Generator) Close() error {
	var err error
	if g.engine != nil {
		err = g.engine.release()
	}
	return errors.Join(err, g.Session.Close())
}

// leastLen is the shortest sequence length, in tokens, for which a Generator allocates memory.
const leastLen = 256

// prepare plans and loads an engine for sequences of at least n tokens. It keeps the present engine if that is large
// enough.
func (g *Generator) prepare(ctx context.Context, n int) error {
	if g.shared {
		if n > g.engine.MaxLen() {
			return refuse(ErrTooLong,
				"%d tokens of prompt and answer together exceed the %d that there is memory for", n,
				g.engine.MaxLen())
		}
		return nil
	}
	if g.engine == nil {
		g.engine = &Engine{Session: g.Session, rules: g.rules}
	}
	// LongRoPE chooses its frequencies by the length of the cache: a short text gets the frequencies of short texts.
	length := max(n, leastLen)
	if limit, both := g.Base.Config.LongRope(length); both && n <= limit {
		length = limit
	}
	if g.engine.memory != nil {
		limit, both := g.Base.Config.LongRope(g.engine.MaxLen())
		if n <= g.engine.MaxLen() && (!both || n > limit) {
			return nil
		}
		if err := g.engine.release(); err != nil {
			return err
		}
	}
	return g.engine.open(ctx, EngineOptions{Slots: 1, MaxLen: min(length, g.Base.Config.MaxPositions)})
}

// Text encodes a prompt with the model's tokenizer and without a chat template.
func (g *Generator) Text(prompt string) Prompt { return textPrompt(g.Session, prompt) }

// ChatPrompt renders a conversation with the chat template called name ("" selects the adapter's or model's own) and
// tokenises it as training does. The answer ends at the tokens with which the template ends a turn.
func (g *Generator) ChatPrompt(conv *chat.Conversation, name string) (Prompt, error) {
	c, err := g.Chat(name)
	if err != nil {
		return Prompt{}, err
	}
	return ChatPrompt(c, g.Base.Tokenizer, conv)
}

// Generate continues a text. It calls emit, unless nil, with every piece of the answer as it is computed.
func (g *Generator) Generate(ctx context.Context, prompt string, o GenerateOptions,
	emit func(piece string)) (Generated, error) {
	return g.Continue(ctx, g.Text(prompt), o, emit)
}

// Continue continues a prompt. It calls emit, unless nil, with every piece of the answer as it is computed.
func (g *Generator) Continue(ctx context.Context, prompt Prompt, o GenerateOptions,
	emit func(piece string)) (Generated, error) {
	began := time.Now()
	if err := checkLength(g.Session, len(prompt.IDs), o.MaxTokens); err != nil {
		return Generated{}, err
	}
	if err := g.prepare(ctx, len(prompt.IDs)+o.MaxTokens); err != nil {
		return Generated{}, err
	}
	if err := g.engine.Start(0, "", prompt, o); err != nil {
		return Generated{}, err
	}
	r := Generated{PromptTokens: len(prompt.IDs), IDs: []int32{}} // an answer that ends at once is [] in JSON, not null
	var text strings.Builder
	err := g.engine.each(ctx, func(t Token) {
		if t.Part {
			r.IDs = append(r.IDs, t.ID)
		}
		text.WriteString(t.Text)
		if emit != nil && t.Text != "" {
			emit(t.Text)
		}
		r.Stopped, r.StoppedBy = t.Ended, t.EndedBy
	})
	if err != nil {
		return Generated{}, err
	}
	r.Text, r.Duration = text.String(), time.Since(began)
	r.TokensPerSecond = float64(len(r.IDs)) / r.Duration.Seconds()
	return r, nil
}

// each runs rounds until every slot is free and passes every token to take. It returns the first error of a sequence.
func (e *Engine) each(ctx context.Context, take func(Token)) error {
	for e.Busy() {
		tokens, err := e.Step(ctx)
		for _, t := range tokens {
			if t.Err != nil && err == nil {
				err = t.Err
				continue
			}
			take(t)
		}
		if err != nil {
			for slot := range e.Slots() {
				e.Stop(slot)
			}
			return err
		}
	}
	return nil
}
