package fit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// microBatchTokens is the cost of one more micro-batch, in tokens: weights are dequantised once more, and GEMMs are
// narrower. It was measured with a 7B model on an H200 (docs/internals/decisions/0047).
const microBatchTokens = 170

// recomputeWork is the work of a step in each mode, as a multiple of the work of a step that keeps all activations
// (docs/internals/decisions/0047).
var recomputeWork = map[graph.Recompute]float64{
	graph.KeepAll: 1, graph.RecomputeCheap: 1.05, graph.RecomputeLayers: 1.35, graph.Offload: 1.38,
}

// smaller is a way to train the same step in less memory: with each batch in pieces, and with more recomputation.
type smaller struct {
	pieces int
	mode   graph.Recompute
	cost   float64 // cost of a batch, in tokens of a step that keeps all activations
}

// smallerSteps returns the ways to split a batch of rows and tokens, cheapest in time first. If two cost the same, the
// one with fewer pieces comes first.
func smallerSteps(rows, tokens int, modes []graph.Recompute) []smaller {
	var all []smaller
	for pieces := 1; pieces <= rows; pieces++ {
		if rows%pieces != 0 {
			continue
		}
		for _, mode := range modes {
			all = append(all, smaller{pieces, mode, float64(tokens+microBatchTokens*pieces) * recomputeWork[mode]})
		}
	}
	slices.SortStableFunc(all, func(a, b smaller) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), a.pieces-b.pieces)
	})
	return all
}

// modesToShrink returns the modes of checkpointing that save as much memory as the configured one, or more.
func (p Problem[S]) modesToShrink() []graph.Recompute {
	modes := slices.Clone(checkpointing["auto"])
	if !p.Machine.Capabilities().SeparateHost {
		modes = modes[:len(modes)-1]
	}
	least := checkpointing[p.Checkpointing][0]
	return slices.DeleteFunc(modes, func(m graph.Recompute) bool { return m < least })
}

// shrink plans the same step in less memory. It chooses the fastest way within the limit. If none is, it chooses the
// one with the fewest bytes and computes fewer rows of logits at a time. If that does not fit either, the choice does
// not fit and the batches are whole again.
func (p Problem[S]) shrink(limit int64) (c Choice[S], err error) {
	if c.Shapes, err = p.Batches.Split(1); err != nil {
		return c, err
	}
	modes := p.modesToShrink()
	for _, w := range smallerSteps(p.BatchSize, c.Shapes.Train.Tokens, modes) {
		if c.Shapes, err = p.Batches.Split(w.pieces); err != nil {
			return c, err
		}
		planned, err := p.plan(p.leanest(w.mode), c.Shapes)
		if err != nil {
			return c, err
		}
		if p.least(planned.Need) > limit {
			continue
		}
		var layouts []session.Layout
		for _, mode := range modes {
			if mode <= w.mode {
				layouts = append(layouts, p.leanest(mode))
			}
		}
		return p.take(layouts, limit, c)
	}
	if c.Shapes, err = p.Batches.Split(p.BatchSize); err != nil {
		return c, err
	}
	c, err = p.take([]session.Layout{p.leanest(modes[len(modes)-1])}, limit, c)
	if err != nil || c.Fits {
		return c, err
	}
	c.Shapes, err = p.Batches.Split(1)
	return c, err
}

// leanest returns the layout with the fewest bytes that the configuration allows in a mode.
func (p Problem[S]) leanest(mode graph.Recompute) session.Layout {
	all := p.Layouts(mode.String())
	return all[len(all)-1]
}

// shrinkPart bounds the next attempt after a device refused a plan: its plan takes at most 1 - 1/shrinkPart of the
// refused bytes.
const shrinkPart = 8

// Again handles a device that had not enough memory for a choice that should have fitted: another process has allocated
// memory since, the memory is fragmented, or the driver needed more than was left to it. cause is the device's error.
// With training.on_oom: shrink it returns a smaller choice. Otherwise, or if none fits, the error names what would fit
// in the memory that is free now.
func (p Problem[S]) Again(refused Choice[S], cause error) (Choice[S], error) {
	need := refused.Need.Total()
	free, known, err := p.Free()
	if err != nil {
		return refused, errors.Join(cause, err)
	}
	limit := need - need/shrinkPart
	if known {
		limit = min(limit, max(free, 0))
	}
	if p.Limit >= 0 {
		limit = min(limit, p.Limit)
	}
	why := fmt.Sprintf("%s refused the memory of the plan (%v)%s",
		p.Machine.Name(), cause, p.freeNow(need, free, known))
	if p.OnOOM == OnOOMShrink {
		c, err := p.shrink(limit)
		if err != nil {
			return c, err
		}
		if c.Fits {
			c.Shrunk = why
			return c, nil
		}
	}
	if limit == 0 {
		return refused, fmt.Errorf("%w: %s; other programs hold its memory: "+
			"wait for them, end them or use another device", session.ErrDoesNotFit, why)
	}
	hint, err := p.fitsNow(limit)
	if err != nil {
		return refused, err
	}
	return refused, fmt.Errorf("%w: %s; into %s: %s", session.ErrDoesNotFit, why, session.FormatBytes(limit), hint)
}

// fitsNow names the settings that would fit into limit bytes: those of the run in another layout, or others.
func (p Problem[S]) fitsNow(limit int64) (string, error) {
	c, err := p.take(p.Layouts(p.Checkpointing), limit, Choice[S]{Shapes: p.Batches.Shapes()})
	if err != nil {
		return "", err
	}
	if c.Fits {
		return fmt.Sprintf("the same command would fit, with %v, in %s",
			c.Layout, session.FormatBytes(c.Need.Total())), nil
	}
	return p.suggest(limit, c)
}

// freeNow describes the bytes of a plan, the bytes that are free now, and, if known, what other processes have
// allocated.
func (p Problem[S]) freeNow(need, free int64, known bool) string {
	text := ": planned " + session.FormatBytes(need)
	if !known {
		return text
	}
	text += ", free now " + session.FormatBytes(max(free, 0))
	if sized, ok := p.Machine.(graph.Sized); ok {
		if total, ok := sized.TotalMemory(); ok && total > free {
			text += fmt.Sprintf(" of %s, other processes and the driver hold %s", session.FormatBytes(total),
				session.FormatBytes(total-max(free, 0)))
		}
	}
	return text
}
