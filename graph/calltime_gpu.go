//go:build gpu

package graph

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// TimeCalls queues the segments' calls one after the other, not as a graph, each between two events of its stream. The
// host does not wait between them, so a gap is a launch that came late.
func (r *deviceRun) TimeCalls(content kernel.Content, segments []string, see func(CallTime)) (err error) {
	var calls []deviceCall
	for _, s := range segments {
		calls = append(calls, r.work[s]...)
	}
	var events []*gpu.Event
	defer func() {
		for _, e := range events {
			err = errors.Join(err, e.Close())
		}
	}()
	record := func(s *gpu.Stream) error {
		e, err := r.store.g.Device.NewEvent()
		if err != nil {
			return err
		}
		events = append(events, e)
		return e.Record(s)
	}
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	if err := record(r.stream); err != nil {
		return err
	}
	for _, c := range calls {
		if c.wait != nil {
			err = c.wait()
		}
		if err == nil {
			err = errors.Join(record(c.stream), c.queue(), record(c.stream))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	for _, s := range []*gpu.Stream{r.side, r.links} {
		if s != nil {
			if err := s.Synchronize(); err != nil {
				return err
			}
		}
	}
	for i, c := range calls {
		t := c.info
		if c.kernel != nil {
			t = t.cost(c.kernel, content)
		}
		if t.Start, err = events[1+2*i].Since(events[0]); err != nil {
			return err
		}
		if t.Took, err = events[2+2*i].Since(events[1+2*i]); err != nil {
			return err
		}
		see(t)
	}
	return nil
}

// runCalls queues segments call by call, each in ranges of its pass, its layer and itself.
func (r *deviceRun) runCalls(segments []string) error {
	for _, s := range segments {
		segment := StartRange(s)
		var pass, layer Range
		was := CallTime{}
		for i, c := range r.work[s] {
			if i == 0 || c.info.Pass != was.Pass || c.info.Layer() != was.Layer() {
				layer.End()
				if i == 0 || c.info.Pass != was.Pass {
					pass.End()
					pass = StartRange(c.info.Pass)
				}
				layer = StartRange(c.info.Layer())
				was = c.info
			}
			call := StartRange(c.info.Line())
			err := c.run()
			call.End()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		layer.End()
		pass.End()
		segment.End()
	}
	return nil
}
