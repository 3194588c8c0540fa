package bench

import (
	"context"
	"slices"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/step"
)

// subject is the step that is timed.
type subject struct {
	pipeline *step.Pipeline
	async    bool
	next     func() (step.Window, error)
}

// profileRounds is the number of repetitions of the profiled step.
const profileRounds = 5

// measure times steps that are waited for, then steps that are not, then profiles one with the median number of tokens.
func (b *subject) measure(ctx context.Context, o Measure, r *Report) error {
	type timed struct {
		ms     float64
		window step.Window
		data   time.Duration
	}
	var steps []timed
	for i := range o.Warmup + o.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		w, err := b.next()
		if err != nil {
			return err
		}
		at := time.Now()
		if err := b.queue(w, func() error { return nil }); err != nil {
			return err
		}
		numbers, err := b.pipeline.Numbers()
		if err != nil {
			return err
		}
		r.Loss = numbers.Loss
		took := time.Since(at)
		if i == 0 {
			r.First = took.Seconds()
		}
		if i >= o.Warmup {
			steps = append(steps, timed{ms(took), w, at.Sub(began)})
		}
	}
	n, all, took := len(steps), 0, 0.0
	for _, s := range steps {
		r.Times = append(r.Times, s.ms)
		all, took = all+tokens(s.window), took+s.ms
	}
	slices.Sort(r.Times)
	r.Median, r.Fastest, r.Slowest = r.Times[n/2], r.Times[0], r.Times[n-1]
	slices.SortStableFunc(steps, func(a, b timed) int { // every run and every rank picks the same step
		if o.ranks > 1 {
			return a.window.Trained - b.window.Trained
		}
		return tokens(a.window) - tokens(b.window)
	})
	median := steps[n/2]
	if all > 0 {
		r.Tokens, r.PerSec = tokens(median.window), float64(all)/took*1e3
	} else {
		r.Tokens *= max(o.ranks, 1) / max(o.share, 1)
		r.PerSec = float64(r.Tokens) / r.Median * 1e3
	}
	if err := b.ahead(ctx, o.Steps, r); err != nil {
		return err
	}
	var err error
	if r.Queued, err = b.pipeline.Queued(); err != nil || o.StepsAlone {
		return err
	}
	return b.lookInto(ctx, median.window, median.data, min(profileRounds, o.Steps), r)
}

// lookInto profiles a step: it repeats the step in its parts and call by call in turn, so that other load on the
// machine affects both alike.
func (b *subject) lookInto(ctx context.Context, w step.Window, data time.Duration, rounds int, r *Report) error {
	var parts []step.Parts
	var downloads []time.Duration
	var kept int64
	r.lines = newProfiler()
	for range rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := b.pipeline.Parts(w)
		if err != nil {
			return err
		}
		r.lines.begin()
		r.lines.see(graph.CallTime{Kernel: "data", Stream: graph.StreamHost, Took: data})
		if err := b.pipeline.TimeCalls(w, data, r.lines.see); err != nil {
			return err
		}
		at := time.Now()
		adapter, states, err := b.pipeline.Download()
		if err != nil {
			return err
		}
		parts, downloads, kept = append(parts, p), append(downloads, time.Since(at)), adapter+states
	}
	r.transfers(parts, data, downloads, kept, b.async)
	return nil
}

// ahead times steps in which the next one is queued before the loss is read, as a run does on a GPU.
func (b *subject) ahead(ctx context.Context, n int, r *Report) error {
	windows := make([]step.Window, n)
	var err error
	for i := range windows {
		if windows[i], err = b.next(); err != nil {
			return err
		}
	}
	at := time.Now()
	for i, w := range windows {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := b.queue(w, func() error {
			if i == 0 {
				return nil
			}
			_, err := b.pipeline.Numbers()
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err = b.pipeline.Numbers()
	r.Pipelined = ms(time.Since(at)) / float64(n)
	return err
}

// queue queues a step as a run does; it calls between before the update.
func (b *subject) queue(w step.Window, between func() error) error {
	defer graph.StartRangeNumber("step", w.Number).End()
	if err := b.pipeline.Gradients(w); err != nil {
		return err
	}
	if err := between(); err != nil {
		return err
	}
	return b.pipeline.Update()
}

// tokens returns the tokens of a window, without padding; 0 if the batches do not have them.
func tokens(w step.Window) (n int) {
	if w.Tokens > 0 {
		return w.Tokens
	}
	for _, b := range w.Batches {
		n += b.Tokens
	}
	return n
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// Part is a part of a step, timed separately, or the tensors that a checkpoint copies to the host.
type Part struct {
	Name    string  `json:"name"`
	Median  float64 `json:"median_ms"`
	Fastest float64 `json:"fastest_ms"`
	Slowest float64 `json:"slowest_ms"`
	Bytes   int64   `json:"bytes,omitempty"` // bytes that cross between host and device; 0 if they share memory
	// The part belongs to the step; else it belongs to a checkpoint, or is hidden behind the steps.
	OfStep bool `json:"of_step"`
}

// transfers sums up the parts of a step and a checkpoint's download. Nothing crosses if the host's memory is the
// device's.
func (r *Report) transfers(rounds []step.Parts, data time.Duration, downloads []time.Duration, kept int64, device bool) {
	returned := rounds[0].Returned
	if !device {
		returned, kept = 0, 0
	}
	each := func(of func(step.Parts) time.Duration) []time.Duration {
		times := make([]time.Duration, len(rounds))
		for i, p := range rounds {
			times[i] = of(p)
		}
		return times
	}
	r.Waited = newPart("", 0, true, each(step.Parts.Total)).Median
	r.Transfers = []Part{
		newPart("data", 0, false, []time.Duration{data}),
		newPart("fill batch", 0, true, each(func(p step.Parts) time.Duration { return p.Fill })),
		newPart("upload batch", rounds[0].Uploaded, true, each(func(p step.Parts) time.Duration { return p.Upload })),
		newPart("forward, backward, norm", 0, true, each(func(p step.Parts) time.Duration { return p.Gradients })),
		newPart("update", 0, true, each(func(p step.Parts) time.Duration { return p.Update })),
		newPart("read loss", returned, true, each(func(p step.Parts) time.Duration { return p.Read })),
		newPart("adapter and optimizer states to the host", kept, false, downloads),
	}
}

func newPart(name string, bytes int64, ofStep bool, times []time.Duration) Part {
	slices.Sort(times)
	return Part{name, ms(times[len(times)/2]), ms(times[0]), ms(times[len(times)-1]), bytes, ofStep}
}
