package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// Values of merge's --base.
const (
	baseAuto     = "auto"
	baseTrained  = "trained"
	baseOriginal = "original"
)

// bases explains the values of --base.
const bases = "trained (those of training, such as dequantised NF4), original (the model's own), " +
	"nf4, nf4-double, fp4, fp4-double, int8 (if the adapter's folder does not say), or auto (trained if the folder " +
	"says how)"

// storedAs maps those values of --base that name a storage type. They are for adapters whose folder does not record the
// type over which they were trained.
var storedAs = map[string]quant.Config{
	"nf4": plainScales("nf4"), "nf4-double": quant.DefaultOf("nf4"), "fp4": plainScales("fp4"),
	"fp4-double": quant.DefaultOf("fp4"), "int8": quant.DefaultOf("int8"),
}

func plainScales(name string) quant.Config {
	c := quant.DefaultOf(name)
	c.DoubleQuant = false
	return c
}

type mergeFlags struct {
	adapters    []string
	base, shard string
	check       checkFlags
	asJSON      bool
	workers     int
	export.MergeOptions
}

func newMerge(c *console) *cobra.Command {
	o := &mergeFlags{}
	cmd := &cobra.Command{
		Use:   "merge [--model DIR] --adapter DIR --out DIR",
		Short: "Merge an adapter into its base model",
		Long: `Write a model folder with the adapter merged into the weights, for programs that cannot load adapters.

The report says how much of the update rounding keeps, and how close the written model is to base and adapter, on sample
text and on rows that the run held out. A merge that would lose most of the update is refused. docs/MERGE.md has more.`,
		Example: `  trainer merge --model ./SmolLM2-135M --adapter runs/first --out merged
  trainer merge --model ./SmolLM2-135M --adapter runs/first --out merged --dtype fp32 --shard-size 2GB
  trainer merge --model ./SmolLM2-135M --adapter runs/first --adapter runs/second=0.5 --out both`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, c) },
	}
	pathVar(cmd, &o.Model, "model", "",
		"base model: a `DIR`, hub name, or embedded:NAME; default: the one that the first adapter names")
	f := cmd.Flags()
	f.StringArrayVar(&o.adapters, "adapter", nil, "adapter `DIR` in PEFT's format, or DIR=WEIGHT; may be repeated")
	f.StringVar(&o.Combination, "combination", export.DefaultCombination,
		"how to combine several adapters, in PEFT's terms: cat (sum of the updates) or linear")
	pathVar(cmd, &o.Out, "out", "", "`DIR` to create for the merged model")
	f.StringVar(&o.DType, "dtype", "", "type of the written weights: "+strings.Join(export.DTypes(), ", ")+
		" (linear layers as bitsandbytes stores them); default: each tensor keeps its type")
	f.StringVar(&o.shard, "shard-size", "5GB", "largest file of weights, a `SIZE`")
	f.StringVar(&o.base, "base", baseAuto, "base weights to merge into: "+bases)
	f.BoolVar(&o.AllowLoss, "allow-loss", false, "write the folder even if rounding loses most of the update")
	o.check.register(cmd)
	c.downloadFlag(cmd)
	workersVar(cmd, &o.workers)
	f.BoolVar(&o.asJSON, "json", false, "print as JSON")
	return cmd
}

func (o *mergeFlags) run(cmd *cobra.Command, c *console) error {
	if len(o.adapters) == 0 || o.Out == "" {
		return usage(errors.New("name the adapter and a new folder: --adapter DIR --out DIR; --model DIR where the " +
			"adapter names no model"))
	}
	if err := o.parse(); err != nil {
		return usage(err)
	}
	for _, a := range o.Adapters {
		if err := checkAdapter(a.Dir); err != nil {
			return err
		}
	}
	var notes []string
	var err error
	if o.Trained, o.Original, notes, err = findTrained(o.base, o.Adapters); err != nil {
		return usage(err)
	}
	env := environment(c, o.workers)
	if err := findModel(cmd.Context(), c, env, &o.Model, o.Adapters[0].Dir); err != nil {
		return err
	}
	ctx, end := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // remove partly written files
	defer end()
	o.Own = o.check.ownRows(ctx, env, o.Model, o.Adapters[0].Dir)
	report, err := export.Merge(ctx, o.MergeOptions, env)
	if err != nil {
		return err
	}
	report.Notes = append(notes, report.Notes...)
	if o.asJSON {
		return writeJSON(c.out, report)
	}
	return printMerge(c, report)
}

// parse parses the flags that are not plain values.
func (o *mergeFlags) parse() (err error) {
	if o.DType != "" && !slices.Contains(export.DTypes(), o.DType) {
		return fmt.Errorf("--dtype %q is not one of %s", o.DType, strings.Join(export.DTypes(), ", "))
	}
	if _, ok := adapter.Combinations[o.Combination]; !ok {
		return fmt.Errorf("--combination %q is not one of cat, linear", o.Combination)
	}
	if o.ShardSize, err = session.ParseBytes(o.shard); err != nil || o.ShardSize < 1 {
		return fmt.Errorf("--shard-size %q is no size above 0 such as 5GB or 2GiB", o.shard)
	}
	for _, text := range o.adapters {
		a, err := export.ParseAdapter(filename.ExpandHome(text))
		if err != nil {
			return fmt.Errorf("--adapter %w", err)
		}
		o.Adapters = append(o.Adapters, a)
	}
	o.Check, err = o.check.texts()
	return err
}

// findTrained determines the weights over which adapters were trained. original reports whether --base selects the
// original weights instead.
func findTrained(base string, adapters []export.WeightedAdapter) (trained *quant.Config, original bool,
	notes []string, err error) {
	if c, ok := storedAs[base]; ok {
		return &c, false, nil, nil
	}
	if !slices.Contains([]string{baseAuto, baseTrained, baseOriginal}, base) {
		return nil, false, nil,
			fmt.Errorf("--base %q is not one of auto, trained, original, nf4, nf4-double, fp4, fp4-double, int8", base)
	}
	original = base == baseOriginal
	known := 0
	var silent []string
	for i, a := range adapters {
		c, ok, err := trainedOver(a.Dir)
		switch {
		case err != nil:
			return nil, false, nil, fmt.Errorf("--adapter %s: %w; name what it was trained over: --base original, "+
				"nf4, nf4-double, fp4, fp4-double or int8", a.Dir, err)
		case !ok && base == baseTrained:
			return nil, false, nil, fmt.Errorf("--base trained: %s has no config.yaml that says what the adapter was "+
				"trained over: name it, --base original, nf4, nf4-double, "+
				"fp4, fp4-double or int8", a.Dir)
		case !ok:
			silent = append(silent, a.Dir)
			continue
		}
		if known++; known > 1 && !sameStorage(trained, c) && !original {
			return nil, false, nil,
				fmt.Errorf("%s and %s were trained over differently stored weights: choose one with --base",
					adapters[0].Dir, adapters[i].Dir)
		}
		trained = c
	}
	const remedy = "if that was a 4-bit base, --base nf4-double or nf4 adds %s to what %s trained with"
	switch n := len(silent); {
	case n == 1:
		notes = append(notes, silent[0]+" does not say what its adapter was trained over (it has no config.yaml); "+
			fmt.Sprintf(remedy, "it", "it was"))
	case n > 1:
		notes = append(notes,
			fmt.Sprintf("%s and %s do not say what their adapters were trained over (they have no config.yaml); ",
				strings.Join(silent[:n-1], ", "), silent[n-1])+fmt.Sprintf(remedy, "them", "they were"))
	}
	return trained, original, notes, nil
}

func sameStorage(a, b *quant.Config) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// runConfig reads the configuration of a run from its folder, or from the folder above a checkpoint. ok is false if
// there is none.
func runConfig(dir string) (run config.Loaded, folder string, ok bool, err error) {
	dirs := []string{dir}
	if abs, err := filepath.Abs(dir); err == nil && strings.HasPrefix(filepath.Base(abs), "checkpoint-") {
		dirs = append(dirs, filepath.Dir(abs))
	}
	for _, d := range dirs {
		path := filepath.Join(d, "config.yaml")
		text, err := regular.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return run, d, false, err
		}
		run, problems := config.Merge(path, text, nil, nil)
		if len(problems) > 0 {
			return run, d, false, &config.Invalid{Name: path, Problems: problems[:1]}
		}
		return run, d, true, nil
	}
	return run, "", false, nil
}

// trainedOver reads, from the configuration in a run's folder or above a checkpoint, how the run stored the base
// weights; nil = unquantised. ok is false if there is no configuration.
func trainedOver(dir string) (c *quant.Config, ok bool, err error) {
	run, _, ok, err := runConfig(dir)
	if bad := (*config.Invalid)(nil); errors.As(err, &bad) {
		return nil, false, fmt.Errorf("what it was trained over can't be read: %w", err)
	}
	if err != nil || !ok {
		return nil, false, err
	}
	if _, quantised := adapter.Quantised[run.Spec.Adapter]; quantised {
		return run.Spec.Quantization, true, nil
	}
	return nil, true, nil
}

// printMerge prints a merge's report.
func printMerge(c *console, r export.MergeReport) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s  %s\n", labelWidth, label, fmt.Sprintf(format, args...))
	}
	with := "the adapter"
	if n := len(r.Adapters); n > 1 {
		with = fmt.Sprintf("%d adapters", n)
	}
	fmt.Fprintf(&b, "%s: %s with %s in %d layers, %s\n", r.Output, r.Model, with, r.Layers,
		session.FormatBytes(r.Bytes))
	base := r.Base
	if strings.HasPrefix(base, "trained: ") {
		base += " (--base original adds the adapter to the model's own weights; docs/MERGE.md compares them)"
	}
	line("base", "%s", base)
	line("written", "%s, %d file%s, read back and compared", r.DType, r.Files, plural(r.Files))
	if h := r.Head; h == nil {
		line("answers", "%s", r.Answers)
	} else {
		line("head", "%s%s", h.Class, headText(*h))
	}
	line("rounding",
		"%s, rounding noise %s of the update; for %s of the adapted weights the update is below half a rounding step",
		kept(r.Rounding.Kept), percent(r.Rounding.Noise), percent(r.Rounding.BelowHalfStep))
	for _, l := range r.Rounding.Worst(3) {
		if l.Kept < 0.999 {
			line("", "least kept: %s %s; its update is %.3g, half a rounding step %.3g (root mean squares)", l.Layer,
				percent(l.Kept), l.Delta, l.HalfStep)
		}
	}
	for _, l := range driftLines(r.Drift) {
		line(l[0], "%s", l[1])
	}
	for _, n := range r.Notes {
		line("note", "%s", n)
	}
	_, err := c.out.Write([]byte(plainText(b.String())))
	return err
}

// headText describes the head of a merged model, and how far it is from base and adapter.
func headText(h export.HeadReport) (text string) {
	what := "vectors"
	if h.Labels > 0 {
		what = "scores"
		text = fmt.Sprintf(", %d label%s", h.Labels, plural(h.Labels))
	}
	if h.Texts > 0 {
		text += fmt.Sprintf("; on %d texts, merged against base with adapter, %s differ by at most %.3g", h.Texts, what,
			h.MaxDifference)
	}
	return text
}

// driftLines returns labelled lines that describe how far the written model is from base and adapter, or nothing if
// they were not compared.
func driftLines(d *export.Drift) (lines [][2]string) {
	if d == nil {
		return nil
	}
	add := func(label, format string, args ...any) {
		lines = append(lines, [2]string{label, fmt.Sprintf(format, args...)})
	}
	if d.Tokens > 0 {
		add("drift", "on %d tokens, merged against base with adapter: logits differ by at most %.3g, mean KL "+
			"divergence %.3g (base with adapter against base: %.3g)", d.Tokens, d.MaxLogit, d.MeanKL, d.AdapterKL)
		add("loss", "merged %.6f, base with adapter %.6f, base alone %.6f", d.MergedLoss, d.Loss, d.BaseLoss)
	}
	if f := d.Trained; f != nil && d.Tokens > 0 {
		add("trained", "training ran over other base weights: with those the loss is %.6f, logits differ by at most "+
			"%.3g, mean KL divergence is %.3g; --base trained merges into those", f.Loss, f.MaxLogit, f.MeanKL)
	}
	if o := d.Own; o != nil {
		add("own rows", "%d of %s, %d trained tokens: loss merged %.6f, base with adapter %.6f, base alone %.6f",
			o.Rows, o.Data, o.Tokens, o.MergedLoss, o.Loss, o.BaseLoss)
		add("", "greedy token as of base with adapter: merged %s, base alone %s", percent(o.Agree),
			percent(o.BaseAgree))
	}
	return lines
}

// percent formats a share with as many decimals as distinguish it from 0% and 100%.
func percent(share float64) string {
	for digits := 1; digits < 4; digits++ {
		text := strconv.FormatFloat(100*share, 'f', digits, 64)
		rounded := strings.Trim(text, "0.-") == "" && share != 0 || text == strconv.FormatFloat(100, 'f', digits, 64) &&
			share < 1
		if !rounded {
			return strings.TrimSuffix(text, ".0") + "%"
		}
	}
	return fmt.Sprintf("%.3g%%", 100*share)
}

// kept formats the part of an update that survives rounding.
func kept(share float64) string { return percent(share) + " of the update kept" }

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
