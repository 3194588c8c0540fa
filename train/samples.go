package train

import (
	"context"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/tasks"
	"github.com/tierlora/tierlora/text/chat"
)

// maxSamples is the largest number of training.sample_prompts; the run waits for their answers.
const maxSamples = 64

// samples are the tokenised prompts of training.sample_prompts and questions of training.eval_tasks. Their plan is a
// part of the run's plan and uses its memory.
type samples struct {
	*infer.Generator // bound once the memory is allocated
	prompts          []infer.Prompt
	tasks            []*tasks.Sheet
	longest          int // tokens of the longest prompt with its answer
}

// openSamples tokenises the prompts and refuses prompts that are too long, before any memory is allocated.
func (p *inputs) openSamples(ctx context.Context) (*samples, error) {
	c := p.spec.Training
	if len(c.SamplePrompts)+len(c.EvalTasks) == 0 {
		return nil, nil
	}
	g, err := infer.NewSampler(p.Session)
	if err != nil {
		return nil, fmt.Errorf("training.sample_prompts, eval_tasks: %w", err)
	}
	s := &samples{Generator: g}
	for i, text := range c.SamplePrompts {
		prompt := g.Text(text)
		if p.talks() {
			if prompt, err = s.talk(text, p.report.Chat.System, p.spec.Dataset.ChatTemplate); err != nil {
				return nil, fmt.Errorf("training.sample_prompts[%d]: %w", i, err)
			}
		}
		n := len(prompt.IDs) + c.SampleMaxTokens
		if most := p.Base.Config.MaxPositions; n > most {
			return nil, fmt.Errorf("training.sample_prompts[%d]: %d tokens and an answer of up to %d are more than "+
				"the model's %d positions: shorten it or lower training.sample_max_tokens", i, len(prompt.IDs),
				c.SampleMaxTokens, most)
		}
		s.prompts, s.longest = append(s.prompts, prompt), max(s.longest, n)
	}
	for i, name := range c.EvalTasks {
		t, err := tasks.Find(name)
		if err != nil {
			return nil, fmt.Errorf("training.eval_tasks[%d]: %w", i, err)
		}
		if t.System == "" && t.Chat != tasks.ChatNever && p.talks() {
			t.System = p.report.Chat.System
		}
		if t.Images != "" {
			return nil, fmt.Errorf("training.eval_tasks[%d]: task %s has images_field, and a run asks no questions "+
				"with images: leave the task out, and ask it with trainer eval --task", i, t.Name)
		}
		sheet, err := tasks.Prepare(ctx, g, t, "")
		if err != nil {
			return nil, fmt.Errorf("training.eval_tasks[%d]: %w", i, err)
		}
		s.tasks, s.longest = append(s.tasks, sheet), max(s.longest, sheet.Longest)
	}
	return s, nil
}

// talks reports whether the training rows are conversations.
func (p *inputs) talks() bool {
	for _, name := range strings.Split(p.report.Format, ", ") {
		if dataset.Formats[name].Chat {
			return true
		}
	}
	return p.report.AsChat
}

// talk returns the prompt for a user's message, preceded by the system message that all training rows share.
func (s *samples) talk(text, system, template string) (infer.Prompt, error) {
	return s.ChatPrompt(chat.Dialogue(system, text), template)
}

// samplesAfter reports whether samples are due after a step.
func (r *running) samplesAfter(step int) bool {
	every := r.spec.Training.EvalSteps
	return r.sampler != nil && (every > 0 && step%every == 0 || step == r.total)
}

// sample lets the model answer the prompts, for the log and the observers. It draws no random number and writes to no
// memory that a step reads. An interrupt skips the remaining prompts.
func (r *evaluating) sample(ctx context.Context) error {
	if !r.samples() {
		return nil
	}
	defer graph.StartRange("samples").End()
	if err := r.pipeline.Average(); err != nil {
		return err
	}
	r.at.enter(phaseEval)
	defer r.at.enter(phaseSteps)
	c := r.spec.Training
	for i, prompt := range r.sampler.prompts {
		if stop, err := r.mayNotSample(); stop || err != nil {
			return err
		}
		made, err := r.sampler.Continue(ctx, prompt, infer.GenerateOptions{MaxTokens: c.SampleMaxTokens}, nil)
		if err != nil {
			return fmt.Errorf("training.sample_prompts[%d]: %w", i, err)
		}
		info := SampleInfo{Step: r.recorder.step(), Prompt: c.SamplePrompts[i], Answer: made.Text}
		r.env.Newsf("step %d, sample %q: %q", info.Step, info.Prompt, info.Answer)
		for _, o := range r.recorder.observers {
			if w, ok := o.(SampleWatcher); ok {
				if err := w.Sample(info); err != nil {
					return err
				}
			}
		}
	}
	return r.askTasks(ctx)
}

// samples reports whether this rank makes samples: the rank that writes does, and all ranks do if it needs their slices
// of the base model.
func (r *evaluating) samples() bool {
	switch {
	case r.sampler == nil:
		return false
	case r.env.team == nil:
		return !r.env.silent
	}
	return r.env.team.leads() || r.sharded()
}

// mayNotSample reports whether an interrupt skips the samples; ranks that make samples together agree on it.
func (r *evaluating) mayNotSample() (bool, error) {
	if r.env.team == nil || !r.sharded() {
		return r.interrupted(), nil
	}
	return r.env.team.anyOf("whether the samples are interrupted", r.interrupted())
}

// askTasks asks the questions of training.eval_tasks. An interrupt skips the tasks that are not measured completely.
func (r *evaluating) askTasks(ctx context.Context) error {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	watch := func(int, int) {
		if !r.sharded() && r.interrupted() {
			stop()
		}
	}
	for i, sheet := range r.sampler.tasks {
		if r.sharded() { // no rank may stop alone in between
			if stop, err := r.mayNotSample(); stop || err != nil {
				return err
			}
		}
		result, err := sheet.Ask(inner, watch)
		switch {
		case inner.Err() != nil && ctx.Err() == nil:
			return nil // the loop handles the interrupt
		case err != nil:
			return fmt.Errorf("training.eval_tasks[%d]: %w", i, err)
		}
		for _, m := range result.Metrics {
			line := TaskMetrics{Step: r.recorder.step(), Epoch: r.recorder.state.Epoch, Task: result.Task,
				Metric: m.Name, Value: m.Value, StdErr: m.StdErr, Questions: result.Questions}
			r.env.Newsf("step %d, task %s: %s %.4f, standard error %.4f, %d questions", line.Step, line.Task,
				line.Metric, line.Value, line.StdErr, line.Questions)
			if err := r.recorder.answered(line); err != nil {
				return err
			}
		}
	}
	return nil
}
