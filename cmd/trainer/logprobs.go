package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset/logprobs"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// logprobsOptions holds the flags of logprobs.
type logprobsOptions struct {
	configOptions
	model, adapter, data, out string
	quantization              string
	topK, workers             int
	temperature               float64
	json                      bool
}

func newLogprobs(c *console) *cobra.Command {
	var o logprobsOptions
	cmd := &cobra.Command{
		Use:   "logprobs FILE --model TEACHER --out DIR",
		Short: "Write a teacher's log-probabilities for distillation",
		Long: `Write a teacher's likeliest tokens and their log-probabilities at every trained token of a data set, for
knowledge distillation (training.objective: distill).

FILE is the student's configuration: its dataset section decides the rows, and its model must have the teacher's tokens.
--data names a data set in place of FILE's; with --model and --data no FILE is needed. The folder is written shard by
shard: the same command continues a run that was interrupted, and writes the same bytes.`,
		Example: `  trainer logprobs run.yaml --model Qwen/Qwen2.5-7B-Instruct --quantization nf4 --out teacher
  trainer logprobs run.yaml --adapter runs/large --top-k 64 --out teacher
  trainer logprobs --model embedded:stories260K --data rows.jsonl --out teacher`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, c) },
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	f := cmd.Flags()
	pathVar(cmd, &o.model, "model", "",
		"teacher: a `DIR`, hub name, or embedded:NAME; default: the configuration's base model")
	pathVar(cmd, &o.adapter, "adapter", "", "teacher's adapter `DIR` in PEFT's format; default: the model alone")
	pathVar(cmd, &o.data, "data", "", "rows of this `PATH` or hub data set instead of the configuration's")
	pathVar(cmd, &o.out, "out", "o", "`DIR` to write")
	f.IntVar(&o.topK, "top-k", 32, fmt.Sprintf("most likely tokens of each place, 1 to %d", logprobs.MaxTopK))
	f.Float64Var(&o.temperature, "temperature", 1,
		"divisor of the teacher's logits; distill.temperature must be the same")
	quantizationVar(cmd, &o.quantization)
	workersVar(cmd, &o.workers)
	f.BoolVar(&o.json, "json", false, "print as JSON")
	return cmd
}

func (o *logprobsOptions) run(cmd *cobra.Command, c *console) error {
	spec, err := o.spec(c)
	if err != nil {
		return err
	}
	if err := checkDevice(spec); err != nil {
		return err
	}
	if err := checkAdapter(o.adapter); err != nil {
		return err
	}
	options := infer.LogprobsOptions{
		Options:    session.Options{Model: o.model, Device: spec.Device, Precision: spec.Training.Numbers()},
		AdapterDir: o.adapter, Data: spec.Dataset, Seed: spec.Seed, BatchSize: spec.Training.BatchSize, TopK: o.topK,
		Temperature: o.temperature, Out: o.out, Progress: c.rowsDone(),
	}
	if o.quantization != "" {
		scheme := quant.DefaultOf(o.quantization)
		options.Quantization = &scheme
	}
	env := environment(c, o.workers)
	if err := checkModel(cmd.Context(), o.model, env); err != nil {
		return err
	}
	report, err := infer.WriteLogprobs(cmd.Context(), options, env)
	if o.data != "" && errors.Is(err, fs.ErrNotExist) {
		return usage(fmt.Errorf("--data %s: %w", words.ShellQuote(o.data), err))
	}
	if errors.Is(err, logprobs.ErrOtherFiles) {
		return usage(fmt.Errorf("--out: %w", err))
	}
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(c.out, report)
	}
	_, err = fmt.Fprintf(c.out, "wrote %s: %d tokens of %d rows, %d log-probabilities each, in %d shard%s\n",
		plainText(report.Out), report.Tokens, report.Rows, report.TopK, report.Shards, plural(report.Shards))
	return err
}

// spec returns the configuration whose rows are read, and sets the teacher where no flag names one.
func (o *logprobsOptions) spec(c *console) (train.Spec, error) {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.out == "" {
		bad("--out: name the folder to write")
	}
	if o.topK < 1 || o.topK > logprobs.MaxTopK {
		bad("--top-k %d: want 1 to %d", o.topK, logprobs.MaxTopK)
	}
	if !(o.temperature > 0 && o.temperature <= infer.MaxTemperature) {
		bad("--temperature %v: want a number above 0, at most %d", o.temperature, infer.MaxTemperature)
	}
	if o.quantization != "" && !slices.Contains(quant.Names(), o.quantization) {
		bad("--quantization %s: must be one of %s", o.quantization, strings.Join(quant.Names(), ", "))
	}
	alone := o.config == "" && o.model != "" && o.data != ""
	if o.config == "" && !alone {
		bad("name the student's configuration, or a teacher and a data set: --model DIR --data PATH")
	}
	if o.config == "" && (len(o.sets) > 0 || o.vram != "") {
		bad("--set and --vram change a configuration: name one")
	}
	if problems != nil {
		return train.Spec{}, usage(errors.Join(problems...))
	}
	spec := train.DefaultSpec()
	if !alone {
		loaded, err := o.load(c)
		if err != nil {
			return train.Spec{}, err
		}
		spec = loaded.Spec
	}
	if o.data != "" {
		rows := evalOptions{data: o.data}
		if err := rows.choose(&spec.Dataset); err != nil {
			return train.Spec{}, usage(err)
		}
	}
	if o.model == "" {
		o.model = spec.BaseModel
	}
	return spec, nil
}

// rowsDone returns a function that shows how many rows are computed, in one line of a terminal that is cleared at the
// end, or nil if err is not a terminal.
func (c *console) rowsDone() func(done, of int) {
	if !mayColour(c.err) {
		return nil
	}
	return func(done, of int) {
		if done == of {
			fmt.Fprint(raw(c.err), "\r\x1b[K")
			return
		}
		fmt.Fprintf(raw(c.err), "\r%d of %d rows\x1b[K", done, of)
	}
}
