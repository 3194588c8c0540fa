// Package serve answers many requests with one model: a scheduler that shares the slots of a decoding engine, and an
// HTTP server in front of it that speaks OpenAI's API.
//
//	request -> prompt in tokens (request.go) -> Scheduler (scheduler.go) -> Engine -> answer (answer.go) -> JSON or events (reply.go, stream.go)
package serve

import (
	"context"

	"github.com/tierlora/tierlora/infer"
)

// Engine decodes up to Slots sequences at once; an infer.Engine is one. Only the scheduler's goroutine calls it.
type Engine interface {
	Slots() int
	MaxLen() int // most tokens of a sequence, prompt and answer together
	// Start puts a sequence into a free slot; its tokens come from the next Step on. adapter "" is the base model alone.
	Start(slot int, adapter string, prompt infer.Prompt, o Sampling) error
	// Step gives the next token of every slot that holds a sequence, but for those whose prompt is not through yet.
	Step(ctx context.Context) ([]Token, error)
	// Stop makes a slot free.
	Stop(slot int)
}

// Sampling steers the choice of a sequence's tokens.
type Sampling struct {
	MaxTokens         int
	Temperature       float64 // 0 = the likeliest token
	TopP              float64 // 0 or 1 = all
	TopK              int     // 0 = all
	MinP              float64 // least probability relative to the likeliest token's; 0 = all
	RepetitionPenalty float64 // 0 or 1 = none
	PresencePenalty   float64
	FrequencyPenalty  float64
	Bias         map[int32]float64 // added to logits
	Seed              uint64
	Stop              []string
	Logprobs          bool
	TopLogprobs       int  // most likely tokens that are told with each token
	PromptLogprobs    bool // the same of the prompt's tokens
}

// TopToken is a token with the natural logarithm of its probability before temperature, penalties and bias.
type TopToken struct {
	ID      int32
	Logprob float64
}

// Scored is a token with the likeliest tokens in its place, the likeliest first.
type Scored struct {
	TopToken
	Top []TopToken
}

// Token is what one slot gives in a step.
type Token struct {
	Slot    int
	ID      int32
	Text    string
	Part    bool // one of the answer's tokens
	Logprob float64
	Top     []TopToken
	Ended   string
	EndedBy string
	Err     error
	Prompt  []Scored // with Sampling.PromptLogprobs, before the first token: that of prompt[1:]
}
