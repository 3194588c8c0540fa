package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// predictOptions holds the flags of predict.
type predictOptions struct {
	model, adapter, device, quantization, pooling string
	data, split, out                              string
	fields                                        map[string]string
	texts, keep                                   []string
	maxLen, workers                               int
	scores, json                                  bool

	rows dataset.Config
}

func newPredict(c *console) *cobra.Command {
	var o predictOptions
	cmd := &cobra.Command{
		Use:   "predict --adapter DIR --data PATH [--out FILE]",
		Short: "Labels, scores or embeddings for the rows of a file",
		Long: `Compute what a classifier, a reranker, a reward model or an embedding model (docs/TASKS.md) gives for the rows of a
file: a line of JSON for each row, in the order of the rows. The rows have the keys of training rows and need no label.
--model names a merged model, or with --pooling one that was not trained for embeddings.

With --out the same command continues a file that was interrupted: it computes the first and the last line again and
refuses to continue if they differ.`,
		Example: `  trainer predict --adapter runs/reviews --text "I liked it." --text "Never again."
  trainer predict --adapter runs/reviews --data reviews.csv --fields text=Comment --keep id --out labels.jsonl
  trainer predict --adapter runs/reranker --data pairs.jsonl --fields text=query,text_pair=document
  trainer predict --model ./vectors --data documents.jsonl --out vectors.jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	pathVar(cmd, &o.model, "model", "",
		"base model, or a merged model: a `DIR`, hub name, or embedded:NAME; default: the one that the adapter names")
	pathVar(cmd, &o.adapter, "adapter", "", "adapter `DIR` in PEFT's format")
	f.StringVar(&o.pooling, "pooling", "", "embeddings of the base model's hidden states, though it was not trained "+
		"for them: `HOW`, mean of the tokens or last token")
	pathVar(cmd, &o.data, "data", "", "rows: a `PATH` of a file, folder or pattern, or a data set of the hub")
	f.StringVar(&o.split, "split", "", "`SPLIT` of the data, in the syntax of datasets: test, train[:5%]")
	f.StringToStringVar(&o.fields, "fields", nil,
		"keys of the rows that hold text, text_pair, tokens or input_ids: `FIELD=KEY,...`")
	f.StringArrayVar(&o.texts, "text", nil, "a `TEXT` in place of rows of --data; may be repeated")
	f.StringSliceVar(&o.keep, "keep", nil, "`KEYS` of the rows to copy into the lines, under columns")
	pathVar(cmd, &o.out, "out", "o", "JSON Lines `FILE` to write or to continue; default: standard output")
	f.BoolVar(&o.scores, "raw-scores", false, "scores of the head as they are, in place of probabilities")
	f.IntVar(&o.maxLen, "max-length", 0, fmt.Sprintf(
		"most tokens of a row, whose end is cut; 0 = the model's context, at most %d, or less if memory is short",
		infer.DefaultMaxLen))
	f.StringVar(&o.device, "device", "auto", "cpu, cuda, or auto (the GPU if there is one)")
	quantizationVar(cmd, &o.quantization)
	c.downloadFlag(cmd)
	workersVar(cmd, &o.workers)
	f.BoolVar(&o.json, "json", false, "print the counts of rows as JSON, at the end")
	return cmd
}

// check returns an error for bad flags before any work starts.
func (o *predictOptions) check(cmd *cobra.Command) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.model == "" && o.adapter == "" {
		bad("name a model: --adapter DIR, or a merged model: --model DIR")
	}
	switch {
	case o.data == "" && o.texts == nil:
		bad("name rows: --data PATH, or give a text: --text TEXT")
	case o.data != "" && o.texts != nil:
		bad("--data and --text: give one of them")
	case o.texts != nil && (o.split != "" || o.fields != nil || o.keep != nil):
		bad("--split, --fields and --keep are for rows: name them with --data")
	}
	for _, text := range o.texts {
		if err := isText("--text", text); err != nil {
			problems = append(problems, err)
		}
	}
	if slices.Contains(o.keep, "") {
		bad("--keep: a key is empty")
	}
	if o.pooling != "" && o.pooling != poolingMean && o.pooling != poolingLast {
		bad("--pooling %s: must be mean or last", words.ShellQuote(o.pooling))
	}
	if o.pooling != "" && o.adapter != "" {
		bad("--pooling is for a base model alone: the folder of an adapter says how its vectors are made")
	}
	if o.maxLen < 0 {
		bad("--max-length %d: must be 0 or more", o.maxLen)
	}
	if !slices.Contains(graph.DeviceNames, o.device) {
		bad("--device %s: must be one of %s", o.device, strings.Join(graph.DeviceNames, ", "))
	}
	if o.quantization != "" && quant.Schemes[o.quantization] == nil {
		bad("--quantization %s: must be one of %s", o.quantization, strings.Join(quant.Names(), ", "))
	}
	if o.out != "" {
		if err := writable(o.out, "a file of predictions", `{"row":0`); err != nil {
			bad("--out: %w", err)
		}
	} else if o.json {
		bad("--json prints on standard output, where the predictions are: name their file with --out")
	}
	if problems == nil && o.data != "" {
		o.rows = dataset.Default()
		of := evalOptions{data: o.data, split: o.split}
		if err := of.choose(&o.rows); err != nil {
			problems = append(problems, err)
		}
		o.rows.Fields = o.fields
	}
	if err := errors.Join(problems...); err != nil {
		return usage(err)
	}
	if err := checkDevice(train.Spec{Device: o.device}); err != nil {
		return err
	}
	return checkAdapter(o.adapter)
}

// Values of --pooling.
const (
	poolingMean = "mean"
	poolingLast = "last"
)

func (o *predictOptions) run(ctx context.Context, c *console) (err error) {
	options := infer.PredictRowsOptions{Data: o.rows, Texts: o.texts, Keep: o.keep, Plain: o.scores,
		Write: c.writePredictions, Progress: c.rowCount()}
	if o.out != "" {
		file, opened := openPredictions(o.out)
		if opened != nil {
			return opened
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if options.Write, options.Written = file.write, file.written; file.written.Count > 0 {
			c.say("%s has %s, behind which the others follow", o.out, words.Counted(file.written.Count, "row"))
		}
	}
	p, err := o.predictor(ctx, c)
	if errors.Is(err, infer.ErrWritesText) {
		return usage(err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if o.data != "" {
		options.Keys = func(file string, keys []string) {
			c.say("%s: texts are read from %s", file, strings.Join(keys, " and "))
		}
	}
	report, err := infer.PredictRows(ctx, p, options)
	switch {
	case o.data != "" && errors.Is(err, fs.ErrNotExist):
		return usage(fmt.Errorf("--data %s: %w", words.ShellQuote(o.data), err))
	case errors.Is(err, infer.ErrOtherLines):
		return usage(fmt.Errorf("--out %s: %w: name another file, or remove it", words.ShellQuote(o.out), err))
	case err != nil:
		return err
	}
	return o.print(c, report, p.MaxLen())
}

// predictor opens the model.
func (o *predictOptions) predictor(ctx context.Context, c *console) (*infer.Predictor, error) {
	env := environment(c, o.workers)
	if err := findModel(ctx, c, env, &o.model, o.adapter); err != nil {
		return nil, err
	}
	so := session.Options{Model: o.model, Device: o.device}
	if o.quantization != "" {
		scheme := quant.DefaultOf(o.quantization)
		so.Quantization = &scheme
	}
	po := infer.PredictorOptions{Name: o.model, MaxLen: o.maxLen}
	if o.adapter != "" {
		po.Adapters = []infer.NamedAdapter{{Name: o.adapter, Dir: o.adapter}}
	}
	if o.pooling != "" {
		po.Pooling = &adapter.Pooling{Last: o.pooling == poolingLast, Normalise: true}
	}
	return infer.NewPredictor(ctx, so, po, env)
}

// predictionFile is the file of --out.
type predictionFile struct {
	path    string
	written infer.Lines // complete lines of an earlier call
	at      int64       // bytes of complete lines
	f       *os.File    // nil until the first line is written
}

// openPredictions finds the complete lines of a file; there are none if it does not exist.
func openPredictions(path string) (*predictionFile, error) {
	p := &predictionFile{path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	in := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return p, nil // what follows the last line end was cut off
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		p.at += int64(len(line))
		p.written.Count, p.written.Last = p.written.Count+1, bytes.TrimSuffix(line, []byte("\n"))
		if p.written.Count == 1 {
			p.written.First = p.written.Last
		}
	}
}

// write appends lines behind the complete ones. The first call removes a line that was cut off.
func (p *predictionFile) write(lines []byte) (err error) {
	if p.f == nil {
		if p.f, err = atomicfile.Open(p.path, 0o644); err == nil {
			err = p.f.Truncate(p.at)
		}
	}
	if err == nil {
		_, err = p.f.WriteAt(lines, p.at)
	}
	if err = atomicfile.Room(err, p.path, int64(len(lines))); err != nil {
		return fmt.Errorf("write the predictions: %w", err)
	}
	p.at += int64(len(lines))
	return nil
}

// Close closes the file if lines were written.
func (p *predictionFile) Close() error {
	if p.f == nil {
		return nil
	}
	return p.f.Close()
}

// writePredictions writes lines to standard output. On a terminal control characters are escaped.
func (c *console) writePredictions(lines []byte) error {
	out := c.out
	if !isTerminal(out) {
		out = raw(out)
	}
	if _, err := out.Write(lines); err != nil {
		return fmt.Errorf("write the predictions: %w", err)
	}
	return nil
}

// print says how many rows there were. The predictions have standard output unless --out names a file.
func (o *predictOptions) print(c *console, r infer.RowsReport, maxLen int) error {
	if r.Cut > 0 {
		c.say("note: %s of more than %d tokens lost %s tokens at their ends (--max-length)",
			words.Counted(r.Cut, "row"), maxLen, words.Count(int(r.Lost)))
	}
	if r.Skipped > 0 {
		c.say("note: %s had no text: their lines have skipped", words.Counted(r.Skipped, "row"))
	}
	if o.json {
		return writeJSON(c.out, r)
	}
	if o.out == "" {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "wrote %s: %s, %d of them new\n", plainText(o.out), words.Counted(r.Rows, "row"),
		r.Rows-r.Found)
	return err
}

// rowCount returns a function that shows in one line of a terminal how many rows are done, or nil if err is not a
// terminal.
func (c *console) rowCount() func(rows int) {
	if !mayColour(c.err) {
		return nil
	}
	return func(rows int) { fmt.Fprintf(raw(c.err), "\r%d rows\x1b[K\r", rows) }
}
