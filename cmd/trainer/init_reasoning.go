package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/keys"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/reward"
)

// goalReasoning is the goal of questions with a known answer: the model's answers are sampled and judged.
const goalReasoning = "reasoning"

// answerColumns are the columns in which a row may have the right answer, the likeliest first.
var answerColumns = []string{"answer", "solution", "final_answer", "ground_truth", "target", "label", "gold"}

// reasoningTokens are the tokens of a sampled answer, where the model's context allows them.
const reasoningTokens = 512

// samplesAnswers makes a run that reads rows as prompts, for the goal reasoning.
func (o *initOptions) samplesAnswers(s *train.Spec) {
	if o.goal == goalReasoning {
		s.Training.Objective, s.Objectives.GRPO = "grpo", objective.Defaults().GRPO
	}
}

// findReward chooses the reward that judges answers to the rows: that whose parser reads the most of a column's values.
func (f *looked) findReward(o *initOptions, rows dataset.Rows) error {
	if o.goal != goalReasoning {
		return nil
	}
	if f.tokens == 0 {
		return usage(fmt.Errorf("init: --goal %s: the folder of %s has no tokenizer, and answers are sampled with one",
			o.goal, o.model))
	}
	n := min(rows.Len(), 256)
	for _, column := range answerColumns {
		var values []string
		for i := range n {
			if text, ok := textIn(rows.Row(i).Columns, column); ok {
				values = append(values, text)
			}
		}
		if len(values) == n {
			keys.SetDefaults(&f.reward)
			f.reward.Name, f.reward.Type, f.reward.Column = "right", judgeOf(values), column
			return nil
		}
	}
	return usage(fmt.Errorf("init: --goal %s: the rows of %s have no column with the right answer; it may be called "+
		"%s; for a reward without one write a configuration (docs/RL.md)", o.goal, o.data,
		strings.Join(answerColumns, ", ")))
}

// textIn returns a column of a row: a text or a number.
func textIn(columns []byte, name string) (string, bool) {
	var row map[string]json.RawMessage
	if json.Unmarshal(columns, &row) != nil || len(row[name]) == 0 {
		return "", false
	}
	var text string
	if json.Unmarshal(row[name], &text) == nil {
		return text, text != ""
	}
	var number json.Number
	return string(row[name]), json.Unmarshal(row[name], &number) == nil
}

// judgeOf returns the type of the reward for right answers: choice for letters, number for numbers, else math, which
// compares what is no formula as text.
func judgeOf(values []string) string {
	letter := func(text string) bool { return len(text) == 1 && text[0] >= 'A' && text[0] <= 'Z' }
	number := func(text string) bool {
		_, ok := reward.Number(text)
		formula := strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || r == '\\' || r == '^' })
		return ok && (strings.Contains(text, "####") || !formula)
	}
	switch {
	case !slices.ContainsFunc(values, func(v string) bool { return !letter(v) }):
		return "choice"
	case !slices.ContainsFunc(values, func(v string) bool { return !number(v) }):
		return "number"
	}
	return "math"
}

// settleReasoning sets the values of a run that samples and judges answers.
func (ch *choice) settleReasoning(o *initOptions) {
	if o.goal != goalReasoning {
		return
	}
	f, s := ch.found, &ch.spec
	g := objective.Defaults().GRPO
	g.MaxCompletionLength = max(16, min(reasoningTokens, f.context-f.longest))
	g.EpsilonHigh, g.Rewards = 0.28, []reward.Config{f.reward}
	s.Objectives.GRPO = g
	s.Dataset.MaxLength = f.longest + g.MaxCompletionLength
	for _, n := range lengthSteps {
		if n >= s.Dataset.MaxLength && n <= f.context {
			s.Dataset.MaxLength = n
			break
		}
	}
	t := &s.Training
	t.Objective, t.LearningRate, t.Epochs, t.WarmupRatio = "grpo", 1e-5, 1, 0
}

// explainReasoning says why the values of a run that samples answers were chosen.
func (ch *choice) explainReasoning(o *initOptions) {
	if o.goal != goalReasoning {
		return
	}
	why, f := ch.why, ch.found
	why["training.objective"] = "GRPO: several answers to each question are sampled and judged, and the better ones " +
		"of a group become likelier (docs/RL.md)."
	why["training.learning_rate"] = "reinforcement learning wants less than supervised training: 1e-6 to 5e-5 with " +
		"LoRA."
	why["training.batch_size"] = "questions per micro-batch, each with num_generations answers."
	why["training.gradient_accumulation_steps"] = fmt.Sprintf("questions of a step; a step samples %d answers.",
		ch.spec.Training.GradientAccumulationSteps*ch.spec.Objectives.GRPO.NumGenerations)
	why["training.warmup_ratio"] = "there is no warm-up; the rate falls over the run."
	why["training.epochs"] = "each question is asked once; more epochs ask them again."
	why["dataset.max_length"] = fmt.Sprintf("tokens of the longest question (%d) with an answer of "+
		"max_completion_length.", f.longest)
	why["grpo.num_generations"] = "answers to each question: a group. More give a better estimate and take longer."
	why["grpo.max_completion_length"] = "tokens of an answer; completions/clipped_ratio says how many were cut."
	why["grpo.epsilon_high"] = "DAPO's upper clip, which leaves rare good tokens more room than 0.2."
	why["grpo.rewards"] = map[string]string{
		"choice": "1 where the answer's letter is the column's.",
		"number": "1 where the answer's last number is the column's.",
		"math":   "1 where the answer's formula is the column's, however it is written.",
	}[f.reward.Type] + " docs/RL.md lists other rewards, and how a program of your own judges."
}

// reasoningValues returns the objective and the values of its section.
func (ch *choice) reasoningValues(o *initOptions) []config.Commented {
	if o.goal != goalReasoning {
		return nil
	}
	g := ch.spec.Objectives.GRPO
	r := g.Rewards[0]
	return []config.Commented{{Path: "training.objective", Value: ch.spec.Training.Objective},
		{Path: "grpo.num_generations", Value: g.NumGenerations},
		{Path: "grpo.max_completion_length", Value: g.MaxCompletionLength},
		{Path: "grpo.epsilon_high", Value: g.EpsilonHigh},
		{Path: "grpo.rewards", Value: []any{importer.Map{{Key: "name", Value: r.Name}, {Key: "type", Value: r.Type},
			{Key: "column", Value: r.Column}}}}}
}
