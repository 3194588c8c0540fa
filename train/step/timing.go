package step

import (
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// Parts are the times of the parts of a step. Each part ends before the next begins.
type Parts struct {
	Fill      time.Duration // writing the batch into host memory
	Upload    time.Duration // copying the batch to the device
	Gradients time.Duration // forward and backward of all micro-batches, and the norm
	Update    time.Duration // clipping and the optimizer
	Read      time.Duration // copying loss and norm to the host
	Uploaded  int64         // bytes copied to the device; 0 if host memory is the device's
	Returned  int64         // bytes of the results that are read
}

// Total returns the time of all parts.
func (p Parts) Total() time.Duration { return p.Fill + p.Upload + p.Gradients + p.Update + p.Read }

// Parts runs a step, waits after each of its parts, and returns their times.
func (p *Pipeline) Parts(w Window) (parts Parts, err error) {
	at := time.Now()
	lap := func(to *time.Duration) error {
		err := p.store.Get() // waits for the device
		now := time.Now()
		*to += now.Sub(at)
		at = now
		return err
	}
	p.setRates(w)
	if p.accumulate > 1 {
		if err := p.run.Run(firstOfWindow...); err != nil {
			return parts, err
		}
	}
	if err := lap(&parts.Gradients); err != nil {
		return parts, err
	}
	for i := range w.rounds() {
		p.fill(w, i)
		if err := lap(&parts.Fill); err != nil {
			return parts, err
		}
		if err := p.batch.Put(); err != nil {
			return parts, err
		}
		if p.async {
			parts.Uploaded += p.store.Bytes().Batch
		}
		if err := lap(&parts.Upload); err != nil {
			return parts, err
		}
		run, segments := p.roundOf(w, i)
		if err := run.Run(segments...); err != nil {
			return parts, err
		}
		if err := lap(&parts.Gradients); err != nil {
			return parts, err
		}
	}
	if p.accumulate > 1 {
		if err := p.run.Run(lastOfWindow...); err != nil {
			return parts, err
		}
		if err := lap(&parts.Gradients); err != nil {
			return parts, err
		}
	}
	if err := p.run.Run(updateAlone...); err != nil {
		return parts, err
	}
	if err := lap(&parts.Update); err != nil {
		return parts, err
	}
	if err := p.read.Queue(); err != nil {
		return parts, err
	}
	p.queued++
	if _, err := p.Numbers(); err != nil {
		return parts, err
	}
	for _, v := range p.step.numbers() {
		parts.Returned += v.Type.Bytes()
	}
	return parts, lap(&parts.Read)
}

// TimeCalls runs a step call by call and passes the time of each call to see, on a clock that begins at end and counts
// only calls. It also passes the parts that the host does, and waits after each part. Runners that cannot time their
// calls report none.
func (p *Pipeline) TimeCalls(w Window, end time.Duration, see func(graph.CallTime)) error {
	host := func(name string, work func() error) error {
		began := time.Now()
		err := work()
		if err == nil {
			err = p.store.Get() // waits for the device
		}
		t := graph.CallTime{Kernel: name, Stream: graph.StreamHost, Start: end, Took: time.Since(began)}
		end += t.Took
		see(t)
		return err
	}
	timed := func(run graph.Runner, c kernel.Content, segments ...string) error {
		timer, ok := run.(graph.CallTimer)
		if !ok {
			return run.Run(segments...)
		}
		from := end
		return timer.TimeCalls(c, segments, func(t graph.CallTime) {
			t.Start += from
			end = max(end, t.Start+t.Took)
			if t.Segment != SegmentMicro { // only this segment computes gradients
				t.Pass = ""
			}
			see(t)
		})
	}
	p.setRates(w)
	if err := timed(p.run, kernel.Content{}, firstOfWindow...); err != nil {
		return err
	}
	for i := range w.rounds() {
		if err := host("fill batch", func() error { p.fill(w, i); return nil }); err != nil {
			return err
		}
		if err := host("upload batch", p.batch.Put); err != nil {
			return err
		}
		run, content, segments := p.run, kernel.Content{}, aside
		if p.together {
			segments = asideTogether
		}
		if i < len(w.Batches) {
			run, content, segments = p.planOf(w.Batches[i]).run, contentOf(w.Batches[i]), eachOfWindow
		}
		if err := timed(run, content, segments...); err != nil {
			return err
		}
	}
	if err := timed(p.run, kernel.Content{}, lastOfWindow...); err != nil {
		return err
	}
	if err := timed(p.run, kernel.Content{}, updateAlone...); err != nil {
		return err
	}
	return host("read loss", func() error {
		if err := p.read.Queue(); err != nil {
			return err
		}
		p.queued++
		_, err := p.Numbers()
		return err
	})
}

// contentOf returns the properties of a micro-batch that decide the cost of calls.
func contentOf(b dataset.Batch) kernel.Content {
	c := kernel.Content{Starts: b.CuSeqlens}
	for _, l := range b.Labels {
		if l != dataset.Ignore {
			c.Trained++
		}
	}
	return c
}

// Queued returns the number of launches, fills and copies of a step's captured graphs; 0 if there are none.
func (p *Pipeline) Queued() (n int, err error) {
	c, ok := p.run.(interface {
		Queued(segments ...string) (int, error)
	})
	if !ok {
		return 0, nil
	}
	add := func(times int, segments ...string) {
		more := 0
		if err == nil {
			more, err = c.Queued(segments...)
		}
		n += times * more
	}
	add(1, updateAlone...)
	add(p.accumulate, p.microSegments(true)...)
	if p.accumulate > 1 {
		add(1, firstOfWindow...)
		add(1, lastOfWindow...)
	}
	return n, err
}

// Download copies the trained tensors and the optimizer's states, which a checkpoint keeps, to the host, and returns
// their bytes.
func (p *Pipeline) Download() (adapter, states int64, err error) {
	if _, err = p.step.Trained.Snapshot(p.store); err != nil {
		return 0, 0, err
	}
	if err = p.store.Get(p.step.States...); err != nil {
		return 0, 0, err
	}
	for _, name := range p.step.States {
		x, err := p.store.Tensor(name)
		if err != nil {
			return 0, 0, err
		}
		states += x.Type.Bytes()
	}
	return 4 * p.step.Trained.Numbers(), states, nil
}
