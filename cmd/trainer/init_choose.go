package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// choice is a configuration that fits in memory, with an explanation of each value.
type choice struct {
	found   *looked
	spec    train.Spec
	fitting train.Spec       // the largest batch that fits so far
	plan    train.PlanReport // plan of fitting
	steps   int
	about   string // "about " if the rows were not counted
	why     map[string]string
	notes   []string
	tried   []string // descriptions of the attempts that did not fit
}

const (
	rowsOfStep  = 16    // rows of an optimizer step
	fewRows     = 200   // with fewer rows none are held out for validation
	manyRows    = 10000 // with more rows one epoch is enough
	leastLength = 256   // rows are not truncated further to fit
	textLength  = 1024  // length of packed text
)

// lengthSteps lists the maximum lengths to choose from, in tokens.
var lengthSteps = []int{128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

// ways lists pairs of adapter and optimizer in the order of preference.
var ways = []way{{"lora", "adamw"}, {"qlora", "adamw"}, {"qlora", "adamw_8bit"}}

type way struct{ adapter, optimizer string }

func (w way) String() string {
	if w.optimizer == train.Default().Optimizer {
		return w.adapter
	}
	return w.adapter + " and " + w.optimizer
}

// choose returns the best learner that fits, with a rank by the amount of data.
func (f *looked) choose(ctx context.Context, c *console, o *initOptions, env session.Env) (*choice, error) {
	ch, err := f.fitting(ctx, c, o, env, leastRank)
	if err != nil {
		return nil, err
	}
	if rank := ch.rankByData(o); rank > leastRank {
		higher, err := f.fitting(ctx, c, o, env, rank)
		if err == nil && higher.spec.Adapter == ch.spec.Adapter &&
			higher.spec.Dataset.MaxLength == ch.spec.Dataset.MaxLength {
			ch = higher
		} else if err != nil && exitCode(err) != exitDoesNotFit {
			return nil, err
		}
	}
	ch.explain(o, f.length(o.goal))
	return ch, nil
}

// fitting plans one run after the other, the best learner first, until one fits.
func (f *looked) fitting(ctx context.Context, c *console, o *initOptions, env session.Env, rank int) (*choice, error) {
	ch := &choice{found: f, why: map[string]string{}}
	ch.settle(o, rank)
	if note := f.labelsNote(o); note != "" {
		ch.notes = append(ch.notes, note)
	}
	full := ch.spec.Dataset.MaxLength
	for length := full; ; length /= 2 {
		for _, way := range ways {
			fits := false
			batches := o.batches() // if the first does not fit, larger ones do not either
			for _, batch := range batches {
				if batch > f.rows {
					continue
				}
				s := ch.with(way, length, batch)
				tried := s
				tried.Training.OptimizerOffload = "never" // an optimizer with smaller states is faster
				report, err := f.plan(ctx, c, tried, o, env)
				if errors.Is(err, session.ErrDoesNotFit) {
					line, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), session.ErrDoesNotFit.Error()+": "), ";")
					ch.tried = append(ch.tried, fmt.Sprintf("%s with %d x %d tokens: %s", way, batch, length, line))
					c.say("plan: does not fit: %s", ch.tried[len(ch.tried)-1])
					if !fits {
						break
					}
					continue
				}
				if err != nil {
					return nil, err
				}
				fits = true
				if ch.plan.TotalBytes == 0 || s.Training.BatchSize > ch.fitting.Training.BatchSize {
					ch.fitting, ch.plan = s, report
				}
				if batch > batches[0] {
					break
				}
			}
			if fits {
				ch.spec = ch.fitting
				return ch, nil
			}
		}
		if length <= leastLength || o.goal == goalReasoning { // questions are never cut
			break
		}
	}
	return nil, &exitError{code: exitDoesNotFit,
		err: fmt.Errorf(
			"init: no run of %s fits; the smallest that was tried is %s; raise --vram, or choose a smaller model",
			o.model, ch.tried[len(ch.tried)-1])}
}

// with returns the run with a given adapter and optimizer, maximum length and batch size.
func (ch *choice) with(w way, length, batch int) train.Spec {
	s := ch.spec
	s.Adapter, s.Training.Optimizer, s.Dataset.MaxLength = w.adapter, w.optimizer, length
	if w.adapter == "qlora" {
		q := quant.Default()
		s.Quantization = &q
	}
	s.Training.BatchSize, s.Training.GradientAccumulationSteps = batch, max(1, min(rowsOfStep, ch.found.rows)/batch)
	return exchanging(s)
}

// settle sets the values that do not depend on memory.
func (ch *choice) settle(o *initOptions, rank int) {
	f, s := ch.found, train.DefaultSpec()
	s.BaseModel, s.Device, s.VRAM = o.model, o.device, o.vram
	s.OutputDir = filepath.ToSlash(filepath.Join("runs", strings.TrimSuffix(filepath.Base(o.out), filepath.Ext(o.out))))
	s.LoRA.R, s.LoRA.Alpha, s.LoRA.TargetModules = rank, 32, []string{"all-linear"}
	d := &s.Dataset
	o.rows(d)
	d.Path, d.Format, d.ChatTemplate = o.data, f.format, f.template
	d.AsChat = f.form(o)
	d.MaxLength = f.length(o.goal)
	d.Packing = o.goal == "text"
	if f.rows >= fewRows {
		d.ValSplit = 0.05
	}
	t := &s.Training
	t.LearningRate, t.WarmupRatio, t.Epochs = f.rate(), 0.03, 3
	if f.rows >= manyRows {
		t.Epochs = 1
	}
	if o.goal == goalPairs {
		f.prefer(&s)
	}
	ch.spec = s
	ch.settleHead(o)
	ch.settleReasoning(o)
}

// batches returns the rows of micro-batches to try: the fewest, and then the others from the most down.
func (o *initOptions) batches() []int {
	if h := headGoals[o.goal]; h.batches != nil {
		return h.batches
	}
	if o.goal == goalReasoning { // a row is a whole group of answers
		return []int{1}
	}
	return []int{1, 8, 4, 2}
}

// form returns the value to write for dataset.as_chat: the outcome of auto, so that the configuration keeps its
// meaning. It is "" if the rows have only one form or the model has no chat template.
func (f *looked) form(o *initOptions) string {
	switch {
	case !f.hasForms:
		return ""
	case o.asChat != "":
		return o.asChat
	case f.asChat:
		return dataset.AsChatYes
	}
	return ""
}

// length returns the shortest of lengthSteps that truncates at most one row in a hundred.
func (f *looked) length(goal string) int {
	if goal == "text" {
		return min(textLength, f.context)
	}
	want := f.part(0.99)
	if f.tokens == 0 {
		want = textLength // without the model's tokenizer, tokens cannot be counted
	}
	for _, n := range lengthSteps {
		if n >= want {
			return min(n, f.context)
		}
	}
	return min(lookLength, f.context)
}

// plan plans a run. If the model has no tokenizer, rows of full length replace the data.
func (f *looked) plan(ctx context.Context, c *console, s train.Spec, o *initOptions,
	env session.Env) (train.PlanReport, error) {
	env.Log, env.Reading = nil, nil
	if f.tokens == 0 && s.Dataset.Format != "tokenized" {
		dir, err := os.MkdirTemp("", "trainer-init-")
		if err != nil {
			return train.PlanReport{}, fmt.Errorf("plan: %w", err)
		}
		defer os.RemoveAll(dir)
		path, err := fullRows(dir, s)
		if err != nil {
			return train.PlanReport{}, fmt.Errorf("plan: %w", err)
		}
		s.Dataset.Path, s.Dataset.Format, s.Dataset.Packing, s.Dataset.ValSplit = path, dataset.FormatAuto, false, 0
		s.Dataset.ChatTemplate, s.Dataset.AsChat, s.Dataset.System, s.Dataset.Fields = "", "", "", nil
	}
	return planReport(ctx, c, s, env, o.chip)
}

// fullRows writes rows of the maximum length.
func fullRows(dir string, s train.Spec) (string, error) {
	ids := make([]int, s.Dataset.MaxLength)
	for i := range ids {
		ids[i] = 1 + i%50
	}
	columns := map[string][]int{"input_ids": ids, "labels": ids}
	if s.Training.Objective == "dpo" {
		other := slices.Clone(ids)
		other[len(other)-1]++
		columns = map[string][]int{"chosen_input_ids": ids, "chosen_labels": ids, "rejected_input_ids": other,
			"rejected_labels": other}
	}
	row, err := json.Marshal(columns)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rows.jsonl")
	text := strings.Repeat(string(row)+"\n", s.Training.BatchSize*s.Training.GradientAccumulationSteps)
	return path, atomicfile.WritePrivate(path, []byte(text), 0o600)
}

// explain writes a comment for each value.
func (ch *choice) explain(o *initOptions, full int) {
	f, s, t := ch.found, &ch.spec, &ch.spec.Training
	about := ""
	if ch.steps = ch.plan.Steps; f.tokens == 0 { // the plan is for placeholder rows
		rows := float64(f.rows) * (1 - s.Dataset.ValSplit)
		ch.steps, about = max(1, int(rows*t.Epochs)/(t.BatchSize*t.GradientAccumulationSteps)), "about "
	}
	ch.about = about
	if s.Dataset.ValSplit > 0 {
		t.EvalSteps = parts(ch.steps, 10)
	}
	t.SaveSteps = parts(ch.steps, 4)
	t.SaveTotalLimit = 3
	why := ch.why
	memory := fmt.Sprintf("the plan holds %s of %s", session.FormatBytes(ch.plan.TotalBytes), limitText(ch.plan.Limit))
	why["base_model"] = f.modelLine()
	why["adapter"] = "lora keeps the base model as it is: " + memory +
		". qlora stores it in 4 bits: less memory, slightly lower quality."
	if s.Adapter == "qlora" {
		why["adapter"] = "qlora stores the base model in 4 bits, since lora does not fit: " + memory + "."
	}
	why["training.optimizer"] = "AdamW with moments in 8 bits, since adamw does not fit."
	why["lora.r"] = ch.rankLine(o)
	why["lora.alpha"] = "the update is scaled by alpha/r: with 32 at every rank the best learning rate hardly " +
		"depends on the rank (" + regret + ")."
	why["lora.target_modules"] = "all linear layers except the vocabulary head: attention alone learns less at any " +
		"rank (" + regret + ")."
	why["dataset.path"] = f.dataLine()
	why["dataset.format"] = "detected from the keys of the first row; trained: " + f.trained +
		". trainer inspect data " + words.ShellQuote(o.out) + " shows every token."
	why["dataset.fields"] = "keys of the rows that hold the format's fields."
	why["dataset.as_chat"] = "prompt and answer become a user's and an assistant's message in the model's chat " +
		"template; no trains plain text."
	if !f.asChat {
		why["dataset.as_chat"] = "prompt and answer are plain text, without the model's chat template; yes makes " +
			"conversations of them."
	}
	why["dataset.system"] = "system message of conversations without one; chat, generate and serve use it too."
	why["dataset.chat_template"] = "the model has no chat template; an instruct model's own would be used."
	why["dataset.val_split"] = "part of the rows held out for evaluation; dataset.val_path names a file of your own " +
		"instead."
	why["dataset.packing"] = "several texts are packed into each sequence; no text attends to another."
	why["training.gradient_checkpointing"] = fmt.Sprintf(
		"auto takes the fastest that fits; here: %s. It changes memory and speed, no results.", ch.plan.Checkpointing)
	why["training.batch_size"] = fmt.Sprintf("rows per micro-batch: as many of the %d rows of a step as fit in "+
		"memory. A larger batch with less accumulation trains the same, faster.",
		t.BatchSize*t.GradientAccumulationSteps)
	why["training.gradient_accumulation_steps"] = fmt.Sprintf("%d x %d rows make an optimizer step.", t.BatchSize,
		t.GradientAccumulationSteps)
	why["training.learning_rate"] = f.rateLine()
	if o.goal == goalPairs {
		ch.explainPreferences()
	}
	ch.explainHead(o)
	defer ch.explainReasoning(o)
	why["training.epochs"] = fmt.Sprintf("%s%d steps; more epochs overfit small data sets: watch the evaluation loss.",
		about, ch.steps)
	why["training.warmup_ratio"] = "warm-up: the learning rate rises over the first 3% of the steps."
	why["training.eval_steps"] = fmt.Sprintf("%s%s in the run, the last after its last step.", about,
		times(ch.steps, t.EvalSteps, "evaluation"))
	why["training.save_steps"] = fmt.Sprintf(
		"%s%s in the run, the last after its last step%s; trainer train FILE --resume auto continues after a stop.",
		about, times(ch.steps, t.SaveSteps, "checkpoint"), bestToo(t))
	why["training.save_total_limit"] = "older checkpoints are removed, except the best one."
	why["output_dir"] = "folder for adapter, checkpoints and metrics; a run never overwrites another."
	why["device"] = "planned for " + ch.plan.Device + "; auto takes a GPU if there is one."
	why["vram"] = "memory limit of the run; without it all free memory."
	switch d := s.Dataset; {
	case f.tokens == 0:
		why["dataset.max_length"] = "tokens of a row; without the model's tokenizer the rows were not measured: the " +
			"plan is for rows of full length."
		ch.notes = append(ch.notes, "the model's folder has no tokenizer: add it, then trainer inspect data shows "+
			"the rows as they are trained")
	case d.MaxLength < full:
		why["dataset.max_length"] = fmt.Sprintf(
			"tokens of a row, lowered to fit in memory; %d would keep 99%% of the rows whole.", full)
		ch.notes = append(ch.notes, fmt.Sprintf("rows longer than %d tokens are cut, as %d do not fit in memory",
			d.MaxLength, full))
	case d.Packing:
		why["dataset.max_length"] = "tokens of a packed sequence; longer ones see more context and take more memory."
	case f.part(0.99) > d.MaxLength:
		over := len(f.lengths) - sort.SearchInts(f.lengths, d.MaxLength+1)
		why["dataset.max_length"] = fmt.Sprintf(
			"the model's context; %d of %d rows are longer, the longest %d, and are cut.", over, f.rows, f.longest)
	default:
		why["dataset.max_length"] = fmt.Sprintf("tokens of a row (p99 %d, max %d); longer rows are cut.",
			f.part(0.99), f.longest)
	}
	if ch.plan.Device == "cpu" && f.all > 1e9 {
		ch.notes = append(ch.notes, "a model of this size is very slow on a CPU; use a GPU")
	}
	if f.template != "" {
		ch.notes = append(ch.notes, "the model has no chat template; ChatML is used, which the model must learn "+
			"first: an instruct model has its own")
	}
}

// parts returns the interval, in steps, between events that happen at most n times in a run, the last one after its
// last step.
func parts(steps, n int) int { return max(1, (steps+n-1)/n) }

// times describes how often something happens that is due after every so many steps and at the end.
func times(steps, every int, what string) string {
	n := parts(steps, max(every, 1))
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bestToo adds that an evaluation may save a checkpoint too.
func bestToo(t *train.Config) string {
	if t.EvalSteps == 0 {
		return ""
	}
	return ", and one after each evaluation that is the best so far"
}

// write returns the configuration as YAML with comments.
func (ch *choice) write(o *initOptions) []byte {
	s, t := ch.spec, ch.spec.Training
	values := []config.Commented{
		{Path: "base_model", Value: s.BaseModel}, {Path: "adapter", Value: s.Adapter},
		{Path: "lora.r", Value: s.LoRA.R}, {Path: "lora.alpha", Value: s.LoRA.Alpha}, {Path: "lora.target_modules",
			Value: "all-linear"},
		{Path: "dataset.path", Value: s.Dataset.Path}, {Path: "dataset.format", Value: s.Dataset.Format},
		{Path: "dataset.max_length", Value: s.Dataset.MaxLength},
		{Path: "training.epochs", Value: t.Epochs}, {Path: "training.batch_size", Value: t.BatchSize},
		{Path: "training.gradient_accumulation_steps", Value: t.GradientAccumulationSteps},
		{Path: "training.learning_rate", Value: t.LearningRate},
		{Path: "training.warmup_ratio", Value: t.WarmupRatio}, {Path: "training.gradient_checkpointing",
			Value: t.GradientCheckpointing},
		{Path: "training.save_steps", Value: t.SaveSteps}, {Path: "training.save_total_limit", Value: t.SaveTotalLimit},
		{Path: "output_dir", Value: s.OutputDir}, {Path: "device", Value: s.Device},
	}
	if o.goal == goalPairs {
		values = append(values, preferenceValues(s)...)
	}
	values = append(values, ch.headValues(o)...)
	values = append(values, ch.reasoningValues(o)...)
	if len(s.Dataset.Fields) > 0 {
		var fields importer.Map
		for _, name := range slices.Sorted(maps.Keys(s.Dataset.Fields)) {
			fields = append(fields, importer.Pair{Key: name, Value: s.Dataset.Fields[name]})
		}
		values = append(values, config.Commented{Path: "dataset.fields", Value: fields})
	}
	if s.Dataset.AsChat != "" {
		values = append(values, config.Commented{Path: "dataset.as_chat", Value: s.Dataset.AsChat})
	}
	if s.Dataset.System != "" {
		values = append(values, config.Commented{Path: "dataset.system", Value: s.Dataset.System})
	}
	if s.Dataset.ChatTemplate != "" {
		values = append(values, config.Commented{Path: "dataset.chat_template", Value: s.Dataset.ChatTemplate})
	}
	if s.Dataset.ValSplit > 0 {
		values = append(values, config.Commented{Path: "dataset.val_split", Value: s.Dataset.ValSplit},
			config.Commented{Path: "training.eval_steps", Value: t.EvalSteps})
	}
	if s.Dataset.Packing {
		values = append(values, config.Commented{Path: "dataset.packing", Value: true})
	}
	if t.Optimizer != train.Default().Optimizer {
		values = append(values, config.Commented{Path: "training.optimizer", Value: t.Optimizer})
	}
	if s.VRAM != "" {
		values = append(values, config.Commented{Path: "vram", Value: s.VRAM})
	}
	for i := range values {
		if why := ch.why[values[i].Path]; why != "" {
			values[i].Above = []string{why}
		}
	}
	head := []string{fmt.Sprintf("Made by trainer init for %s on %s: %s.", s.BaseModel, ch.plan.Device,
		goalText[o.goal]),
		"trainer train " + words.ShellQuote(o.out) + " runs it, trainer plan " + words.ShellQuote(o.out) +
			" prints the memory, docs/CONFIG.md has every key."}
	for _, line := range ch.tried {
		head = append(head, "does not fit: "+line)
	}
	return config.CommentedYAML(append(head, ""), values, nil)
}

var goalText = map[string]string{"chat": "conversations, of which the answers are trained",
	"instruct": "tasks, of which the answers are trained", goalPairs: "answers that are preferred to others",
	"text": "plain text, of which every token is trained", "tokens": "rows of token ids",
	goalClasses: headGoals[goalClasses].text, goalWords: headGoals[goalWords].text,
	goalVectors: headGoals[goalVectors].text, goalReranking: headGoals[goalReranking].text,
	goalReasoning: "questions, to which answers are sampled and judged"}
