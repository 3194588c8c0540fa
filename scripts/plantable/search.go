package main

import (
	"context"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/step"
)

// search looks for the longest sequences of one model. It plans what the planner would try on a card, but each layout
// once for all cards of a compute capability.
type search struct {
	dir     string
	config  model.Config
	devices int      // that hold a slice of the base model each; 1 = one holds all
	share   int      // of them, that share the sequence; 0 = each has whole ones
	targets []string // of the adapter
	lengths []int
	bytes   map[try]int64
	each    float64 // about what a token more takes, with offloading
}

// try is a plan that was made.
type try struct {
	sm     int
	tokens int
	layout session.Layout
}

func newSearch(dir string, c model.Config, devices int, targets []string) (*search, error) {
	s := &search{dir: dir, config: c, devices: devices, targets: targets,
		lengths: lengths(min(c.MaxPositions, longest)), bytes: map[try]int64{}}
	h100, err := s.card("h100")
	if err != nil {
		return nil, err
	}
	low, high := s.lengths[0], s.lengths[min(8, len(s.lengths)-1)]
	from, err := h100.need(low, session.Layout{Recompute: graph.Offload})
	if err != nil || low == high {
		return s, err
	}
	to, err := h100.need(high, session.Layout{Recompute: graph.Offload})
	s.each = float64(to-from) / float64(high-low)
	return s, err
}

// card is a model on a card.
type card struct {
	*search
	chip  graph.Chip
	on    graph.Machine
	limit int64 // bytes that a run may hold
}

func (s *search) card(name string) (card, error) {
	chip, err := graph.FindChip(name)
	if err != nil {
		return card{}, err
	}
	on, err := session.MachineFor(chip, session.PrecisionAuto, session.Env{})
	if err != nil {
		return card{}, err
	}
	limit, _, err := on.FreeMemory()
	return card{s, chip, on, limit}, err
}

// spec is a QLoRA run of rank 16.
func (s *search) spec() train.Spec {
	spec, stored := train.DefaultSpec(), quant.Default()
	spec.BaseModel, spec.Adapter, spec.Quantization, spec.Device = s.dir, "qlora", &stored, "cuda"
	spec.LoRA.R, spec.LoRA.Alpha, spec.LoRA.TargetModules = 16, 16, s.targets
	spec.Training.Optimizer = optimizer
	return spec
}

// need is what a step of one sequence of so many tokens holds.
func (c card) need(tokens int, l session.Layout) (int64, error) {
	if c.devices > 1 && c.share == 0 {
		l.Shards = c.devices
	}
	id := try{c.chip.SM, tokens, l}
	if n, ok := c.bytes[id]; ok {
		return n, nil
	}
	spec := c.spec()
	of, err := session.OpenOn(context.Background(), spec.Session(), session.Env{WithoutWeights: true}, c.on)
	if err != nil {
		return 0, err
	}
	defer of.Close() //nolint:errcheck // read only
	of.Net.Layout, of.Net.Ranks = l, c.share
	planned, err := step.Plan(of.Net, session.Shape{Tokens: tokens, Sequences: 1, MaxLen: tokens}, spec.Step(),
		step.SummingOf(c.devices, c.devices), c.on)
	if err != nil {
		return 0, err
	}
	held, err := graph.Need(planned.Plan)
	c.bytes[id] = held.Total()
	return held.Total(), err
}

func (c card) fits(tokens int, l session.Layout) (bool, error) {
	n, err := c.need(tokens, l)
	return n <= c.limit, err
}

// on is the longest sequence that fits on a card, 0 for none, and a mark for how the step is laid out. Offloading needs
// the least memory: where that does not fit, nothing does.
func (s *search) on(chip string) (tokens int, mark string, err error) {
	c, err := s.card(chip)
	if err != nil {
		return 0, "", err
	}
	rest := []struct {
		mode graph.Recompute
		mark string
	}{{graph.RecomputeLayers, "f"}, {graph.RecomputeCheap, "s"}, {graph.KeepAll, "n"}}
	k, mark, err := c.longest(session.Layout{Recompute: graph.Offload}, "o")
	if err != nil || k < 0 {
		return 0, "", err
	}
	for _, faster := range rest {
		if mark == "or" {
			break
		}
		ok, err := c.fits(s.lengths[k], session.Layout{Recompute: faster.mode})
		if err != nil {
			return 0, "", err
		}
		if !ok {
			break
		}
		mark = faster.mark
	}
	return s.lengths[k], mark, nil
}

// longest is the index of the longest sequence that fits in a layout, with fewer rows of logits at a time if need be;
// below 0 for none.
func (c card) longest(l session.Layout, mark string) (int, string, error) {
	k := 0
	if c.each > 0 {
		first, err := c.need(c.lengths[0], l)
		if err != nil {
			return 0, "", err
		}
		most := c.lengths[0] + int(float64(c.limit-first)/c.each)
		k, _ = slices.BinarySearch(c.lengths, most+1)
		k = max(k-1, 0)
	}
	k, err := c.climb(k, l)
	if err != nil || k == len(c.lengths)-1 {
		return k, mark, err
	}
	l.LossRows = session.LeastLossRows
	if ok, err := c.fits(c.lengths[k+1], l); !ok || err != nil {
		return k, mark, err
	}
	k, err = c.climb(k+1, l)
	return k, mark + "r", err
}

// climb goes from a length to the longest that fits; below 0 for none.
func (c card) climb(k int, l session.Layout) (int, error) {
	ok, err := c.fits(c.lengths[k], l)
	if err != nil {
		return 0, err
	}
	if !ok {
		for k--; k >= 0; k-- {
			if ok, err = c.fits(c.lengths[k], l); ok || err != nil {
				break
			}
		}
		return k, err
	}
	for ; k+1 < len(c.lengths); k++ {
		if ok, err = c.fits(c.lengths[k+1], l); !ok || err != nil {
			break
		}
	}
	return k, err
}

// sizes counts the model's numbers, and those that take part in a token, as the table has them.
func sizes(c model.Config) (string, error) {
	tensors, err := session.DeclaredWeights(c)
	if err != nil {
		return "", err
	}
	known, err := quantised.Open(tensors, c.Quantization)
	if err != nil {
		return "", err
	}
	p := session.CountParameters(c, known)
	if p.Active == p.All {
		return billions(p.All), nil
	}
	return billions(p.All) + ", " + billions(p.Active) + " active", nil
}
