//go:build gpu

package graph

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// gather binds what brings slices together, on a stream of its own beside the kernels.
func (r *deviceRun) gather(g *kernel.GPU, k kernel.AllGather, c *call, d *deviceCall, in,
	out []kernel.DeviceTensor) error {
	if r.links == nil {
		var err error
		if r.links, err = g.Device.NewStream(); err != nil {
			return err
		}
		r.pending = map[*call]*gpu.Event{}
	}
	ready, err := g.Device.NewEvent()
	if err != nil {
		return err
	}
	r.events = append(r.events, ready)
	done, err := g.Device.NewEvent()
	if err != nil {
		return err
	}
	r.events = append(r.events, done)
	on := g.On(r.links)
	on.Comm = g.Comm
	move, err := k.GPU(on, in, out)
	if err != nil {
		return err
	}
	main, links := r.stream, r.links
	d.stream, d.info.Stream = links, StreamLinks
	d.wait = func() error { return errors.Join(ready.Record(main), links.Wait(ready)) } // the memory is free by then
	d.queue = func() error { return errors.Join(move(), done.Record(links)) }
	r.pending[c] = done
	return nil
}

// awaitGathered makes a call, and so all behind it, wait for what it reads that was gathered and nobody has waited for.
func (r *deviceRun) awaitGathered(c *call, d *deviceCall) {
	var all []*gpu.Event
	for _, v := range c.in {
		if e := r.pending[v.call]; e != nil {
			delete(r.pending, v.call)
			all = append(all, e)
		}
	}
	if all == nil {
		return
	}
	main := r.stream
	d.wait = func() error {
		for _, e := range all {
			if err := main.Wait(e); err != nil {
				return err
			}
		}
		return nil
	}
}

// joinGathered makes the stream wait, behind the segment's last call, for what was gathered and no call of the segment
// reads: an output, which the host reads, or what a later segment does.
func (r *deviceRun) joinGathered(p *Plan, segment string) {
	work := r.work[segment]
	var all []*gpu.Event
	for _, c := range p.calls {
		if e := r.pending[c]; e != nil && p.segments[c.segment] == segment {
			delete(r.pending, c)
			all = append(all, e)
		}
	}
	if all == nil {
		return
	}
	last, main := &work[len(work)-1], r.stream
	queue := last.queue
	last.queue = func() error {
		err := queue()
		for _, e := range all {
			err = errors.Join(err, main.Wait(e))
		}
		return err
	}
}
