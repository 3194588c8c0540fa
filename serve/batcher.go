package serve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tierlora/tierlora/infer"
)

// Predictor computes what models with a head give for texts; infer.Predictor implements it. Only the goroutine of Run
// calls Predict.
type Predictor interface {
	Predict(ctx context.Context, passages []infer.Passage) ([]infer.Prediction, error)
}

// roundPassages and roundTokens bound the texts that are computed together. A round always has a text.
const (
	roundPassages = 64
	roundTokens   = 8192
)

// question is a request's texts.
type question struct {
	ctx      context.Context
	passages []infer.Passage
	numbers  [][]float32 // of the passages that are computed
	err      error
	done     chan struct{} // closed when numbers or err is complete
}

// Batcher computes the texts of requests together. Requests take turns with one text each, in the order of their
// arrival, so that a request with many texts does not hold up the others.
type Batcher struct {
	predictor  Predictor
	maxWaiting int // requests

	mu      sync.Mutex
	queue   []*question
	closing bool
	stats   Stats

	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{}
	done   chan struct{}
	err    error // why it gave up; read after done is closed
}

// NewBatcher makes a batcher; the caller must call Run. At most waiting requests are queued.
func NewBatcher(p Predictor, waiting int) *Batcher {
	b := &Batcher{predictor: p, maxWaiting: waiting, wake: make(chan struct{}, 1), done: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	b.stats.Slots = roundPassages
	return b
}

// Predict queues texts and waits for their numbers.
func (b *Batcher) Predict(ctx context.Context, passages []infer.Passage) ([][]float32, error) {
	q := &question{ctx: ctx, passages: passages, done: make(chan struct{})}
	b.mu.Lock()
	switch {
	case b.closing:
		b.mu.Unlock()
		return nil, ErrClosing
	case len(b.queue) >= b.maxWaiting:
		b.stats.Refused++
		b.mu.Unlock()
		return nil, ErrBusy
	}
	b.queue = append(b.queue, q)
	b.mu.Unlock()
	b.poke()
	select {
	case <-q.done:
		return q.numbers, q.err
	case <-ctx.Done():
		b.poke() // Run takes it from the queue
		return nil, context.Cause(ctx)
	}
}

func (b *Batcher) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Stats returns the present statistics.
func (b *Batcher) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	stats := b.stats
	stats.Waiting = len(b.queue)
	return stats
}

// Closing reports whether new requests are refused.
func (b *Batcher) Closing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing
}

// Done returns a channel that is closed when the batcher has ended.
func (b *Batcher) Done() <-chan struct{} { return b.done }

// Close rejects new requests and finishes the present ones, or cancels them when ctx ends. It returns the error with
// which the batcher gave up, if it did.
func (b *Batcher) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.poke()
	select {
	case <-b.done:
	case <-ctx.Done():
		b.cancel(ErrClosing)
		b.poke()
		<-b.done
	}
	return b.err
}

// Run computes until Close, or until the model fails permanently. It must be called once, by the goroutine that made
// the predictor: a GPU's predictor is bound to that goroutine's thread.
func (b *Batcher) Run() {
	defer close(b.done)
	failures := 0
	for {
		round, ended := b.round()
		if len(round) == 0 {
			if ended {
				return
			}
			<-b.wake
			continue
		}
		err := b.compute(round)
		if err == nil || b.ctx.Err() != nil {
			failures = 0
			continue
		}
		if failures++; failures == failuresToStop {
			b.giveUp(err)
			return
		}
	}
}

// share is a text of a round: the question and the text's index.
type share struct {
	*question
	at int
}

// round takes the texts that are computed next. ended reports that no request will come.
func (b *Batcher) round() (all []share, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.queue[:0]
	for _, q := range b.queue {
		switch cause := context.Cause(b.ctx); {
		case cause != nil:
			b.end(q, cause)
		case q.ctx.Err() != nil:
			b.end(q, context.Cause(q.ctx))
		default:
			kept = append(kept, q)
		}
	}
	clear(b.queue[len(kept):])
	b.queue = kept
	taken, tokens := map[*question]int{}, 0
	for some := true; some && len(all) < roundPassages; {
		some = false
		for _, q := range b.queue {
			at := len(q.numbers) + taken[q]
			if at == len(q.passages) || len(all) == roundPassages {
				continue
			}
			if tokens += len(q.passages[at].IDs); tokens > roundTokens && len(all) > 0 {
				return all, false
			}
			all, some = append(all, share{q, at}), true
			taken[q]++
		}
	}
	b.stats.Running = len(all)
	return all, b.closing && len(b.queue) == 0
}

// compute computes a round and gives the questions their numbers. If it fails, it computes each text alone, so that
// only those fail whose numbers are broken; it returns an error if all do.
func (b *Batcher) compute(round []share) error {
	passages := make([]infer.Passage, len(round))
	tokens := int64(0)
	for i, s := range round {
		passages[i] = s.passages[s.at]
		tokens += int64(len(passages[i].IDs))
	}
	began := time.Now()
	out, err := b.predictor.Predict(b.ctx, passages)
	failed := make([]error, len(round))
	if err != nil {
		out = make([]infer.Prediction, len(round))
		good := false
		for i := range passages {
			var one []infer.Prediction
			if one, failed[i] = b.predictor.Predict(b.ctx, passages[i:i+1]); failed[i] == nil {
				out[i], good = one[0], true
			}
		}
		if good {
			err = nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Steps, b.stats.StepTime = b.stats.Steps+1, b.stats.StepTime+time.Since(began)
	b.stats.PromptTokens += tokens
	b.stats.Running = 0
	for i, s := range round {
		switch {
		case s.err != nil:
		case failed[i] != nil:
			b.end(s.question, fmt.Errorf("%w: %w", ErrEngine, failed[i]))
		default:
			if s.numbers = append(s.numbers, out[i].Numbers); len(s.numbers) == len(s.passages) {
				b.end(s.question, nil)
			}
		}
	}
	kept := b.queue[:0]
	for _, q := range b.queue {
		if q.err == nil && len(q.numbers) < len(q.passages) {
			kept = append(kept, q)
		}
	}
	clear(b.queue[len(kept):])
	b.queue = kept
	return err
}

// end completes a question. The caller must hold mu.
func (b *Batcher) end(q *question, why error) {
	if q.err = why; why == nil {
		b.stats.Finished++
	} else {
		b.stats.Failed++
	}
	close(q.done)
}

// giveUp ends all requests after the model has failed permanently.
func (b *Batcher) giveUp(err error) {
	b.err = fmt.Errorf("%d rounds in a row failed: %w", failuresToStop, err)
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.cancel(ErrClosing)
	b.round()
}
