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
	Events  int             // that wait; where more come, the oldest steps are dropped
	Batch   int             // most events of one Send
	Flush   time.Duration   // the end waits so long for what is left
	Retries []time.Duration // waits before the events of a failed Send are sent again
	Rest    time.Duration   // no attempt for so long after all retries failed
}

// DefaultLimits are those of runs.
var DefaultLimits = Limits{Events: 1024, Batch: 200, Flush: 5 * time.Second, Retries: []time.Duration{200 * time.Millisecond, time.Second}, Rest: 30 * time.Second}

var errAtEnd = errors.New("no answer before the run ended")

// Queue hands events to a tracker on a goroutine of its own.
type Queue struct {
	name    string
	tracker Tracker
	limits  Limits
	unsent  string // file for what could not be delivered
	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{}
	ending  chan struct{} // closed when the last event is in
	ended   chan struct{}

	mu        sync.Mutex
	waiting   []Event
	all       int // events that came
	delivered int
	dropped   int // never tried: the queue was full
	kept      int // in the file of what was not delivered
	said      bool
	message   string // to be logged by the run's goroutine
	last      error
	deadline  time.Time
}

// NewQueue starts the goroutine. unsent is the file that takes, as JSON lines, what could not be delivered; it is made
// when that happens.
func NewQueue(name string, t Tracker, unsent string, l Limits) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{name: name, tracker: t, limits: l, unsent: unsent, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
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

// Message is what is to be said of the tracker since the last call: the first failure, once.
func (q *Queue) Message() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.message
	q.message = ""
	return m
}

// Finish says that no more events come: the time of the last flush begins.
func (q *Queue) Finish() {
	q.mu.Lock()
	q.deadline = time.Now().Add(q.limits.Flush)
	q.mu.Unlock()
	// The tracker has most of the time; the rest is to write down what it did not take.
	time.AfterFunc(q.limits.Flush*9/10, q.cancel)
	close(q.ending)
}

// Wait returns when all is delivered or written down, or when the time of the last flush is over. It tells what was
// lost, "" where nothing was.
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
	defer q.tracker.Close() //nolint:errcheck // nothing is left to be done about it
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

// sleep waits, up to the run's end where that is asked for.
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

// putBack returns events that were not tried; what is too much is dropped when the next comes.
func (q *Queue) putBack(events []Event) {
	q.mu.Lock()
	q.waiting = append(events, q.waiting...)
	q.mu.Unlock()
}

// send tries with its retries, and writes down what could not be delivered.
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

// try keeps a tracker's defect from ending the process, and the run with it.
func (q *Queue) try(events []Event) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, &Permanent{fmt.Errorf("a defect of the tracker: %v", r)}
		}
	}()
	return q.tracker.Send(q.ctx, events)
}

// failed notes the failure, to be said once.
func (q *Queue) failed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		if err = errAtEnd; q.last != nil {
			return // the reason is known
		}
	}
	q.last = err
	if q.said {
		return
	}
	q.said = true
	q.message = fmt.Sprintf("tracking: %s: %v; the run goes on, and what is not delivered is written to %s", q.name, err, q.unsent)
}

// keep appends events to the file of what was not delivered.
func (q *Queue) keep(events []Event) {
	if len(events) == 0 || q.unsent == "" {
		return
	}
	var text []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			continue // no event has what JSON cannot say
		}
		text = append(append(text, line...), '\n')
	}
	f, err := atomicfile.Append(q.unsent, 0o644)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return // the end says how many are lost
	}
	q.mu.Lock()
	q.kept += len(events)
	q.mu.Unlock()
}
