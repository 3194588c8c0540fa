package serve

import (
	"bytes"
	"context"
	"runtime"
	"testing"
)

// ownedEngine notes which goroutines call Step.
type ownedEngine struct {
	*fakeEngine
	callers map[string]bool
}

func (e *ownedEngine) Step(ctx context.Context) ([]Token, error) {
	e.callers[goroutine()] = true
	return e.fakeEngine.Step(ctx)
}

// goroutine is "goroutine N".
func goroutine() string {
	text := make([]byte, 64)
	text = text[:runtime.Stack(text, false)]
	return string(bytes.SplitN(text, []byte(" ["), 2)[0])
}

// TestEngineStaysWithItsGoroutine: a GPU's engine works on the thread of the goroutine that made it, which is the one
// that calls Run.
func TestEngineStaysWithItsGoroutine(t *testing.T) {
	e := &ownedEngine{newFake(t, 2), map[string]bool{}}
	e.words = word
	s := NewScheduler(e, 4)
	ended := make(chan error, 1)
	q := &Sequence{Sampling: Sampling{MaxTokens: 3}, Take: func(Token) {}, End: func(err error) { ended <- err }}
	if err := s.Submit(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s.Run()
	if len(e.callers) != 1 || !e.callers[goroutine()] {
		t.Errorf("the engine was called by %v, Run by %s", e.callers, goroutine())
	}
}
