package infer

import (
	"context"

	"github.com/tierlora/tierlora/session"
)

// scoreTokens is the number of prompt tokens scored in one step: each has a row of logits.
const scoreTokens = 64

// ScoredToken is a prompt token with its log-probability given the tokens before it.
type ScoredToken struct {
	TopToken
	Top []TopToken // the likeliest tokens at its position
}

// addScore plans the step that scores prompts and appends it to the plan's steps.
func (p *enginePlan) addScore(s *session.Session) error {
	step, err := newLogitsStep(s.Net, "score ", logitsShape{tokens: scoreTokens, pieces: 1, rows: scoreTokens,
		slots: p.Slots, maxLen: p.MaxLen}, s.On)
	p.steps = append(p.steps, step)
	return err
}

// readScored replaces readPiece for a sequence whose prompt is scored.
func (e *Engine) readScored(ctx context.Context, s *sequence) ([]Token, error) {
	logits, err := e.scorePiece(s)
	if logits == nil || err != nil {
		return nil, err
	}
	t := s.take(logits)
	e.taken(ctx, s, &t)
	t.Prompt = s.scored
	return []Token{t}, nil
}

// scorePiece reads the next piece of a prompt as readPiece does, with a step that returns the logits of every token,
// and keeps the log-probabilities of the prompt's tokens. After the last piece it returns the logits of the answer's
// first token, before that nil.
func (e *Engine) scorePiece(s *sequence) ([]float32, error) {
	n, err := session.Uncut(s.prompt[s.read:], e.score.step.tokens, s.images)
	if err != nil {
		return nil, err
	}
	p := piece{slot: s.slot, start: s.read, ids: s.prompt[s.read:][:n], adapter: s.adapter}
	p.images, p.before = s.images, s.prompt[:s.read]
	if err := e.score.forward(p); err != nil {
		return nil, err
	}
	t, err := e.score.logits()
	if err != nil {
		return nil, err
	}
	vocab, first := t.Shape[1], len(e.score.rows)-n // the last rows are those of this piece's tokens
	for i := range n {
		logits := t.F32()[(first+i)*vocab:][:vocab]
		if s.read++; s.read == len(s.prompt) {
			return logits, nil
		}
		if notFinite(logits) >= 0 {
			return logits, nil // choosing a token reports the logits as not finite and ends the sequence
		}
		next := s.prompt[s.read]
		s.scored = append(s.scored, ScoredToken{TopToken{next, logprob(logits, next)},
			topLogprobs(logits, s.o.TopLogprobs)})
	}
	return nil, nil
}
