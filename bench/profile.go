package bench

import (
	"sort"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train"
)

// ProfileLine is the time of all calls of one kernel in a step.
type ProfileLine struct {
	Kernel string  `json:"kernel"`
	Calls  int     `json:"calls"`
	Ms     float64 `json:"ms"`
}

// Profiler is a runner that can time its calls one by one and count what it queues for segments.
type Profiler interface {
	Profile(segment string, see func(name string, ms float64)) error
	Queued(segments ...string) (int, error)
}

// profile fills in what a runner knows of its calls.
func (r *Report) profile(run graph.Runner) error {
	p, ok := run.(Profiler)
	if !ok {
		return nil
	}
	for _, s := range train.Sequences() {
		n, err := p.Queued(s...)
		if err != nil {
			return err
		}
		r.Queued += n
	}
	var err error
	r.Profile, err = profile(p)
	return err
}

// profile times a step's calls one by one.
func profile(p Profiler) ([]ProfileLine, error) {
	sums := map[string]*ProfileLine{}
	for _, s := range train.Segments {
		err := p.Profile(s, func(name string, ms float64) {
			if sums[name] == nil {
				sums[name] = &ProfileLine{Kernel: name}
			}
			sums[name].Calls++
			sums[name].Ms += ms
		})
		if err != nil {
			return nil, err
		}
	}
	lines := make([]ProfileLine, 0, len(sums))
	for _, l := range sums {
		lines = append(lines, *l)
	}
	sort.Slice(lines, func(i, j int) bool {
		return lines[i].Ms > lines[j].Ms || lines[i].Ms == lines[j].Ms && lines[i].Kernel < lines[j].Kernel
	})
	return lines, nil
}
