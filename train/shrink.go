package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// What training.on_oom says of a run that does not fit in memory.
const (
	oomStop   = "stop"
	oomShrink = "shrink"
)

// microBatchTokens is how many tokens' work a micro-batch costs besides its tokens: weights that are dequantised once
// more, GEMMs that are too narrow. Measured with 7B on an H200 (docs/decisions/0047).
const microBatchTokens = 170

// recomputeWork is the work of a step in each mode, where keeping all activations is 1; measured there too.
var recomputeWork = map[graph.Recompute]float64{graph.KeepAll: 1, graph.RecomputeCheap: 1.05, graph.RecomputeLayers: 1.35, graph.Offload: 1.38}

// smaller is a way to train the same step in less memory: each batch in pieces, and more recomputed.
type smaller struct {
	pieces int
	mode   graph.Recompute
	cost   float64 // of a batch, in tokens' work of a step that keeps everything
}

// ways are those that a batch of so many rows and tokens has, cheapest in time first; of equal ones that with fewer pieces.
func ways(rows, tokens int, modes []graph.Recompute) []smaller {
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
		switch {
		case a.cost < b.cost:
			return -1
		case a.cost > b.cost:
			return 1
		}
		return a.pieces - b.pieces
	})
	return all
}

// modesToShrink are the modes of checkpointing that save as much as the configured one, or more.
func (p *prepared) modesToShrink() []graph.Recompute {
	modes := slices.Clone(checkpointing["auto"])
	if !p.On.Capabilities().SeparateHost {
		modes = modes[:len(modes)-1]
	}
	least := checkpointing[p.spec.Training.GradientCheckpointing][0]
	return slices.DeleteFunc(modes, func(m graph.Recompute) bool { return m < least })
}

// split deals every batch in pieces, and gives the largest micro-batches then.
func (p *prepared) split(pieces int) (shapes, error) {
	if err := p.loader.Split(pieces); err != nil {
		return shapes{}, err
	}
	p.pieces = pieces
	p.chooseBudgets(dataset.MaxBudgets)
	if err := p.loadValidation(p.spec.Training.BatchSize / pieces); err != nil {
		return shapes{}, err
	}
	return p.shapesOf(p.loader, p.val), nil
}

// shrink plans the same step in less memory: by the way that costs the least time of those that fit; where none does, by
// that with the fewest bytes and fewer rows of logits at a time. Where that does not fit either, found does not, and the
// batches are whole again.
func (p *prepared) shrink(limit int64) (shapes, error) {
	z, err := p.split(1)
	if err != nil {
		return z, err
	}
	modes := p.modesToShrink()
	all := ways(p.spec.Training.BatchSize, z.train.Tokens, modes)
	for _, w := range all {
		if z, err = p.split(w.pieces); err != nil {
			return z, err
		}
		l := p.layoutOf(w.mode)
		planned, err := p.planIn(l, z)
		if err != nil {
			return z, err
		}
		if planned.Need.Total() > limit {
			continue
		}
		var layouts []session.Layout
		for _, mode := range modes {
			if mode <= w.mode {
				layouts = append(layouts, p.layoutOf(mode))
			}
		}
		return z, p.take(layouts, limit, z)
	}
	if z, err = p.split(p.spec.Training.BatchSize); err != nil {
		return z, err
	}
	if err = p.take([]session.Layout{p.layoutOf(modes[len(modes)-1])}, limit, z); err != nil || p.found.Fits {
		return z, err
	}
	return p.split(1)
}

// layoutOf is the layout of a mode that holds the fewest bytes of those that the configuration allows.
func (p *prepared) layoutOf(mode graph.Recompute) session.Layout {
	c := p.spec.Training
	c.GradientCheckpointing = mode.String()
	all := p.layouts(c)
	return all[len(all)-1]
}

// take searches layouts for the first that fits.
func (p *prepared) take(layouts []session.Layout, limit int64, z shapes) error {
	search, err := p.search(layouts, limit, z)
	if err != nil {
		return err
	}
	if p.found, err = search.Run(); err != nil || !p.found.Fits {
		return err
	}
	if err := p.leaveForGraphs(search); err != nil {
		return err
	}
	p.Net.Layout = p.found.Layout
	return nil
}

// PartPlan is how a part of a run was laid out: from its first step on to that of the next part.
type PartPlan struct {
	FirstStep    int    `json:"first_step"`
	BatchSize    int    `json:"batch_size"` // rows of a micro-batch
	Accumulation int    `json:"gradient_accumulation_steps"`
	Pieces       int    `json:"pieces,omitempty"` // of a configured batch, where it is more than one
	Layout       string `json:"layout"`
	LossRows     int    `json:"loss_rows,omitempty"`             // of logits at a time, where it is fewer than the device takes by itself: last bits of losses follow it
	Bytes        int64  `json:"bytes"`                           // held, on each device
	Ranks        int    `json:"ranks,omitempty"`                 // that shared a step, where it is more than one
	Context      int    `json:"context_parallel_size,omitempty"` // of them, that shared each row's tokens, where it is more than one
}

// partPlan is the plan that a part beginning at a step uses.
func (p *prepared) partPlan(first int) PartPlan {
	c := p.spec.Training
	part := PartPlan{FirstStep: first, BatchSize: c.BatchSize / p.pieces, Accumulation: p.accumulate(), Layout: p.found.Layout.String(), LossRows: p.found.Layout.LossRows, Bytes: p.found.Need.Total()}
	if p.pieces > 1 {
		part.Pieces = p.pieces
	}
	if p.world() > 1 {
		part.Ranks = p.world()
	}
	if n := p.spec.Training.sharing(); n > 1 {
		part.Context = n
	}
	return part
}

// accumulate is the number of micro-batches that a rank has in a whole step.
func (p *prepared) accumulate() int { return p.spec.Training.GradientAccumulationSteps * p.pieces }

// tellShrunk says what a run that did not fit as configured does instead.
func (p *prepared) tellShrunk(why string) {
	c := p.spec.Training
	text := fmt.Sprintf("%s; training.on_oom: shrink takes batch_size %d with gradient_accumulation_steps %d instead of %d with %d, and %v: %s. The rows of a step and its loss stay the same, to rounding",
		why, c.BatchSize/p.pieces, p.accumulate(), c.BatchSize, c.GradientAccumulationSteps, p.found.Layout, session.FormatBytes(p.found.Need.Total()))
	if p.spec.LoRA.Dropout > 0 && p.pieces > 1 {
		text += "; lora.dropout draws other masks"
	}
	if p.pieces > 1 && p.found.Step.train.Net.Balance() != nil {
		text += ", but for the balance of experts (the model's router_aux_loss_coef), which is that of each smaller batch"
	}
	p.env.Logf("%s", text)
}

// shrinkTries is how often a device may refuse plans that should fit, each a part smaller than the one before.
const (
	shrinkTries = 8
	shrinkPart  = 8 // one part in so many
)

// deviceRefused answers a device that had no memory for a plan that fitted: another process took it since, it lies in
// pieces that are too small, or the driver took more than was left to it. With on_oom: shrink there is a smaller plan
// afterwards; else, or where none fits, the error says what would fit in what is free now.
func (p *prepared) deviceRefused(cause error) error {
	need := p.found.Need.Total()
	free, known, err := p.free()
	if err != nil {
		return errors.Join(cause, err)
	}
	limit := need - need/shrinkPart
	if known {
		limit = min(limit, max(free, 0))
	}
	if p.limit >= 0 {
		limit = min(limit, p.limit)
	}
	why := fmt.Sprintf("%s refused the memory of the plan (%v)%s", p.On.Name(), cause, p.freeNow(need, free, known))
	if p.spec.Training.OnOOM == oomShrink {
		z, err := p.shrink(limit)
		if err != nil {
			return err
		}
		if p.found.Fits {
			p.tellShrunk(why)
			return errors.Join(p.planSmaller(z), p.checkStrict())
		}
	}
	if limit == 0 {
		return fmt.Errorf("%w: %s; other programs hold its memory: wait for them, end them or use another device", session.ErrDoesNotFit, why)
	}
	hint, err := p.fitsNow(limit)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s; into %s: %s", session.ErrDoesNotFit, why, session.FormatBytes(limit), hint)
}

// fitsNow says which settings would fit into limit bytes: those of the run in another layout, or others.
func (p *prepared) fitsNow(limit int64) (string, error) {
	z := p.shapesOf(p.loader, p.val)
	if err := p.take(p.layouts(p.spec.Training), limit, z); err != nil {
		return "", err
	}
	if p.found.Fits {
		return fmt.Sprintf("the same command would fit, with %v, in %s", p.found.Layout, session.FormatBytes(p.found.Need.Total())), nil
	}
	return p.suggest(limit, z)
}

// freeNow says what a plan holds beside what is free now, and what others hold where that is known.
func (p *prepared) freeNow(need, free int64, known bool) string {
	text := ": planned " + session.FormatBytes(need)
	if !known {
		return text
	}
	text += ", free now " + session.FormatBytes(max(free, 0))
	if sized, ok := p.On.(graph.Sized); ok {
		if total, ok := sized.TotalMemory(); ok && total > free {
			text += fmt.Sprintf(" of %s, other processes and the driver hold %s", session.FormatBytes(total), session.FormatBytes(total-max(free, 0)))
		}
	}
	return text
}
