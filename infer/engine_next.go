package infer

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/internal/rescue"
)

// nextTokens returns the next token of each sequence. It takes at most as many sequences as the largest decoding step
// has pieces.
func (e *Engine) nextTokens(ctx context.Context, of []*sequence) ([]Token, error) {
	run := smallest(e.decode, len(of))
	pieces := make([]piece, len(of))
	for i, s := range of {
		pieces[i] = piece{slot: s.slot, start: len(s.prompt) + len(s.ids) - 1, ids: s.ids[len(s.ids)-1:],
			adapter: s.adapter, shift: s.shift}
	}
	if err := run.forward(pieces...); err != nil {
		return nil, err
	}
	tokens := make([]Token, len(of))
	if !slices.ContainsFunc(of, (*sequence).wantsLogits) {
		ids, err := run.likeliest(len(of))
		if err != nil {
			return nil, err
		}
		usable := true
		for i, s := range of {
			usable = usable && ids[i] >= 0 && !s.sampler.never[ids[i]]
		}
		if usable {
			for i, s := range of {
				tokens[i] = s.takeLikeliest(ids[i])
				e.taken(ctx, s, &tokens[i])
			}
			return tokens, nil
		}
	}
	logits, err := run.rowsOf(len(pieces))
	if err != nil {
		return nil, err
	}
	if len(of) == 1 {
		tokens[0] = of[0].take(logits[0])
	} else {
		var all sync.WaitGroup // sequences choose concurrently: sorting many tokens takes long
		for i, s := range of {
			all.Go(rescue.Wrap(func() { tokens[i] = s.take(logits[i]) }))
		}
		all.Wait()
	}
	for i, s := range of {
		e.taken(ctx, s, &tokens[i])
	}
	return tokens, nil
}

// taken frees the slot of a sequence whose last token came.
func (e *Engine) taken(ctx context.Context, s *sequence, t *Token) {
	if t.Err != nil {
		t.Err = fmt.Errorf("generate: %w", e.BlameNotFinite(ctx, t.Err))
	}
	if t.Ended != "" {
		e.free(s)
	}
}

// free frees the slot of a sequence, unless another has it since.
func (e *Engine) free(s *sequence) {
	if e.slots[s.slot] == s {
		e.slots[s.slot] = nil
	}
}
