package bench

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tierlora/tierlora/graph"
)

// ProfileLine sums up some calls of a step. Least is the time that their bytes or operations would take at the measured
// ceilings, whichever is longer for each call.
type ProfileLine struct {
	Kernel   string  `json:"kernel"` // operation and type, operation, or layer
	Calls    int     `json:"calls"`
	Ms       float64 `json:"ms"` // time of all calls, the median over the rounds
	Fastest  float64 `json:"fastest_ms"`
	Slowest  float64 `json:"slowest_ms"`
	Bytes    int64   `json:"bytes"`
	FLOPs    int64   `json:"flops"`
	Least    float64 `json:"ceiling_ms"`
	Percent  float64 `json:"percent_of_ceiling"` // above 100 if data stays in caches
	Uncosted int     `json:"uncosted,omitempty"` // calls whose operation has no cost
}

// profiler sums up the calls of rounds of one step.
type profiler struct {
	rounds [][]graph.CallTime
}

func newProfiler() *profiler { return &profiler{} }

// begin begins a round.
func (p *profiler) begin() { p.rounds = append(p.rounds, nil) }

func (p *profiler) see(t graph.CallTime) {
	last := &p.rounds[len(p.rounds)-1]
	*last = append(*last, t)
}

// last returns the calls of the last round.
func (p *profiler) last() []graph.CallTime { return p.rounds[len(p.rounds)-1] }

// sum adds up calls by a name, the longest first. It leaves out work of the host.
func (p *profiler) sum(c graph.Ceilings, name func(graph.CallTime) string) []ProfileLine {
	lines, times := map[string]*ProfileLine{}, map[string][]float64{}
	for round, calls := range p.rounds {
		for _, t := range calls {
			if t.Stream == graph.StreamHost {
				continue
			}
			n := name(t)
			if lines[n] == nil {
				lines[n], times[n] = &ProfileLine{Kernel: n}, make([]float64, len(p.rounds))
			}
			times[n][round] += ms(t.Took)
			if round > 0 {
				continue
			}
			l := lines[n]
			l.Calls++
			l.Bytes, l.FLOPs = l.Bytes+t.Cost.Bytes, l.FLOPs+t.Cost.FLOPs
			l.Least += 1e3 * least(c, t)
			if !t.Costed {
				l.Uncosted++
			}
		}
	}
	all := make([]ProfileLine, 0, len(lines))
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		l, rounds := *lines[n], times[n]
		slices.Sort(rounds)
		l.Ms, l.Fastest, l.Slowest = rounds[len(rounds)/2], rounds[0], rounds[len(rounds)-1]
		if l.Ms > 0 {
			l.Percent = 100 * l.Least / l.Ms
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b ProfileLine) int { return cmp.Compare(b.Ms, a.Ms) })
	return all
}

// ceilings measures the machine and compares the calls with its ceilings.
func (r *Report) ceilings(on graph.Machine, o Measure) error {
	if o.StepsAlone || o.follows {
		return nil
	}
	c, err := graph.Measure(on)
	if err != nil {
		return err
	}
	r.Ceilings = &c
	r.Profile = r.lines.sum(c, graph.CallTime.Line)
	r.Ops = r.lines.sum(c, func(t graph.CallTime) string { return t.Kernel })
	r.Layers = r.lines.sum(c, layerOf)
	if all := r.lines.sum(c, func(graph.CallTime) string { return "" }); len(all) > 0 {
		r.Covered = all[0].Ms
	}
	if o.Trace != nil {
		return o.Trace(newTrace(*r))
	}
	return nil
}

// layerOf returns a call's layer and pass; a call without a layer is named by its segment.
func layerOf(t graph.CallTime) string {
	layer := t.Layer()
	if layer == "" {
		layer = t.Segment
	}
	if t.Pass == "" {
		return layer
	}
	return layer + ", " + t.Pass
}

// least returns the seconds of a call at the ceilings: a copy between host and device counts one way.
func least(c graph.Ceilings, t graph.CallTime) float64 {
	rate := c.Upload
	if t.Kernel == "offload" {
		rate = c.Download
	}
	if t.Stream == graph.StreamCopy && rate > 0 {
		return float64(t.Cost.Bytes) / 2 / rate
	}
	return c.Least(t.Cost)
}
