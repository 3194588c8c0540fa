package train

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/words"
)

// RolloutsFile is the name of the file that record_rollouts writes into the output folder: a JSON line for each sampled
// answer.
const RolloutsFile = "rollouts.jsonl"

// recordedRollout is a line of RolloutsFile.
type recordedRollout struct {
	Prompt    []int32             `json:"prompt_ids"`
	Answer    []int32             `json:"completion_ids"`
	Old       []*float32          `json:"old_logprobs"`
	Mask      []int               `json:"tool_mask,omitempty"` // 0 for a token that the environment gave, else 1
	Rewards   map[string]*float64 `json:"rewards"`
	Group     string              `json:"group"`
	Truncated bool                `json:"truncated"`
	Step      int                 `json:"step"`
}

// recordAnswers tells the observers of sampled answers, and writes the answers to RolloutsFile if the run records them.
func (w *sampledWindows) recordAnswers(all []askedPrompt, answers [][]sampledAnswer, groups []dataset.Row) error {
	if err := w.watched(all, answers, groups); err != nil {
		return err
	}
	if !w.RecordRollouts {
		return nil
	}
	if w.record == nil {
		f, err := openRollouts(filepath.Join(w.run.spec.OutputDir, RolloutsFile), w.run.recorder.step())
		if err != nil {
			return fmt.Errorf("record rollouts: %w", err)
		}
		w.record = f
	}
	for i, a := range all {
		for k, own := range answers[i] {
			old, mask := own.recorded()
			line := recordedRollout{Prompt: a.prompt.IDs, Answer: own.IDs, Old: old, Mask: mask, Truncated: !own.Ended,
				Rewards: rewardsOf(groups[i], k), Group: fmt.Sprintf("%d.%d", a.epoch, a.row),
				Step: w.run.recorder.step() + 1}
			text, err := json.Marshal(line)
			if err == nil {
				_, err = w.record.Write(append(text, '\n'))
			}
			if err != nil {
				return fmt.Errorf("record rollouts: %w", err)
			}
		}
	}
	return nil
}

// recorded returns log-probabilities and mask of an answer for a line of RolloutsFile; the mask is nil where the model
// wrote all tokens.
func (a sampledAnswer) recorded() (old []*float32, mask []int) {
	for t := range a.Old {
		old = append(old, &a.Old[t])
	}
	if len(a.Given) > 0 {
		mask = slices.Repeat([]int{1}, len(a.IDs))
	}
	for _, g := range a.Given {
		for t := g[0]; t < g[1]; t++ {
			old[t], mask[t] = nil, 0
		}
	}
	return old, mask
}

// openRollouts opens RolloutsFile behind its lines of the steps up to done; later lines are of a process that ended
// before its next checkpoint, and are cut off.
func openRollouts(path string, done int) (*os.File, error) {
	old, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Append(path, 0o644)
	}
	if err != nil {
		return nil, err
	}
	defer old.Close()
	keep, lines := int64(0), bufio.NewReader(old)
	for {
		text, err := lines.ReadBytes('\n')
		var l recordedRollout
		if err != nil || json.Unmarshal(text, &l) != nil || l.Step > done {
			break
		}
		keep += int64(len(text))
	}
	f, err := atomicfile.Append(path, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(keep); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// rewardsOf returns the rewards of an answer of a group by their names; nil = a reward could not be given.
func rewardsOf(group dataset.Row, answer int) map[string]*float64 {
	all := map[string]*float64{}
	for j, name := range group.Rollout.Names {
		all[name] = orNull(group.Rollout.Rewards[answer][j])
	}
	return all
}

// CompletionWatcher is an Observer that receives sampled answers with their rewards, once for each set of answers,
// before the step that trains on them. An error ends the run.
type CompletionWatcher interface {
	Completions([]CompletionLine) error
}

// CompletionLine is a line of CompletionsFile: what the answers to one prompt were worth, with the best and the worst.
type CompletionLine struct {
	Step int `json:"step"` // the first step that trains on the answers
	// Row identifies the prompt: the index of its row in the training data, from 1.
	Row    int          `json:"row"`
	Prompt string       `json:"prompt"`
	Mean   float64      `json:"reward"`     // mean over the answers, weighted by reward_weights
	Std    float64      `json:"reward_std"` // standard deviation; 0 = the prompt teaches nothing
	Best   JudgedAnswer `json:"best"`
	Worst  JudgedAnswer `json:"worst"`
}

// JudgedAnswer is a sampled answer with its rewards.
type JudgedAnswer struct {
	Text      string              `json:"text"`
	Reward    float64             `json:"reward"`
	Rewards   map[string]*float64 `json:"rewards"` // each reward; null = it could not be given
	Tokens    int                 `json:"tokens"`
	Truncated bool                `json:"truncated,omitempty"` // the answer was cut at max_completion_length
}

// mostWatchedPrompts is the largest number of prompts of a step whose answers CompletionsFile shows.
const mostWatchedPrompts = 16

// watched shows the best and the worst answers to at most mostWatchedPrompts prompts to the observers: the prompts with
// the lowest rows, so that a prompt is shown in every epoch, besides those with the step's best and worst answer.
func (w *sampledWindows) watched(all []askedPrompt, answers [][]sampledAnswer, groups []dataset.Row) error {
	var lines []CompletionLine
	for i, a := range all {
		line, ok, err := w.completionLine(a, answers[i], groups[i])
		if err != nil {
			return err
		}
		if ok {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	best := slices.MaxFunc(lines, func(a, b CompletionLine) int { return cmp.Compare(a.Best.Reward, b.Best.Reward) })
	worst := slices.MinFunc(lines, func(a, b CompletionLine) int { return cmp.Compare(a.Worst.Reward, b.Worst.Reward) })
	if every := w.run.spec.Training.LoggingSteps; best.Step == 1 || best.Step%every == 0 {
		w.run.env.Newsf("step %d, best answer %s", best.Step, best.Best.shown(best.Prompt))
		w.run.env.Newsf("step %d, worst answer %s", worst.Step, worst.Worst.shown(worst.Prompt))
	}
	slices.SortStableFunc(lines, func(a, b CompletionLine) int { return cmp.Compare(a.Row, b.Row) })
	last := lines[min(len(lines), mostWatchedPrompts)-1].Row
	lines = slices.DeleteFunc(lines, func(l CompletionLine) bool {
		return l.Row > last && l.Row != best.Row && l.Row != worst.Row
	})
	for _, o := range w.run.recorder.observers {
		if to, ok := o.(CompletionWatcher); ok {
			if err := to.Completions(lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// shown returns the answer with its reward and its prompt as part of a line of the terminal.
func (j JudgedAnswer) shown(prompt string) string {
	return fmt.Sprintf("(reward %.4g) to %q: %q", j.Reward, words.Clip(prompt, 80), words.Clip(j.Text, 160))
}

// completionLine returns the line about the answers to a prompt; ok is false where no answer has a reward.
func (w *sampledWindows) completionLine(a askedPrompt, answers []sampledAnswer, group dataset.Row) (
	line CompletionLine, ok bool, err error,
) {
	totals, err := w.Totals(group.Rollout)
	if err != nil {
		return line, false, err
	}
	n, sum, squares, best, worst := 0.0, 0.0, 0.0, -1, -1
	for k, x := range totals {
		if math.IsNaN(x) {
			continue
		}
		n, sum = n+1, sum+x
		if best < 0 || x > totals[best] {
			best = k
		}
		if worst < 0 || x < totals[worst] {
			worst = k
		}
	}
	if n == 0 {
		return line, false, nil
	}
	for _, x := range totals {
		if d := x - sum/n; !math.IsNaN(x) {
			squares += d * d
		}
	}
	judged := func(k int) JudgedAnswer {
		return JudgedAnswer{Text: cutText(answers[k].shown()), Reward: totals[k], Rewards: rewardsOf(group, k),
			Tokens: answers[k].own(), Truncated: !answers[k].Ended}
	}
	return CompletionLine{Step: w.run.recorder.step() + 1, Row: a.row + 1,
		Prompt: cutText(w.run.Base.Tokenizer.Decode(a.prompt.IDs, true)), Mean: sum / n,
		Std: math.Sqrt(squares / max(n-1, 1)), Best: judged(best), Worst: judged(worst)}, true, nil
}
