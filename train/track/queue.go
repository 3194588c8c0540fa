package track

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
)

// Limits are the bounds of a queue.
type Limits struct {
	Events  int             // events that wait; beyond that the oldest steps are dropped
	Batch   int             // most events of one Send
	Flush   time.Duration   // time to deliver the remaining events at the end
	Retries []time.Duration // waits before a failed Send is repeated
	Rest    time.Duration   // pause after all retries have failed
}

// DefaultLimits are the limits of training runs.
var DefaultLimits = Limits{Events: 1024, Batch: 200, Flush: 5 * time.Second,
	Retries: []time.Duration{200 * time.Millisecond, time.Second}, Rest: 30 * time.Second}

var errAtEnd = errors.New("no answer before the run ended")

// Queue hands events to a tracker on a goroutine of its own.
type Queue struct {
	name    string
	tracker Tracker
	limits  Limits
	unsent  string // file for events that could not be delivered
	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{}
	ending  chan struct{} // closed when the last event was added
	ended   chan struct{}

	mu        sync.Mutex
	waiting   []Event
	all       int // number of events added
	delivered int
	dropped   int // events that were never sent because the queue was full
	kept      int // events written to the file
	said      bool
	message   string // message for the run's goroutine to log
	last      error
	deadline  time.Time
}

// NewQueue starts the goroutine. Events that cannot be delivered are written to the file unsent as JSON lines; the file
// is created when that happens.
func NewQueue(name string, t Tracker, unsent string, l Limits) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{name: name, tracker: t, limits: l, unsent: unsent, ctx: ctx, cancel: cancel,
		wake: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
	rescue.Go(func() { q.work() })
	return q
}

// Put queues an event. It never waits for the tracker.
func (q *Queue) Put(e Event) {
	q.mu.Lock()
	q.all++
	if len(q.waiting) >= q.limits.Events {
		oldest := max(0, slices.IndexFunc(q.waiting, func(e Event) bool { return e.Kind == KindStep }))
		q.waiting = slices.Delete(q.waiting, oldest, oldest+1)
		q.dropped++
	}
	q.waiting = append(q.waiting, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Message returns what should be logged about the tracker since the last call: its first failure, once.
func (q *Queue) Message() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.message
	q.message = ""
	return m
}

// Finish means that no more events come. It starts the time limit of the last flush.
func (q *Queue) Finish() {
	q.mu.Lock()
	q.deadline = time.Now().Add(q.limits.Flush)
	q.mu.Unlock()
	// The tracker has most of the time; the rest is for writing what it did not take to the file.
	time.AfterFunc(q.limits.Flush*9/10, q.cancel)
	close(q.ending)
}

// Wait returns when all events are delivered or written to the file, or when the time limit of the last flush is over.
// It reports what was lost, "" if nothing was.
func (q *Queue) Wait() string {
	q.mu.Lock()
	left := time.Until(q.deadline)
	q.mu.Unlock()
	select {
	case <-q.ended:
	case <-time.After(left):
	}
	q.cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	lost := q.all - q.delivered
	if lost == 0 {
		return ""
	}
	text := fmt.Sprintf("tracking: %s: %d of %d events were not delivered", q.name, lost, q.all)
	if q.last != nil {
		text += ": " + q.last.Error()
	}
	if q.kept > 0 {
		text += fmt.Sprintf("; %s has %d of them", q.unsent, q.kept)
	}
	return text + "; metrics.jsonl has all numbers"
}

func (q *Queue) work() {
	defer close(q.ended)
	defer q.tracker.Close() // nothing can be done about an error
	gone := false
	var rest time.Time
	for {
		last := q.isEnding()
		if events := q.take(); len(events) > 0 {
			if !gone && time.Now().Before(rest) && !last {
				q.putBack(events)
				q.sleep(time.Until(rest), true)
				continue
			}
			var err error
			if gone || q.ctx.Err() != nil {
				q.keep(events)
			} else if err = q.send(events); err != nil {
				rest = time.Now().Add(q.limits.Rest)
				gone = errors.As(err, new(*Permanent))
			}
			continue
		}
		if last {
			return
		}
		select {
		case <-q.wake:
		case <-q.ending:
		}
	}
}

func (q *Queue) isEnding() bool {
	select {
	case <-q.ending:
		return true
	default:
		return false
	}
}

// sleep waits; with untilEnd it stops waiting when the run ends.
func (q *Queue) sleep(d time.Duration, untilEnd bool) {
	ending := q.ending
	if !untilEnd {
		ending = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ending:
	case <-q.ctx.Done():
	}
}

func (q *Queue) take() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.limits.Batch)
	events := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return events
}

// putBack returns events that were not sent. If there are too many, the next Put drops some.
func (q *Queue) putBack(events []Event) {
	q.mu.Lock()
	q.waiting = append(events, q.waiting...)
	q.mu.Unlock()
}

// send sends events with retries, and writes events that could not be delivered to the file.
func (q *Queue) send(events []Event) error {
	for try := 0; ; try++ {
		n, err := q.try(events)
		n = min(n, len(events))
		q.mu.Lock()
		q.delivered += n
		q.mu.Unlock()
		events = events[n:]
		if err == nil {
			return nil
		}
		if only := new(partly); errors.As(err, only) {
			q.mu.Lock()
			q.message = fmt.Sprintf("tracking: %s: %v", q.name, only.error)
			q.mu.Unlock()
			return nil
		}
		if try == len(q.limits.Retries) || errors.As(err, new(*Permanent)) || q.ctx.Err() != nil {
			q.failed(err)
			q.keep(events)
			return err
		}
		q.sleep(q.limits.Retries[try], false)
	}
}

// try calls the tracker and recovers from a panic in it, so that it cannot end the process and the run.
func (q *Queue) try(events []Event) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, &Permanent{fmt.Errorf("a defect of the tracker: %v", r)}
		}
	}()
	return q.tracker.Send(q.ctx, events)
}

// failed records a failure, which is reported once.
func (q *Queue) failed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		if err = errAtEnd; q.last != nil {
			return // the reason was reported already
		}
	}
	q.last = err
	if q.said {
		return
	}
	q.said = true
	q.message = fmt.Sprintf("tracking: %s: %v; the run goes on, and what is not delivered is written to %s", q.name,
		err, q.unsent)
}

// keep appends events to the file of undelivered events.
func (q *Queue) keep(events []Event) {
	if len(events) == 0 || q.unsent == "" {
		return
	}
	var text []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			continue // unreachable: every event can be encoded as JSON
		}
		text = append(append(text, line...), '\n')
	}
	f, err := atomicfile.Append(q.unsent, 0o644)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return // the final message says how many are lost
	}
	q.mu.Lock()
	q.kept += len(events)
	q.mu.Unlock()
}
