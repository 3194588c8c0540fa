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
	// Start puts a sequence into a free slot; its tokens come from the next Step on. adapter "" is the base model
	// alone.
	Start(slot int, adapter string, prompt infer.Prompt, o Sampling) error
	// Step gives the next token of every slot that holds a sequence, but for those whose prompt is not through yet.
	Step(ctx context.Context) ([]Token, error)
	// Stop makes a slot free.
	Stop(slot int)
}

// Names of infer that this package speaks of all the time.
type (
	Sampling = infer.GenerateOptions
	Token    = infer.Token
	TopToken = infer.TopToken
	Scored   = infer.ScoredToken
)

var _ Engine = (*infer.Engine)(nil)
