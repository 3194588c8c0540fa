package graph

import (
	"strings"
	"time"

	"github.com/tierlora/tierlora/kernel"
)

// Streams that calls run on.
const (
	StreamCompute = "compute"
	StreamCopy    = "copy"  // between host and device memory, beside the kernels
	StreamLinks   = "links" // between devices, beside the kernels
	StreamHost    = "host"  // what the host does for a step; no call of a plan
)

// Prefixes of the scopes of calls that stand for others.
const (
	gradScope       = "grad "
	recomputedScope = "recomputed "
)

// CallTime is one call of a plan and when it ran.
type CallTime struct {
	Kernel  string // name of the operation
	Scope   string // where it was recorded, such as model.layers.3.mlp; "" = outside any
	Pass    string // forward, backward, or recomputed: forward work of the backward pass; "" = neither
	Segment string
	Stream  string
	In, Out []kernel.Type // as stored
	Start   time.Duration // since the first call was begun
	Took    time.Duration
	Cost    kernel.Cost
	Costed  bool // the kernel says its cost
}

// Line names the calls that are summed up together: operation and type of the first result.
func (c CallTime) Line() string {
	if len(c.Out) == 0 {
		return c.Kernel
	}
	return c.Kernel + " " + c.Out[0].String()
}

// Layer returns the scope up to its first number, such as model.layers.3; where there is none, its first part.
func (c CallTime) Layer() string {
	if l := layerOf(c.Scope); l != "" {
		return l
	}
	parts := strings.SplitN(c.Scope, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// CallTimer is a Runner that can time its calls.
type CallTimer interface {
	// TimeCalls runs segments call by call, on the data of the last batch, and shows when each ran. Calls that a GPU
	// would overlap come one after the other.
	TimeCalls(content kernel.Content, segments []string, see func(CallTime)) error
}

// describe returns what is known of a call before it runs.
func (c *call) describe(segment string, in, out []kernel.Type) CallTime {
	t := CallTime{Kernel: c.kernel.Name(), Segment: segment, Stream: StreamCompute, In: in, Out: out, Pass: "forward"}
	if c.backward {
		t.Pass = "backward"
	}
	scope, again := strings.CutPrefix(c.scope, recomputedScope)
	if again {
		t.Pass = "recomputed"
	}
	t.Scope = strings.TrimPrefix(scope, gradScope)
	return t
}

// cost fills in what the kernel says of itself.
func (t CallTime) cost(k kernel.Kernel, content kernel.Content) CallTime {
	if costed, ok := k.(kernel.Costed); ok {
		t.Cost, t.Costed = costed.Cost(t.In, t.Out, content), true
	}
	return t
}

// TimeCalls runs segments call by call.
func (r *Run) TimeCalls(content kernel.Content, segments []string, see func(CallTime)) error {
	types := func(values []*Value) []kernel.Type {
		list := make([]kernel.Type, len(values))
		for i, v := range values {
			list[i] = v.Type
		}
		return list
	}
	var at time.Duration // without the time that see takes
	for _, s := range segments {
		for i, f := range r.segments[s] {
			c := r.calls[s][i]
			t := c.describe(s, types(c.in), types(c.out)).cost(c.kernel, content)
			began := time.Now()
			f()
			t.Start, t.Took = at, time.Since(began)
			at += t.Took
			see(t)
		}
	}
	return nil
}
