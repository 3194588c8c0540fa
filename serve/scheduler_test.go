package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlora/tierlora/infer"
)

// track records the order in which sequences begin and end.
type track struct {
	mu     sync.Mutex
	began  []string
	ended  []string
	errs   map[string]error
	number sync.WaitGroup
}

func (k *track) sequence(name string, tokens int) *Sequence {
	k.number.Add(1)
	first := true
	return &Sequence{
		Prompt: infer.Prompt{IDs: []int32{1}}, Sampling: Sampling{MaxTokens: tokens},
		Take: func(Token) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if first {
				k.began = append(k.began, name)
				first = false
			}
		},
		End: func(err error) {
			k.mu.Lock()
			k.ended = append(k.ended, name)
			k.errs[name] = err
			k.mu.Unlock()
			k.number.Done()
		},
	}
}

func word(infer.Prompt, string, Sampling, int) string { return "w" }

// begun starts a scheduler whose first request holds its only slot until the gate opens.
func gated(t *testing.T, waiting int) (*Scheduler, *fakeEngine, *track) {
	t.Helper()
	e := newFake(t, 1)
	e.words, e.gate = word, make(chan struct{})
	s := NewScheduler(e, waiting)
	go s.Run()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
	})
	return s, e, &track{errs: map[string]error{}}
}

// TestTurns: one with many sequences lets others in between.
func TestTurns(t *testing.T) {
	s, e, k := gated(t, 10)
	ctx := context.Background()
	for _, submit := range []struct {
		name string
		n    int
	}{{"a", 4}, {"b", 1}, {"c", 2}} {
		var all []*Sequence
		for i := range submit.n {
			all = append(all, k.sequence(fmt.Sprint(submit.name, i), 1))
		}
		if err := s.Submit(ctx, all...); err != nil {
			t.Fatal(err)
		}
		if submit.name == "a" { // it has the slot before the others come
			for s.Stats().Running == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	close(e.gate)
	k.number.Wait()
	if got := strings.Join(k.began, " "); got != "a0 a1 b0 c0 a2 c1 a3" {
		t.Errorf("they began as %s", got)
	}
}

// TestQueueIsBounded: what is above the bound is refused at once, with a time to come back, and nothing of others is
// lost.
func TestQueueIsBounded(t *testing.T) {
	s, e, k := gated(t, 2)
	ctx := context.Background()
	for i := range 3 { // one in the slot, two waiting
		if err := s.Submit(ctx, k.sequence(fmt.Sprint(i), 1)); err != nil {
			t.Fatal(i, err)
		}
		for i == 0 && s.Stats().Running == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := s.Submit(ctx, &Sequence{}); !errors.Is(err, ErrBusy) {
		t.Errorf("the fourth: %v", err)
	}
	close(e.gate)
	k.number.Wait()
	if stats := s.Stats(); stats.Refused != 1 || stats.Finished != 3 {
		t.Errorf("%+v", stats)
	}
}

// TestManySequencesWait checks that a request of which some sequences still wait takes a place of the queue: otherwise
// requests of 128 sequences each would all start one and queue the rest without a bound.
func TestManySequencesWait(t *testing.T) {
	s, e, k := gated(t, 1)
	ctx := context.Background()
	if err := s.Submit(ctx, k.sequence("a0", 1), k.sequence("a1", 1)); err != nil {
		t.Fatal(err)
	}
	for s.Stats().Running == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Submit(ctx, &Sequence{}, &Sequence{}); !errors.Is(err, ErrBusy) {
		t.Errorf("a request beside one that waits: %v, want %v", err, ErrBusy)
	}
	close(e.gate)
	k.number.Wait()
}

func TestBusyServer(t *testing.T) {
	e := newFake(t, 1)
	e.gate = make(chan struct{})
	w := open(t, library(t, talkTemplate), e, Options{Waiting: 1})
	const body = `{"model":"base","prompt":"a","max_tokens":3}`
	var all sync.WaitGroup
	for i := range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			if status, text := w.post(t, "/v1/completions", body); status != 200 {
				t.Errorf("%d %s", status, text)
			}
		}()
		for s := w.scheduler.Stats(); s.Running+s.Waiting != i+1 || s.Running == 0; s = w.scheduler.Stats() {
			time.Sleep(time.Millisecond)
		}
	}
	r, _ := http.NewRequest(http.MethodPost, w.url+"/v1/completions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q", a.StatusCode, a.Header.Get("Retry-After"))
	}
	close(e.gate)
	all.Wait()
}

// TestGoneClients: a client that goes frees its slot and its place in the queue.
func TestGoneClients(t *testing.T) {
	s, e, k := gated(t, 10)
	ctx, cancel := context.WithCancel(context.Background())
	for _, name := range []string{"slot", "queue"} {
		if err := s.Submit(ctx, k.sequence(name, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Submit(context.Background(), k.sequence("other", 2)); err != nil {
		t.Fatal(err)
	}
	e.gate <- struct{}{}
	cancel()
	close(e.gate)
	k.number.Wait()
	if k.errs["slot"] == nil || k.errs["queue"] == nil || k.errs["other"] != nil {
		t.Errorf("%v", k.errs)
	}
}

// TestClose: what is there is finished; after the limit it is cut off; nothing new is taken.
func TestClose(t *testing.T) {
	s, e, k := gated(t, 10)
	for _, name := range []string{"a", "b"} {
		if err := s.Submit(context.Background(), k.sequence(name, 3)); err != nil {
			t.Fatal(err)
		}
	}
	close(e.gate)
	if err := s.Close(context.Background()); err != nil || k.errs["a"] != nil || k.errs["b"] != nil ||
		len(k.ended) != 2 {
		t.Errorf("%v, %v", err, k.errs)
	}
	if err := s.Submit(context.Background(), &Sequence{}); !errors.Is(err, ErrClosing) {
		t.Errorf("after the end: %v", err)
	}

	s, _, k = gated(t, 10)
	for _, name := range []string{"a", "b"} {
		if err := s.Submit(context.Background(), k.sequence(name, 3)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); err != nil || !errors.Is(k.errs["a"], ErrClosing) || !errors.Is(k.errs["b"], ErrClosing) {
		t.Errorf("%v, %v", err, k.errs)
	}
}

// TestFailures: a step that fails ends what ran and nothing else; several in a row end the server.
func TestFailures(t *testing.T) {
	e := newFake(t, 2)
	e.words = word
	e.fail = func(step int) error {
		if step == 1 || step >= 5 {
			return errors.New("secret: the card fell off the bus")
		}
		return nil
	}
	var logged []string
	var mu sync.Mutex
	w := open(t, library(t, talkTemplate), e, Options{Log: func(line string) {
		mu.Lock()
		logged = append(logged, line)
		mu.Unlock()
	}})
	const body = `{"model":"base","prompt":"a","max_tokens":3}`
	for i, want := range []int{500, 200, 500, 500, 500} {
		if status, text := w.post(t, "/v1/completions", body); status != want || strings.Contains(text, "secret") {
			t.Errorf("request %d: %d %s", i, status, text)
		}
	}
	if err := <-w.done; err == nil || !strings.Contains(err.Error(),
		"3 steps in a row failed: secret: the card fell off the bus") {
		t.Errorf("the server ends with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(logged) != 4 || !strings.Contains(logged[0], "secret") {
		t.Errorf("logged %q", logged)
	}
}

// TestTimeout: a request that takes too long is answered 504, or its stream ends with the error.
func TestTimeout(t *testing.T) {
	e := newFake(t, 2)
	e.words, e.gate = word, make(chan struct{}, 1)
	w := open(t, library(t, talkTemplate), e, Options{Timeout: 50 * time.Millisecond})
	status, text := w.post(t, "/v1/completions", `{"model":"base","prompt":"a","max_tokens":500}`)
	if status != 504 || !strings.Contains(text, "the request took longer than this server allows, 50ms") {
		t.Errorf("%d %s", status, text)
	}
	e.gate <- struct{}{}
	status, text = w.post(t, "/v1/completions", `{"model":"base","prompt":"a","max_tokens":500,"stream":true}`)
	if status == 200 && (!strings.Contains(text, `"code":"timeout"`) || strings.Contains(text, "[DONE]")) ||
		status != 200 && status != 504 {
		t.Errorf("%d %s", status, text)
	}
}
