package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/objective"
)

// evaluationEpoch is the epoch of the seeds of answers to validation prompts, which no training epoch has. Every
// evaluation of a run draws with the same random numbers.
const evaluationEpoch = -1

// evaluatesPrompts returns the windows that sample answers to validation prompts; nil = the run has none.
func (r *evaluating) evaluatesPrompts() *sampledWindows {
	if r.answering == nil || r.data.Val.Len() == 0 {
		return nil
	}
	return r.answering
}

// evaluateAnswers samples answers to the validation prompts and judges them. The loss of the evaluation is minus the
// mean reward, so that lower is better for every key that names eval_loss. An interrupt ends it; the run then makes the
// evaluation when it resumes.
func (r *evaluating) evaluateAnswers(w *sampledWindows) (best bool, err error) {
	defer graph.StartRange("evaluation").End()
	r.at.enter(phaseEval)
	defer r.at.enter(phaseSteps)
	r.recorder.progress.OwesEval = true
	if err := r.pipeline.Average(); err != nil {
		return false, err
	}
	began := time.Now()
	val := r.data.Val
	var all []askedPrompt
	for row := range val.Len() {
		all = append(all, askedPrompt{row: row, epoch: evaluationEpoch, prompt: val.Row(row)})
	}
	numbers, err := w.evaluate(context.Background(), all)
	if err != nil {
		return false, err
	}
	took := time.Since(began).Seconds()
	i := slices.IndexFunc(numbers, func(v objective.Value) bool { return v.Name == "reward" })
	if i < 0 {
		return false, fmt.Errorf("evaluation after step %d: no answer to the %d validation prompts got a reward",
			r.recorder.step(), len(all))
	}
	return r.recorder.evaluated(EvalMetrics{
		Step: r.recorder.step(), Epoch: r.recorder.state.Epoch, Loss: -numbers[i].Value, Runtime: took,
		Numbers:          Values(numbers).of(evalPrefix),
		SamplesPerSecond: float64(len(all)) / took, StepsPerSecond: float64(len(all)) / took,
	})
}

// evaluate returns the numbers of answers to prompts.
func (w *sampledWindows) evaluate(ctx context.Context, all []askedPrompt) ([]objective.Value, error) {
	spent := w.spent // the answers to evaluate are none of a step
	defer func() { w.spent = spent }()
	answers, err := w.answersTo(ctx, all, drawing{w.NumGenerationsEval, w.EvalTemperature})
	if err != nil {
		return nil, err
	}
	rewards, err := w.judge(ctx, all, answers)
	if err != nil {
		return nil, err
	}
	var groups []*dataset.Rollout
	tokens, cut, n := 0, 0, 0
	for i := range all {
		groups = append(groups, &dataset.Rollout{Names: w.rewards.Names(), Rewards: rewards[i]})
		for _, a := range answers[i] {
			if tokens, n = tokens+a.own(), n+1; !a.Ended {
				cut++
			}
		}
	}
	numbers, err := w.Evaluate(groups)
	per := math.Max(float64(n), 1)
	return append(numbers, objective.Value{Name: "completions/mean_length", Value: float64(tokens) / per},
		objective.Value{Name: "completions/clipped_ratio", Value: float64(cut) / per}), err
}
