package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/tasks"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// evalOptions holds the flags of eval.
type evalOptions struct {
	configOptions
	adapter         string
	data, split, by string
	workers         int
	json            bool
	tasks           taskOptions
}

func newEval(c *console) *cobra.Command {
	var o evalOptions
	cmd := &cobra.Command{
		Use:   "eval FILE [--adapter DIR] [--task NAME]",
		Short: "Measure the evaluation loss, or the score on tasks",
		Long: `Measure the mean loss (negative log-likelihood) of the trained tokens of the validation rows, or of all rows if the
configuration holds none out; --data and --split choose other rows. With several sources, or with --by, a table has the
loss of each part.

Rows with preferences, labels or targets (training.objective: dpo, kto, reward, classification and their kin) are
measured by that objective: its loss, and numbers such as rewards/accuracies and rewards/margins. An objective with a
reference compares the adapter with training.reference.

With --task the model answers questions, and the share of right answers is measured: gsm8k is built in, a YAML file
describes your own task (docs/EVALUATION.md). Tasks need no configuration: --model or the adapter names the base model.
--compare-base also asks the base model and prints the change with its standard error.`,
		Example: `  trainer eval --config cpu_stories_quick.yaml
  trainer eval run.yaml --adapter runs/first --json
  trainer eval run.yaml --data held_out.jsonl --by topic
  trainer eval run.yaml --split 'test[:200]'
  trainer eval dpo.yaml --adapter runs/dpo --data held_out_pairs.jsonl
  trainer eval --task gsm8k --adapter runs/first --limit 50 --compare-base --answers answers.jsonl`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, c) },
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	f := cmd.Flags()
	pathVar(cmd, &o.adapter, "adapter", "", "adapter `DIR` in PEFT's format; default: the base model alone")
	pathVar(cmd, &o.data, "data", "", "evaluate all rows of this `PATH` or hub data set instead of the configuration's")
	f.StringVar(&o.split, "split", "",
		"evaluate on this `SPLIT` of the data, in the syntax of datasets: test, train[:5%]")
	f.StringVar(&o.by, "by", "", "print the loss for each value of this `FIELD` of the rows, such as topic or "+
		"meta.kind; default: for each source")
	workersVar(cmd, &o.workers)
	o.tasks.register(cmd)
	f.BoolVar(&o.json, "json", false, "print as JSON")
	return cmd
}

func (o *evalOptions) run(cmd *cobra.Command, c *console) error {
	if err := o.tasks.check(cmd, o); err != nil {
		return usage(err)
	}
	if len(o.tasks.names) > 0 {
		return o.ask(cmd, c)
	}
	loaded, err := o.load(c)
	if err != nil {
		return err
	}
	if err := o.choose(&loaded.Spec.Dataset); err != nil {
		return usage(err)
	}
	if err := checkDevice(loaded.Spec); err != nil {
		return err
	}
	if err := checkAdapter(o.adapter); err != nil {
		return err
	}
	env := environment(c, o.workers)
	if err := findBase(cmd.Context(), &loaded, c, env); err != nil {
		return err
	}
	return o.loss(cmd, c, loaded.Spec)
}

// choose replaces the configuration's data by the data of the command line.
func (o *evalOptions) choose(d *dataset.Config) error {
	if o.data == "" && o.split == "" {
		return nil
	}
	path := o.data
	if path == "" {
		if len(d.Sources) > 0 {
			return errors.New("--split: the configuration has dataset.sources, each with its own split: name one " +
				"data set with --data")
		}
		path = d.Path
	}
	d.Path, d.Sources = "", []dataset.Source{{Path: path, Split: o.split, Weight: 1}}
	d.ValPath, d.ValSources, d.ValSplit, d.Streaming = "", nil, 0, false
	return errors.Join(d.Validate()...)
}

// loss evaluates the loss and prints it.
func (o *evalOptions) loss(cmd *cobra.Command, c *console, spec train.Spec) error {
	options := spec.Evaluation(o.adapter)
	options.By = o.by
	report, err := infer.Evaluate(cmd.Context(), options, environment(c, o.workers))
	if o.data != "" && errors.Is(err, fs.ErrNotExist) {
		return usage(fmt.Errorf("--data %s: %w", words.ShellQuote(o.data), err))
	}
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(c.out, report)
	}
	adapter := cmp.Or(report.Adapter, "none")
	if report.Objective != "" {
		return printNumbers(c.out, report)
	}
	_, err = fmt.Fprintf(c.out, "data        %s, %d rows, %d tokens, %d of them trained\nadapter     %s\nloss        "+
		"%.6f\nstd error   %.6f\nperplexity  %.4f\ntime        %.1f s\n",
		plainText(report.Data), report.Rows, report.Tokens, report.TrainedTokens, plainText(adapter), report.Loss,
		report.StdErr, report.Perplexity, report.Duration.Seconds())
	if err != nil || len(report.Groups) == 0 {
		return err
	}
	return printGroups(c.out, report)
}

// printNumbers prints the evaluation of an objective: its loss and the numbers beside it.
func printNumbers(w io.Writer, r infer.EvalReport) error {
	lines := [][2]string{{"data", fmt.Sprintf("%s, %d rows, %d tokens", plainText(r.Data), r.Rows, r.Tokens)},
		{"adapter", plainText(cmp.Or(r.Adapter, "none"))}, {"objective", r.Objective}}
	if r.Reference != "" {
		lines = append(lines, [2]string{"reference", plainText(r.Reference)})
	}
	lines = append(lines, [2]string{"loss", fmt.Sprintf("%.6f", r.Loss)})
	for _, name := range slices.Sorted(maps.Keys(r.Numbers)) {
		lines = append(lines, [2]string{name, fmt.Sprintf("%.6f", r.Numbers[name])})
	}
	lines = append(lines, [2]string{"time", fmt.Sprintf("%.1f s", r.Duration.Seconds())})
	wide := 0
	for _, l := range lines {
		wide = max(wide, len(l[0]))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", wide, l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

func printGroups(w io.Writer, r infer.EvalReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s\trows\ttrained tokens\tloss\tstd error\tperplexity\n", inTable(r.By))
	for _, g := range r.Groups {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.6f\t%.6f\t%.4f\n", inTable(g.Name), g.Rows, g.TrainedTokens, g.Loss,
			g.StdErr, g.Perplexity)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// inTable returns a text as a table cell: one line without control characters.
func inTable(s string) string { return plainText(strings.Join(strings.Fields(s), " ")) }

// taskOptions holds the flags of eval for tasks.
type taskOptions struct {
	names         []string
	model, device string
	limit, shots  int
	compare       bool
	answers       string

	found []*tasks.Task
}

// ofTasks lists the flags that need --task, ofLoss the flags that --task excludes.
var (
	ofTasks = []string{"model", "device", "limit", "few-shot", "compare-base", "answers"}
	ofLoss  = []string{"data", "split", "by"}
)

func (o *taskOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.names, "task", nil, "task to measure: a built-in `NAME` or a YAML file; may be repeated")
	pathVar(cmd, &o.model, "model", "",
		"base model: a `DIR`, hub name, or embedded:NAME; default: that of the configuration or the adapter")
	f.StringVar(&o.device, "device", "auto", "cpu, cuda, or auto, for tasks without a configuration")
	f.IntVar(&o.limit, "limit", 0, "number of questions of each task, from the first; 0 = the task's own limit")
	f.IntVar(&o.shots, "few-shot", 0, "solved examples before each question; default: the task's own number")
	f.BoolVar(&o.compare, "compare-base", false, "also ask the base model, and print how the adapter changed the score")
	pathVar(cmd, &o.answers, "answers", "", "write questions, answers and expected answers to a JSONL `FILE`")
}

// check returns an error for flags that exclude each other, and reads the tasks.
func (o *taskOptions) check(cmd *cobra.Command, all *evalOptions) error {
	given := cmd.Flags().Changed
	if len(o.names) == 0 {
		for _, name := range ofTasks {
			if given(name) {
				return fmt.Errorf("--%s is of tasks: name one with --task", name)
			}
		}
		return nil
	}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, name := range ofLoss {
		if given(name) {
			bad("--%s is of the loss, a task names its own data: leave one of them out", name)
		}
	}
	if all.config == "" && o.model == "" && all.adapter == "" {
		bad("name a model: --model DIR, a configuration, or an adapter that names its base model: --adapter DIR")
	}
	if all.config != "" && (o.model != "" || given("device")) {
		bad("--model and --device are for tasks without a configuration: use --set base_model=... and --set device=...")
	}
	if all.config == "" && (len(all.sets) > 0 || all.vram != "") {
		bad("--set and --vram change a configuration: name one")
	}
	if !slices.Contains(graph.DeviceNames, o.device) {
		bad("--device %s: must be one of %s", o.device, strings.Join(graph.DeviceNames, ", "))
	}
	if o.answers != "" {
		if err := writable(o.answers, "a file of answers", `{"task":`); err != nil {
			bad("--answers: %w", err)
		}
	}
	if o.limit < 0 {
		bad("--limit %d: must be 0 or more", o.limit)
	}
	if o.compare && all.adapter == "" {
		bad("--compare-base compares an adapter with its base model: name it with --adapter DIR")
	}
	for _, name := range o.names {
		t, err := tasks.Find(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if o.limit > 0 {
			t.Limit = o.limit
		}
		if given("few-shot") {
			t.FewShot = o.shots
		}
		if err := t.Check(); err != nil {
			bad("task %s: %w", name, err)
		}
		o.found = append(o.found, t)
	}
	return errors.Join(problems...)
}

// taskReport is the output of --json.
type taskReport struct {
	Model   string         `json:"model"`
	Adapter string         `json:"adapter,omitempty"`
	Tasks   []tasks.Result `json:"tasks"`
	Base    []tasks.Result `json:"base,omitempty"`
	Changes []taskChange   `json:"changes,omitempty"`
}

type taskChange struct {
	Task string `json:"task"`
	tasks.Change
}

// opening returns how to open the model under test.
func (o *evalOptions) opening(cmd *cobra.Command, c *console, env session.Env) (session.Options, error) {
	if o.config != "" {
		loaded, err := o.load(c)
		if err != nil {
			return session.Options{}, err
		}
		if err := checkDevice(loaded.Spec); err != nil {
			return session.Options{}, err
		}
		err = findBase(cmd.Context(), &loaded, c, env)
		return loaded.Spec.Session(), err
	}
	if err := checkDevice(train.Spec{Device: o.tasks.device}); err != nil {
		return session.Options{}, err
	}
	model := o.tasks.model
	err := findModel(cmd.Context(), c, env, &model, o.adapter)
	return session.Options{Model: model, Device: o.tasks.device}, err
}

// ask runs the tasks and prints their scores.
func (o *evalOptions) ask(cmd *cobra.Command, c *console) error {
	if err := checkAdapter(o.adapter); err != nil {
		return err
	}
	env := environment(c, o.workers)
	opening, err := o.opening(cmd, c, env)
	if err != nil {
		return err
	}
	report := taskReport{Model: opening.Model, Adapter: o.adapter}
	if o.tasks.compare {
		if report.Base, err = o.askOne(cmd, c, opening, "", env); err != nil {
			return err
		}
	}
	if report.Tasks, err = o.askOne(cmd, c, opening, o.adapter, env); err != nil {
		return err
	}
	for i, before := range report.Base {
		changes, err := tasks.Compare(before, report.Tasks[i])
		if err != nil {
			return err
		}
		for _, change := range changes {
			report.Changes = append(report.Changes, taskChange{before.Task, change})
		}
	}
	if err := o.tasks.write(c, report); err != nil {
		return err
	}
	if o.json {
		return writeJSON(c.out, report)
	}
	return printTasks(c.out, report)
}

// askOne opens the model, with an adapter unless adapter is empty, and runs all tasks.
func (o *evalOptions) askOne(cmd *cobra.Command, c *console, opening session.Options, adapter string,
	env session.Env) (results []tasks.Result, err error) {
	g, err := infer.NewGenerator(cmd.Context(), opening, adapter, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	p, err := g.PromptFormat()
	if err != nil {
		return nil, usage(err)
	}
	said := map[string]bool{}
	say := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); !said[line] {
			said[line] = true
			c.say("%s", line)
		}
	}
	for _, t := range o.tasks.found {
		if system := trainedSystem(p); t.System == "" && t.Chat != tasks.ChatNever && system != "" {
			own := *t
			own.System, t = system, &own
			say("system: %s, with which %s was trained; a task file of your own may name another", shown(system),
				whose(adapter))
		}
		r, err := tasks.Run(cmd.Context(), g, t, adapter, nil)
		if err != nil {
			return nil, err
		}
		way := wayText
		if r.Chat {
			way = wayChat
		}
		if note := askedOtherwise(p, whose(adapter), way); note != "" {
			say("note: task %s: %s; a task file says it by chat: always or never", t.Name, note)
		}
		results = append(results, r)
	}
	return results, nil
}

// write saves all answers, the base model's first.
func (o *taskOptions) write(c *console, r taskReport) error {
	if o.answers == "" {
		return nil
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	n := 0
	for _, result := range slices.Concat(r.Base, r.Tasks) {
		for _, a := range result.Answers {
			if err := enc.Encode(a); err != nil {
				return fmt.Errorf("write the answers: %w", err)
			}
			n++
		}
	}
	if err := atomicfile.Write(o.answers, lines.Bytes()); err != nil {
		return fmt.Errorf("write the answers: %w", err)
	}
	c.say("%d answers are in %s", n, o.answers)
	return nil
}

func printTasks(w io.Writer, r taskReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "model\t%s\n", inTable(r.Model))
	if r.Adapter != "" {
		fmt.Fprintf(t, "adapter\t%s\n", inTable(r.Adapter))
	}
	fmt.Fprintln(t, "\ntask\tquestions\tfew-shot\tmetric\tvalue\tstd error")
	for _, result := range r.Tasks {
		for _, m := range result.Metrics {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%.4f\t%.4f\n", inTable(result.Task), result.Questions, result.FewShot,
				m.Name, m.Value, m.StdErr)
		}
	}
	if len(r.Changes) > 0 {
		fmt.Fprintln(t, "\nagainst the base model\tmetric\tbase\tadapter\tchange\tstd error\tbetter\tworse")
	}
	for _, ch := range r.Changes {
		fmt.Fprintf(t, "%s\t%s\t%.4f\t%.4f\t%+.4f\t%.4f\t%d\t%d\n", inTable(ch.Task), ch.Name, ch.Before, ch.After,
			ch.Change.Change, ch.StdErr, ch.Better, ch.Worse)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	for _, result := range r.Tasks {
		if result.Cut > 0 {
			fmt.Fprintf(w, "%s: %d of %d answers were ended by max_tokens\n", inTable(result.Task), result.Cut,
				result.Questions)
		}
	}
	return nil
}
