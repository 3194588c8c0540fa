package train

import (
	"fmt"

	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/replay"
)

// partPlan returns the layout of the part of the run that begins at step first.
func (p *planner) partPlan(first int) replay.PartPlan {
	c := p.spec.Training
	layout := p.found.Layout
	part := replay.PartPlan{
		FirstStep: first, BatchSize: c.BatchSize / p.pieces, Accumulation: p.accumulate(),
		Layout: layout.String(), LossRows: layout.LossRows, Bytes: p.found.Need.Total(),
	}
	if p.pieces > 1 {
		part.Pieces = p.pieces
	}
	if p.world > 1 {
		part.Ranks = p.world
	}
	if n := p.sharing; n > 1 {
		part.Context = n
	}
	return part
}

// tellShrunk logs how a run that does not fit as configured trains instead.
func (p *planner) tellShrunk(why string) {
	c := p.spec.Training
	text := fmt.Sprintf("%s; training.on_oom: shrink takes batch_size %d with gradient_accumulation_steps %d "+
		"instead of %d with %d, "+
		"and %v: %s. The rows of a step and its loss stay the same, to rounding",
		why, c.BatchSize/p.pieces, p.accumulate(), c.BatchSize, c.GradientAccumulationSteps, p.found.Layout,
		session.FormatBytes(p.found.Need.Total()))
	if p.spec.AdapterConfig().Dropout > 0 && p.pieces > 1 {
		text += "; lora.dropout draws other masks"
	}
	if p.pieces > 1 && p.found.Step.train.Net.Balance() != nil {
		text += ", but for the balance of experts (the model's router_aux_loss_coef), " +
			"which is that of each smaller batch"
	}
	p.env.Logf("%s", text)
}

// shrinkTries is the number of plans, each smaller than the one before, that a device may refuse although they should
// fit.
const shrinkTries = 8
