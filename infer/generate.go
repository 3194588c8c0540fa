package infer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Values of Generated.Stopped.
const (
	StoppedEnd    = "end"    // at a token that ends the text or the turn
	StoppedText   = "stop"   // at one of GenerateOptions.Stop
	StoppedLength = "length" // at GenerateOptions.MaxTokens
)

// Generated is one answer.
type Generated struct {
	Text            string        `json:"text"`
	IDs             []int32       `json:"ids"` // of all that was computed, what ended the answer too if it is a text
	PromptTokens    int           `json:"prompt_tokens"`
	Stopped         string        `json:"stopped"`
	StoppedBy       string        `json:"stopped_by,omitempty"` // the token or the text that ended it
	Duration        time.Duration `json:"duration_ns"`
	TokensPerSecond float64       `json:"tokens_per_second"`
}

// Prompt is what a model continues.
type Prompt struct {
	IDs  []int32
	Ends []int32 // tokens that end the text beside the model's own end tokens
	End  string  // a text that ends it where no token does; "" = none
}

// Generator continues prompts one at a time with a model and, if given, an adapter: an Engine of one slot, whose cache
// grows with what is asked for. It is for one goroutine.
type Generator struct {
	*session.Session
	engine     *Engine // nil before the first text
	adapterDir string  // "" = none
	rules
	shared bool // the engine's memory is another's: see SamplePlan
}

// NewGenerator opens a model and the adapter of a PEFT folder, no adapter where that is empty.
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

// newGenerator is without memory yet.
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

// Close releases memory, mapped weights and the device.
func (g *Generator) Close() error {
	var err error
	if g.engine != nil {
		err = g.engine.release()
	}
	return errors.Join(err, g.Session.Close())
}

// leastLen is the least length that a Generator takes memory for.
const leastLen = 256

// prepare plans and loads for sequences of at least n tokens; what an earlier call made serves if it is large enough.
func (g *Generator) prepare(ctx context.Context, n int) error {
	if g.shared {
		if n > g.engine.MaxLen() {
			return refuse(ErrTooLong,
				"%d tokens, prompt and answer together, are above the %d that there is memory for", n,
				g.engine.MaxLen())
		}
		return nil
	}
	if g.engine == nil {
		g.engine = &Engine{Session: g.Session, rules: g.rules}
	}
	// LongRoPE's frequencies go by the length that there is memory for: a short text has those of short ones.
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

// Text is a prompt as the model's tokenizer encodes it by itself.
func (g *Generator) Text(prompt string) Prompt { return textPrompt(g.Session, prompt) }

// ChatPrompt renders a conversation by the chat template that name chooses ("" = the adapter's or model's own) and
// tokenises it as training does. The answer ends at the tokens with which the template ends a turn.
func (g *Generator) ChatPrompt(conv *chat.Conversation, name string) (Prompt, error) {
	c, err := g.Chat(name)
	if err != nil {
		return Prompt{}, err
	}
	return ChatPrompt(c, g.Base.Tokenizer, conv)
}

// Generate continues a text and gives emit every piece of the answer as it comes; emit may be nil.
func (g *Generator) Generate(ctx context.Context, prompt string, o GenerateOptions,
	emit func(piece string)) (Generated, error) {
	return g.Continue(ctx, g.Text(prompt), o, emit)
}

// Continue continues a prompt and gives emit every piece of the answer as it comes; emit may be nil.
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
	r := Generated{PromptTokens: len(prompt.IDs), IDs: []int32{}} // [] in JSON, not null, where the text ends at once
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

// each runs rounds until every slot is free; take is given every token. The error of a sequence ends it.
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
