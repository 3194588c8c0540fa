// Package serve is an OpenAI-compatible server: a scheduler that shares the slots of a decoding engine among requests
// (continuous batching), and an HTTP server in front of it.
//
//	request -> prompt in tokens (request.go) -> Scheduler (scheduler.go) -> Engine
//	        -> answer (answer.go) -> JSON or events (reply.go, stream.go)
package serve

import (
	"context"

	"github.com/tierlora/tierlora/infer"
)

// Engine decodes up to Slots sequences concurrently; infer.Engine implements it. Only the scheduler's goroutine calls
// it.
type Engine interface {
	Slots() int
	MaxLen() int // most tokens of a sequence, prompt and answer together
	// Start assigns a sequence to a free slot; its tokens come from the next Step on. adapter "" is the base model.
	Start(slot int, adapter string, prompt infer.Prompt, o Sampling) error
	// Step returns the next token of every slot whose sequence has read its prompt.
	Step(ctx context.Context) ([]Token, error)
	// Stop frees a slot.
	Stop(slot int)
}

// Short names for types of package infer.
type (
	Sampling = infer.GenerateOptions
	Token    = infer.Token
	TopToken = infer.TopToken
	Scored   = infer.ScoredToken
)

var _ Engine = (*infer.Engine)(nil)
