//go:build gpu && linux

package gpu

/*
#include <cuda.h>
*/
import "C"

import (
	"time"
	"unsafe"

	"gorgonia.org/cu"
)

// Stream is a queue of device work.
type Stream struct {
	s       cu.Stream
	capture *Graph // set while a capture runs
}

func (s *Stream) c() C.CUstream { return C.CUstream(unsafe.Pointer(s.s.C())) }

// NewStream makes a stream that does not wait for the default one.
func (d *Device) NewStream() (*Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return nil, wrap("make a stream", "cuStreamCreate", err)
	}
	return &Stream{s: s}, nil
}

// Synchronize waits until the stream is empty. An error here may belong to any earlier launch on it.
func (s *Stream) Synchronize() error {
	defer came(waitFor("wait for the stream"))
	return wrap("wait for the stream", "cuStreamSynchronize", s.s.Synchronize())
}

// Wait queues a wait for an event of another stream. While the other stream is being captured this one joins the
// capture: what it queues from here on becomes a branch of the graph, until the captured stream waits for an event of
// this one.
func (s *Stream) Wait(e *Event) error {
	if err := s.s.Wait(e.e, 0); err != nil {
		return wrap("wait for an event", "cuStreamWaitEvent", err)
	}
	if e.capture != nil && s.capture == nil {
		s.capture = e.capture
		e.capture.joined = append(e.capture.joined, s)
	}
	return nil
}

// Close destroys the stream after its work is done.
func (s *Stream) Close() error {
	defer came(waitFor("close the stream"))
	return wrap("close the stream", "cuStreamDestroy", s.s.Destroy())
}

// Event marks a place in a stream.
type Event struct {
	e       cu.Event
	capture *Graph // recorded while this was being captured
}

// NewEvent makes an event that can be timed.
func (d *Device) NewEvent() (*Event, error) {
	e, err := cu.MakeEvent(cu.DefaultEvent)
	if err != nil {
		return nil, wrap("make an event", "cuEventCreate", err)
	}
	return &Event{e: e}, nil
}

// Record queues the event.
func (e *Event) Record(s *Stream) error {
	e.capture = s.capture
	return wrap("record an event", "cuEventRecord", e.e.Record(s.s))
}

// Synchronize waits until the event has happened.
func (e *Event) Synchronize() error {
	defer came(waitFor("wait for an event"))
	return wrap("wait for an event", "cuEventSynchronize", e.e.Synchronize())
}

// Done reports whether the event has happened, without waiting.
func (e *Event) Done() bool { return e.e.Query() == nil }

// Since returns the device time between two recorded events.
func (e *Event) Since(start *Event) (time.Duration, error) {
	ms, err := start.e.Elapsed(e.e)
	return time.Duration(ms * 1e6), wrap("time two events", "cuEventElapsedTime", err)
}

// Close destroys the event.
func (e *Event) Close() error {
	return wrap("close an event", "cuEventDestroy", cu.DestroyEvent(&e.e))
}
