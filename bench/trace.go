package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// Trace is a step as a timeline in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open: a track for
// each stream, with the calls inside their layers.
type Trace struct {
	Events []TraceEvent      `json:"traceEvents"`
	Unit   string            `json:"displayTimeUnit"`
	Other  map[string]string `json:"otherData"`
}

// TraceEvent is a slice of a track (ph X), or a name (ph M). Times are microseconds.
type TraceEvent struct {
	Phase    string         `json:"ph"`
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	At       float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Track    int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// tracks lists the streams in the order of their tracks.
var tracks = []string{graph.StreamHost, graph.StreamCompute, graph.StreamCopy, graph.StreamLinks}

// newTrace returns a timeline of the last round.
func newTrace(r Report) Trace {
	calls := r.lines.last()
	t := Trace{Unit: "ms", Other: map[string]string{"model": r.Shape, "device": r.Device, "layout": r.Layout, "program": r.By.Program, "commit": r.By.Commit,
		"note": "calls are timed one by one: those that a GPU overlaps come one after the other"}}
	t.name("process_name", 0, r.Shape+" on "+r.Device)
	for i, stream := range tracks {
		var own []graph.CallTime
		for _, c := range calls {
			if c.Stream == stream {
				own = append(own, c)
			}
		}
		if len(own) == 0 {
			continue
		}
		t.name("thread_name", i+1, stream)
		if stream == graph.StreamCompute {
			t.nest(i+1, own, *r.Ceilings, func(c graph.CallTime) string { return c.Segment }, func(c graph.CallTime) string { return c.Pass }, graph.CallTime.Layer)
		} else {
			t.nest(i+1, own, *r.Ceilings)
		}
	}
	return t
}

// name names a process or a track.
func (t *Trace) name(what string, track int, name string) {
	t.Events = append(t.Events, TraceEvent{Phase: "M", Name: what, Process: 1, Track: track, Args: map[string]any{"name": name}})
}

// nest adds calls. For each level, neighbouring calls of equal name get a common slice of that name; "" has no slice.
func (t *Trace) nest(track int, calls []graph.CallTime, c graph.Ceilings, levels ...func(graph.CallTime) string) {
	if len(levels) == 0 {
		for _, call := range calls {
			t.Events = append(t.Events, callEvent(track, call, c))
		}
		return
	}
	for len(calls) > 0 {
		name, n := levels[0](calls[0]), 1
		for n < len(calls) && levels[0](calls[n]) == name {
			n++
		}
		if first, last := calls[0], calls[n-1]; name != "" {
			t.Events = append(t.Events, slice(track, name, first.Start, last.Start+last.Took-first.Start))
		}
		t.nest(track, calls[:n], c, levels[1:]...)
		calls = calls[n:]
	}
}

func slice(track int, name string, at, took time.Duration) TraceEvent {
	us := float64(took.Nanoseconds()) / 1e3
	return TraceEvent{Phase: "X", Name: name, At: float64(at.Nanoseconds()) / 1e3, Duration: &us, Process: 1, Track: track}
}

func callEvent(track int, call graph.CallTime, c graph.Ceilings) TraceEvent {
	e := slice(track, call.Kernel, call.Start, call.Took)
	if call.Stream == graph.StreamHost {
		e.Category = graph.StreamHost
		return e
	}
	e.Category = call.Pass
	e.Args = map[string]any{"layer": call.Layer(), "scope": call.Scope, "segment": call.Segment, "in": typeList(call.In), "out": typeList(call.Out)}
	if call.Costed {
		e.Args["bytes"], e.Args["flops"] = call.Cost.Bytes, call.Cost.FLOPs
		if call.Took > 0 {
			e.Args["percent_of_ceiling"] = 100 * least(c, call) / call.Took.Seconds()
		}
	}
	return e
}

func typeList(types []kernel.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, " ")
}

// JSON returns the file, with one event per line.
func (t Trace) JSON() ([]byte, error) {
	var out bytes.Buffer
	other, err := json.Marshal(t.Other)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "{\"displayTimeUnit\":%q,\"otherData\":%s,\"traceEvents\":[\n", t.Unit, other)
	for i, e := range t.Events {
		line, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		out.Write(line)
		if i < len(t.Events)-1 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	out.WriteString("]}\n")
	return out.Bytes(), nil
}
