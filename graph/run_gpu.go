//go:build gpu

package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// deviceRun is a plan bound to a device: segments that run together are one captured graph.
type deviceRun struct {
	store   *deviceStore
	stream  *gpu.Stream
	graphs  []captured
	readers []*deviceReader
	early   int // Plan.early
	values  map[*Value]kernel.DeviceTensor
	host    map[*Value]kernel.Tensor
	side    *gpu.Stream           // of offloading and prefetching; nil without
	done    map[*Value]*gpu.Event // of their copies, by what they write
	links   *gpu.Stream           // of what is gathered from other devices; nil without
	pending map[*call]*gpu.Event  // gathers that no call has waited for, while calls are bound
	events  []*gpu.Event
	work    map[string][]deviceCall // by segment, in the order of the plan
}

// deviceCall is a call, or a part of one, bound to device memory.
type deviceCall struct {
	wait     func() error // for what other streams must have done before queue; nil = nothing
	queue    func() error
	name     string   // with scope
	accesses []access // of device memory
	info     CallTime
	kernel   kernel.Kernel
	stream   *gpu.Stream // that queue puts its work on
}

// run queues the call's work.
func (c deviceCall) run() error {
	if c.wait != nil {
		if err := c.wait(); err != nil {
			return err
		}
	}
	return c.queue()
}

// captured are segments that run one after the other.
type captured struct {
	segments []string
	graph    *gpu.Graph // nil: there is nothing to run
}

// Prepare captures segments as one graph.
func (r *deviceRun) Prepare(segments ...string) error {
	if rangesOfCalls {
		return nil
	}
	_, err := r.graph(segments)
	return err
}

// Run queues the segments' graph.
func (r *deviceRun) Run(segments ...string) error {
	if rangesOfCalls {
		return r.runCalls(segments)
	}
	g, err := r.graph(segments)
	if err != nil || g == nil {
		return err
	}
	if err := g.Replay(r.stream); err != nil {
		return fmt.Errorf("segments %s: %w", strings.Join(segments, ", "), err)
	}
	return nil
}

func (r *deviceRun) graph(segments []string) (*gpu.Graph, error) {
	for _, c := range r.graphs {
		if slices.Equal(c.segments, segments) {
			return c.graph, nil
		}
	}
	c := captured{segments: slices.Clone(segments)}
	calls := 0
	for _, s := range segments {
		calls += len(r.work[s])
	}
	if calls > 0 {
		var err error
		if c.graph, err = gpu.CaptureEarly(r.stream, r.early, func() error { return r.queue(segments) }); err != nil {
			return nil, fmt.Errorf("segments %s: %w", strings.Join(segments, ", "), err)
		}
	}
	r.graphs = append(r.graphs, c)
	return c.graph, nil
}

// Queued returns the number of launches, copies and fills that Run of the segments queues.
func (r *deviceRun) Queued(segments ...string) (int, error) {
	if rangesOfCalls { // there is no graph
		return 0, nil
	}
	g, err := r.graph(segments)
	if err != nil || g == nil {
		return 0, err
	}
	return g.Nodes()
}

// queue queues every call of the segments, each behind the calls that it depends on; one after the other
// where copies from other memory run beside them, which have an order of their own.
func (r *deviceRun) queue(segments []string) error {
	var calls []deviceCall
	var accesses [][]access
	for _, s := range segments {
		for _, c := range r.work[s] {
			calls, accesses = append(calls, c), append(accesses, c.accesses)
		}
	}
	if r.side != nil || r.links != nil {
		for _, c := range calls {
			if err := c.run(); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	}
	needs := dependencies(accesses)
	ends, waited := make([]gpu.Nodes, len(calls)), make([]bool, len(calls))
	for i, c := range calls {
		var follow []gpu.Nodes
		for _, n := range needs[i] {
			follow, waited[n] = append(follow, ends[n]), true
		}
		err := r.stream.DependOn(follow...)
		if err == nil {
			err = c.run()
		}
		if err == nil {
			ends[i], err = r.stream.CapturedNodes()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	var last []gpu.Nodes
	for i, t := range ends {
		if !waited[i] {
			last = append(last, t)
		}
	}
	return r.stream.DependOn(last...)
}

// Read waits for the stream and fetches an output, as fp32 or as it is stored if it is no number.
func (r *deviceRun) Read(v *Value) (kernel.Tensor, error) {
	d, ok := r.values[v]
	if !ok {
		return kernel.Tensor{}, fmt.Errorf("%s is no output of the plan", v.Name)
	}
	host, ok := r.host[v]
	if !ok {
		host = kernel.NewTensor(v.Type, kernel.Alloc(v.Type.Bytes()))
		r.host[v] = host
	}
	err := r.stream.Synchronize()
	if err == nil {
		err = fetch(host, d)
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", v.Name, err)
	}
	return host, err
}

func (r *deviceRun) close() error {
	var err error
	for _, e := range r.events {
		err = errors.Join(err, e.Close())
	}
	if r.side != nil {
		err = errors.Join(err, r.side.Close())
	}
	if r.links != nil {
		err = errors.Join(err, r.links.Close())
	}
	for _, c := range r.graphs {
		if c.graph != nil {
			err = errors.Join(err, c.graph.Close())
		}
	}
	for _, d := range r.readers {
		err = errors.Join(err, d.close())
	}
	return err
}
