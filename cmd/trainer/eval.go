package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/train"
)

// evalOptions are the flags of eval.
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
		Short: "Measure the loss of a model, with or without adapter, or how it answers the questions of tasks",
		Long: `Measure the mean negative log-likelihood over the trained tokens of the validation rows, or of all rows where the
configuration holds none out; with --data or --split, of those rows. Of several sources, or by a field of the rows, a
table has the loss of each.

With --task the model answers questions, and the part of them that it answers right is measured: gsm8k is built in, a
YAML file describes a task of your own (docs/EVALUATION.md). No configuration is needed then: --model or the adapter
names the base model. --compare-base asks the base model too and tells the change, with its standard error.`,
		Example: `  trainer eval --config cpu_stories_quick.yaml
  trainer eval run.yaml --adapter runs/first --json
  trainer eval run.yaml --data held_out.jsonl --by topic
  trainer eval run.yaml --split 'test[:200]'
  trainer eval --task gsm8k --adapter runs/first --limit 50 --compare-base --answers answers.jsonl`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, c) },
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	f := cmd.Flags()
	pathVar(cmd, &o.adapter, "adapter", "", "adapter `DIR` in PEFT's format; none = the base model alone")
	pathVar(cmd, &o.data, "data", "", "evaluate on all rows of this `PATH` or hub data set in place of the configuration's data")
	f.StringVar(&o.split, "split", "", "evaluate on this `SPLIT` of the data, as datasets writes it: test, train[:5%]")
	f.StringVar(&o.by, "by", "", "tell losses apart by this `FIELD` of the rows, such as topic or meta.kind; left out, by source")
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

// choose takes the data of the command line.
func (o *evalOptions) choose(d *dataset.Config) error {
	if o.data == "" && o.split == "" {
		return nil
	}
	path := o.data
	if path == "" {
		if len(d.Sources) > 0 {
			return errors.New("--split: the configuration has dataset.sources, each with its own split: name one data set with --data")
		}
		path = d.Path
	}
	d.Path, d.Sources = "", []dataset.Source{{Path: path, Split: o.split, Weight: 1}}
	d.ValPath, d.ValSources, d.ValSplit, d.Streaming = "", nil, 0, false
	return errors.Join(d.Validate()...)
}

// loss evaluates and prints.
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
	adapter := report.Adapter
	if adapter == "" {
		adapter = "none"
	}
	_, err = fmt.Fprintf(c.out, "data        %s, %d rows, %d tokens, %d of them trained\nadapter     %s\nloss        %.6f\nstd error   %.6f\nperplexity  %.4f\ntime        %.1f s\n",
		plainText(report.Data), report.Rows, report.Tokens, report.TrainedTokens, plainText(adapter), report.Loss, report.StdErr, report.Perplexity, report.Duration.Seconds())
	if err != nil || len(report.Groups) == 0 {
		return err
	}
	return printGroups(c.out, report)
}

func printGroups(w io.Writer, r infer.EvalReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s\trows\ttrained tokens\tloss\tstd error\tperplexity\n", inTable(r.By))
	for _, g := range r.Groups {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.6f\t%.6f\t%.4f\n", inTable(g.Name), g.Rows, g.TrainedTokens, g.Loss, g.StdErr, g.Perplexity)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// inTable is a text as a table shows it.
func inTable(s string) string { return plainText(strings.Join(strings.Fields(s), " ")) }
