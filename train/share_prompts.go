package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/objective"
)

// Limits of training.share_prompts: auto. Decision 0131 measured larger savings alone.
const (
	sharedTokens = 16   // the fewest tokens of a prompt that is computed once
	sharedPart   = 0.03 // the smallest part of all tokens that must be saved
)

// sharePrompts lays out the prompt of each row once where training.share_prompts says so, and notes what it found.
func (p *inputs) sharePrompts(set *dataset.Set) error {
	c := p.spec.Training
	if c.SharePrompts == "no" {
		return nil
	}
	why := p.cannotShare(set)
	if c.SharePrompts == "yes" {
		if why != nil {
			return fmt.Errorf("training.share_prompts: yes, but %w: write auto or no", why)
		}
		set.SharePrefixes(1)
		p.noted = "prompts are computed once: " + set.Prefixes(1).String()
		return nil
	}
	if !objective.SharesPrompts(p.spec.Objective()) {
		return nil
	}
	found := set.Prefixes(sharedTokens)
	shares, resumed := sharesIn(c.Resume, p.spec.OutputDir)
	switch {
	case found.Saved == 0 || resumed && !shares || !resumed && found.Share() < sharedPart:
		return nil
	case why != nil:
		p.noted = fmt.Sprintf("prompts are computed with each answer (%v): %v", found, why)
		return nil
	}
	set.SharePrefixes(sharedTokens)
	p.noted = "prompts are computed once, which saves those of further answers: " + found.String()
	return nil
}

// cannotShare returns why the prompts of the rows cannot be computed once, nil if they can.
func (p *inputs) cannotShare(set *dataset.Set) error {
	c := p.spec.Training
	switch {
	case !objective.SharesPrompts(p.spec.Objective()):
		return fmt.Errorf("training.objective: %s learns from single sequences", c.Objective)
	case set.Streaming():
		return errors.New("the rows of a stream are not read ahead (dataset.streaming)")
	case c.NEFTuneAlpha > 0:
		return errors.New("each answer has noise of its own on its prompt (training.neftune_alpha)")
	case c.sharing() > 1:
		return errors.New("several devices have the tokens of a row (training.context_parallel_size)")
	}
	return p.Net.CheckPrefixes(set.SequenceLength(), p.On.Capabilities().SeparateHost)
}

// sharesIn reports whether the run of a checkpoint shares prompts, so that a resumed run goes on as it began. known is
// false where there is no such checkpoint. resume is training.resume.
func sharesIn(resume, dir string) (shares, known bool) {
	switch resume {
	case "":
		return false, false
	case "auto":
		steps, err := checkpoint.Steps(dir)
		if err != nil || len(steps) == 0 {
			return false, false
		}
		resume = filepath.Join(dir, checkpoint.Name(steps[len(steps)-1]))
	}
	var state checkpoint.State
	var c cursor
	var data dataset.State
	text, err := os.ReadFile(filepath.Join(resume, checkpoint.StateFile))
	for _, level := range []struct {
		text *[]byte
		to   any
	}{{&text, &state}, {(*[]byte)(&state.Cursor), &c}, {(*[]byte)(&c.Data), &data}} {
		if err == nil {
			err = jsonerr.Unmarshal(*level.text, level.to)
		}
	}
	return data.SharedPrefixes, err == nil
}
