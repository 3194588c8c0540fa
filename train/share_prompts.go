package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/objective"
)

// Limits of training.share_prompts: auto. Decision 0131 measured larger savings alone.
const (
	sharedTokens = 16   // the fewest tokens of a prompt that is computed once
	sharedPart   = 0.03 // the smallest part of all tokens that must be saved
)

// sharePrompts lays out the prompt of each row once where training.share_prompts says so, and returns a note for the
// plan on what it found; "" = nothing. layers returns why a model's layers cannot compute sequences of up to longest
// tokens that continue others, nil if they can.
func sharePrompts(s Spec, set *dataset.Set, layers func(longest int) error) (note string, err error) {
	c := s.Training
	if c.SharePrompts == "no" {
		return "", nil
	}
	why := cannotShare(s, set, layers)
	if c.SharePrompts == "yes" {
		if why != nil {
			return "", fmt.Errorf("training.share_prompts: yes, but %w: write auto or no", why)
		}
		set.SharePrefixes(1)
		return "prompts are computed once: " + set.Prefixes(1).String(), nil
	}
	if !objective.SharesPrompts(s.Objective()) {
		return "", nil
	}
	found := set.Prefixes(sharedTokens)
	shares, resumed := sharesIn(c.Resume, s.OutputDir)
	switch {
	case found.Saved == 0 || resumed && !shares || !resumed && found.Share() < sharedPart:
		return "", nil
	case why != nil:
		return fmt.Sprintf("prompts are computed with each answer (%v): %v", found, why), nil
	}
	set.SharePrefixes(sharedTokens)
	return "prompts are computed once, which saves those of further answers: " + found.String(), nil
}

// sharingLayers returns the last argument of sharePrompts for the network of a session.
func sharingLayers(s *session.Session) func(longest int) error {
	return func(longest int) error { return s.Net.CheckPrefixes(longest, s.On.Capabilities().SeparateHost) }
}

// cannotShare returns why the prompts of the rows cannot be computed once, nil if they can.
func cannotShare(s Spec, set *dataset.Set, layers func(longest int) error) error {
	c := s.Training
	switch {
	case !objective.SharesPrompts(s.Objective()):
		return fmt.Errorf("training.objective: %s learns from single sequences", c.Objective)
	case set.Streaming():
		return errors.New("the rows of a stream are not read ahead (dataset.streaming)")
	case c.NEFTuneAlpha > 0:
		return errors.New("each answer has noise of its own on its prompt (training.neftune_alpha)")
	case c.sharing() > 1:
		return errors.New("several devices have the tokens of a row (training.context_parallel_size)")
	}
	return layers(set.SequenceLength())
}

// sharesIn reports whether the run of a checkpoint shares prompts, so that a resumed run goes on as it began. known is
// false where there is no such checkpoint. resume is training.resume.
func sharesIn(resume, dir string) (shares, known bool) {
	c, known := cursorIn(resume, dir)
	var sampled sampledState
	if known && jsonerr.Unmarshal(c.Data, &sampled) == nil && sampled.Loader != nil {
		c.Data = sampled.Loader
	}
	var data dataset.State
	if known {
		known = jsonerr.Unmarshal(c.Data, &data) == nil
	}
	return data.SharedPrefixes, known
}

// cursorIn returns the cursor of the checkpoint that a run resumes from. known is false where there is no such
// checkpoint, or it cannot be read. resume is training.resume.
func cursorIn(resume, dir string) (c cursor, known bool) {
	switch resume {
	case "":
		return c, false
	case "auto":
		steps, err := checkpoint.Steps(dir)
		if err != nil || len(steps) == 0 {
			return c, false
		}
		resume = filepath.Join(dir, checkpoint.Name(steps[len(steps)-1]))
	}
	var state checkpoint.State
	text, err := os.ReadFile(filepath.Join(resume, checkpoint.StateFile))
	if err == nil {
		err = jsonerr.Unmarshal(text, &state)
	}
	if err == nil {
		err = jsonerr.Unmarshal(state.Cursor, &c)
	}
	return c, err == nil
}
