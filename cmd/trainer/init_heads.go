package main

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
)

// Goals of models with a head in place of the vocabulary's. Rows of texts with labels serve other goals too, so they
// are not detected.
const (
	goalClasses   = "classification"
	goalWords     = "token_classification"
	goalVectors   = "embedding"
	goalReranking = "reranking"
)

// headGoal is a goal of models with a head.
type headGoal struct {
	task, objective string
	text            string // for the head of the configuration
	rate            float64
	rateWhy         string
	batches         []int // micro-batches to try, the smallest first and then the largest ones
}

// e5 is the source of the learning rates of heads that compare texts.
const e5 = "1e-4 with LoRA trained E5-Mistral (Wang et al. 2023) and RankLLaMA (Ma et al. 2023)."

// headGoals are the goals of models with a head.
var headGoals = map[string]headGoal{
	goalClasses: {task: "sequence_classification", objective: "classification", text: "texts with labels", rate: 2e-4,
		rateWhy: "LoRA usually wants 1e-4 to 1e-3; lower it if the loss jumps. trainer lr-find tries several."},
	goalWords: {task: "token_classification", objective: "token_classification", text: "words with labels", rate: 2e-4,
		rateWhy: "LoRA usually wants 1e-4 to 1e-3; lower it if the loss jumps. trainer lr-find tries several."},
	goalReranking: {task: "reranker", objective: "rerank", text: "two texts with a label from 0 to 1", rate: 1e-4,
		rateWhy: e5},
	goalVectors: {task: "embedding", objective: "contrastive", text: "texts that belong together", rate: 1e-4,
		rateWhy: e5, batches: []int{2, 64, 32, 16, 8, 4}},
}

// useHead sets the task of a goal with a head, and the labels that its rows have.
func useHead(ctx context.Context, o *initOptions, s *train.Spec, env session.Env) (err error) {
	h, ok := headGoals[o.goal]
	if !ok {
		return nil
	}
	s.Task, s.Training.Objective = h.task, h.objective
	if o.goal == goalVectors {
		s.Training.BatchSize, s.Objectives.Embedding = 2, objective.Defaults().Embedding
		return nil
	}
	if o.goal == goalReranking {
		return nil
	}
	c, fsys, err := locateData(ctx, s.Dataset, env)
	if err != nil {
		return err
	}
	found, err := dataset.SurveyLabels(ctx, fsys, c, o.goal == goalWords)
	if err != nil {
		return err
	}
	labels := objective.Defaults().Classification
	labels.Labels = found.Names
	if found.Names == nil {
		labels.NumLabels = found.Count
	}
	labels.ProblemType = map[dataset.AimKind]string{dataset.AimLabels: objective.MultiLabel,
		dataset.AimNumbers: objective.Regression}[found.Kind]
	if labels.ProblemType == "" {
		labels.ProblemType = objective.SingleLabel
	}
	s.Objectives.Classification = labels
	return nil
}

// locateData finds the files of data. A nil file system means the disk.
func locateData(ctx context.Context, c dataset.Config, env session.Env) (dataset.Config, fs.FS, error) {
	short, embedded := strings.CutPrefix(c.Path, session.EmbeddedPrefix)
	if !embedded {
		c, err := session.FindData(ctx, c, env.Hub)
		return c, nil, err
	}
	fsys, err := configs.Data(short)
	c.Path = short
	return c, fsys, err
}

// headGoal checks that the rows serve a goal with a head; ok is false for the other goals.
func (f *looked) headGoal(o *initOptions) (ok bool, err error) {
	if _, ok := headGoals[o.goal]; !ok {
		return false, nil
	}
	if !slices.Contains(goals[o.goal], f.format) {
		return true, usage(fmt.Errorf("init: --goal %s: the rows of %s are of the format %s; the goal takes rows of "+
			"the formats %s (docs/DATA.md)", o.goal, o.data, f.format, strings.Join(goals[o.goal], ", ")))
	}
	if f.tokens == 0 {
		return true, usage(fmt.Errorf("init: --goal %s: the folder of %s has no tokenizer, and heads of texts need one",
			o.goal, o.model))
	}
	return true, nil
}

// settleHead sets what a goal with a head trains.
func (ch *choice) settleHead(o *initOptions) {
	h, ok := headGoals[o.goal]
	if !ok {
		return
	}
	s := &ch.spec
	s.Task, s.Training.Objective, s.Training.LearningRate = h.task, h.objective, h.rate
	s.Objectives = ch.found.objectives
}

// explainHead writes the comments of a goal with a head.
func (ch *choice) explainHead(o *initOptions) {
	h, ok := headGoals[o.goal]
	if !ok {
		return
	}
	why, c := ch.why, ch.spec.Objectives.Classification
	why["task"] = "a head is trained beside the adapter, in place of the vocabulary's (docs/TASKS.md)."
	why["training.learning_rate"] = h.rateWhy
	if c != nil {
		why["classification.labels"] = "names of the labels in the order of their scores, as the rows have them."
		why["classification.num_labels"] = map[string]string{
			objective.SingleLabel: "the rows have the labels 0 to this number, which is not one of them.",
			objective.MultiLabel:  "the rows have the labels 0 to this number, which is not one of them.",
			objective.Regression:  "numbers of a row.",
		}[c.ProblemType]
		why["classification.problem_type"] = map[string]string{
			objective.SingleLabel: "one label a row; multi_label takes any number, regression takes numbers.",
			objective.MultiLabel:  "any number of labels a row, each with a probability of its own.",
			objective.Regression:  "numbers, since they have fractions, are negative, or are 1,000 and more.",
		}[c.ProblemType]
	}
	if o.goal == goalVectors {
		t := ch.spec.Training
		why["training.batch_size"] = fmt.Sprintf("the negatives of an anchor are the other texts of its "+
			"micro-batch: as many rows as fit, at most %d. Accumulation adds rows to a step, but no negatives.",
			h.batches[1])
		why["training.gradient_accumulation_steps"] = fmt.Sprintf("%d x %d rows make an optimizer step.", t.BatchSize,
			t.GradientAccumulationSteps)
		why["embedding.pooling"] = "the vector of a text is the mean of its tokens'; last takes the last token's."
		why["embedding.temperature"] = "divides cosines in the loss; 0.05 is sentence-transformers' scale of 20."
	}
}

// headValues returns the keys of a goal with a head.
func (ch *choice) headValues(o *initOptions) (all []config.Commented) {
	if _, ok := headGoals[o.goal]; !ok {
		return nil
	}
	all = []config.Commented{{Path: "task", Value: ch.spec.Task},
		{Path: "training.objective", Value: ch.spec.Training.Objective}}
	if c := ch.spec.Objectives.Classification; c != nil {
		if o.goal == goalClasses {
			all = append(all, config.Commented{Path: "classification.problem_type", Value: c.ProblemType})
		}
		if c.Labels == nil {
			all = append(all, config.Commented{Path: "classification.num_labels", Value: c.NumLabels})
		} else {
			names := make([]any, len(c.Labels))
			for i, name := range c.Labels {
				names[i] = name
			}
			all = append(all, config.Commented{Path: "classification.labels", Value: names})
		}
	}
	if e := ch.spec.Objectives.Embedding; e != nil {
		all = append(all, config.Commented{Path: "embedding.pooling", Value: e.Pooling},
			config.Commented{Path: "embedding.temperature", Value: e.Temperature})
	}
	return all
}

// labelsNote says that rows which are trained as text have labels.
func (f *looked) labelsNote(o *initOptions) string {
	if o.goal != "text" && o.goal != "instruct" {
		return ""
	}
	for _, key := range f.keys {
		if slices.Contains([]string{"label", "labels"}, key.Key) {
			return fmt.Sprintf("the rows have the key %s: --goal %s trains a classifier of "+
				"them", words.ShellQuote(key.Key),
				goalClasses)
		}
	}
	return ""
}
