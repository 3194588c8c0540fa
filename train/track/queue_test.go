package track

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake is a tracker of functions.
type fake struct {
	send   func(ctx context.Context, events []Event) (int, error)
	closed bool
}

func (f *fake) Send(ctx context.Context, events []Event) (int, error) { return f.send(ctx, events) }
func (f *fake) Close() error                                          { f.closed = true; return nil }

func quick() Limits {
	return Limits{Events: 8, Batch: 4, Flush: 50 * time.Millisecond, Retries: []time.Duration{time.Millisecond, time.Millisecond}, Rest: time.Hour}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// TestPutReturnsWhileTheServerHangs: the server answers nothing until the test ends, and more events come than the queue
// holds. A Put that waited for it would never return.
func TestPutReturnsWhileTheServerHangs(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
	}))
	defer server.Close()
	defer close(release)
	hook, err := NewWebhook(Run{Config: Config{WebhookURL: server.URL}, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	unsent := filepath.Join(t.TempDir(), "unsent.jsonl")
	q := NewQueue("webhook", hook, unsent, quick())
	q.Put(Event{Kind: KindStart})
	<-asked
	for step := range 100 {
		q.Put(Event{Kind: KindStep, Step: step + 1})
	}
	q.Put(Event{Kind: KindEnd, Step: 100})
	q.Finish()
	said := q.Wait()
	if !strings.Contains(said, "tracking: webhook: 102 of 102 events were not delivered") {
		t.Errorf("said %q", said)
	}
	<-q.ended
	kept := lines(t, unsent)
	if len(kept) != 1+8 || !strings.Contains(kept[0], `"start"`) || !strings.Contains(kept[8], `"end"`) || q.dropped != 102-9 {
		t.Errorf("kept %q, dropped %d", kept, q.dropped)
	}
}

// TestEndDoesNotWaitForATrackerThatIgnoresItsContext, as a write to a dead network file system does.
func TestEndDoesNotWaitForATrackerThatIgnoresItsContext(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	q := NewQueue("x", &fake{send: func(context.Context, []Event) (int, error) { <-release; return 0, nil }}, "", quick())
	q.Put(Event{Kind: KindStart})
	q.Finish()
	if said := q.Wait(); said != "tracking: x: 1 of 1 events were not delivered; metrics.jsonl has all numbers" {
		t.Errorf("said %q", said)
	}
}

func TestQueueDeliversInOrderAndSendsTheRestAgain(t *testing.T) {
	var got []int
	tries := 0
	f := &fake{}
	f.send = func(_ context.Context, events []Event) (int, error) {
		if tries++; tries == 2 {
			got = append(got, events[0].Step)
			return 1, errors.New("busy")
		}
		for _, e := range events {
			got = append(got, e.Step)
		}
		return len(events), nil
	}
	l := quick()
	l.Events, l.Flush = 100, time.Minute
	q := NewQueue("x", f, "", l)
	for step := range 20 {
		q.Put(Event{Kind: KindStep, Step: step})
	}
	q.Finish()
	if said := q.Wait(); said != "" || !f.closed {
		t.Errorf("said %q, closed %v", said, f.closed)
	}
	for i, step := range got {
		if step != i {
			t.Fatalf("steps %v", got)
		}
	}
	if len(got) != 20 {
		t.Errorf("%d events", len(got))
	}
}

// TestADefectOfATrackerIsItsOwn: a panic does not end the process.
func TestADefectOfATrackerIsItsOwn(t *testing.T) {
	q := NewQueue("x", &fake{send: func(context.Context, []Event) (int, error) { panic("no") }}, "", func() Limits { l := quick(); l.Flush = time.Minute; return l }())
	q.Put(Event{Kind: KindStart})
	q.Finish()
	if said := q.Wait(); said != "tracking: x: 1 of 1 events were not delivered: a defect of the tracker: no; metrics.jsonl has all numbers" {
		t.Errorf("said %q", said)
	}
}

// TestAFailureIsSaidOnce: retries are bounded, and a permanent failure has none.
func TestAFailureIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		err   error
		tries int
	}{{errors.New("busy"), 2 * 3}, {&Permanent{errors.New("refused")}, 1}} {
		tries, unsent := 0, filepath.Join(t.TempDir(), "unsent.jsonl")
		failed := make(chan struct{}, 10)
		q := NewQueue("x", &fake{send: func(context.Context, []Event) (int, error) {
			tries++
			failed <- struct{}{}
			return 0, c.err
		}}, unsent, func() Limits { l := quick(); l.Flush = time.Minute; return l }())
		q.Put(Event{Kind: KindStart})
		for range c.tries/2 + c.tries%2 {
			<-failed
		}
		q.Put(Event{Kind: KindEnd})
		q.Finish()
		said := q.Wait()
		want := "tracking: x: 2 of 2 events were not delivered: " + c.err.Error() + "; " + unsent + " has 2 of them; metrics.jsonl has all numbers"
		if said != want || len(lines(t, unsent)) != 2 {
			t.Errorf("said %q\nwant %q", said, want)
		}
		if want := "tracking: x: " + c.err.Error() + "; the run goes on, and what is not delivered is written to " + unsent; q.Message() != want || q.Message() != "" {
			t.Errorf("want %q, once", want)
		}
		if tries > c.tries {
			t.Errorf("%v: %d tries, want at most %d", c.err, tries, c.tries)
		}
	}
}
