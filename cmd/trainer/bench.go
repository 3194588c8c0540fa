package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/bench"
	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// benchOptions holds the flags of bench.
type benchOptions struct {
	bench.Options
	config           configOptions
	targets          []string
	parameters       []string
	dense            bool
	chip             string
	workers          int
	json             bool
	byType, byLayer  bool
	trace, compare   string
	otherwise, fails bool
	decode           bool
	slots            []int
}

// ofShapes lists the flags that describe the work of --shape; a configuration sets the same by its keys.
var ofShapes = []string{"batch", "length", "r", "targets", "target-parameters", "dense", "precision", "frozen-gemm",
	"dequantised", "decoded", "checkpointing", "base-sharding", "context-parallel", "gpu"}

func newBench(c *console) *cobra.Command {
	o := &benchOptions{Options: bench.Options{LoRA: adapter.Default()}}
	cmd := &cobra.Command{
		Use:   "bench [FILE.yaml | --shape NAME]",
		Short: "Time training steps and every operation in them",
		Long: `Time training steps of a configuration (its model, rows and plan; nothing is written to its output folder), or of a
model's shape on random weights. bench prints the step time (median, fastest, slowest), the parts of a step, the
memory, and for each operation its calls, time, bytes, floating-point operations and the percentage of the ceiling: the
time that its bytes would take at the rate of a copy, or its operations at the rate of a dense GEMM, both measured in
the same run. Operations are timed one by one, so operations that a GPU overlaps add up to more than a step; more than
100% means data in caches. --trace writes a step as a timeline for ui.perfetto.dev.

--decode times generation: for each number of --slots, the tokens per second beside the time that reading weights and
caches once would take.

--compare judges each time against an earlier report (written by --json) and refuses reports of other work or another
device. --vram with --checkpointing auto takes the fastest memory layout that fits. --gpu plans for another GPU and runs
nothing.`,
		Example: `  trainer bench cpu_stories_quick.yaml
  trainer bench --config run.yaml --by-layer --trace step.json
  trainer bench --config run.yaml --json > new.json
  trainer bench --config run.yaml --compare old.json --fail-on-regression
  trainer bench --shape llama-2-7b --length 2048 --batch 4 --targets all-linear --device cuda --json
  trainer bench --shape tinyllama-1.1b --decode --slots 1,8 --length 512 --dense --device cuda
  trainer bench --shape qwen3-8b --length 2048 --batch 4 --targets all-linear --checkpointing auto --vram 40GiB --gpu h200`,
		Args: o.config.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(cmd), o.checkDecode(cmd)); err != nil {
				return err
			}
			if o.decode {
				return o.runDecode(cmd.Context(), c)
			}
			return o.run(cmd.Context(), c, cmd.Flags().Changed("device"))
		},
	}
	o.config.register(cmd)
	o.config.devicesFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Shape, "shape", "", strings.Join(bench.Shapes(), ", "))
	f.IntVar(&o.Batch, "batch", 1, "rows per step")
	f.IntVar(&o.Length, "length", 512, "tokens per row")
	f.IntVar(&o.LoRA.R, "r", o.LoRA.R, "rank")
	f.StringSliceVar(&o.targets, "targets", o.LoRA.TargetModules, "modules to adapt, or all-linear")
	f.StringSliceVar(&o.parameters, "target-parameters", nil,
		"parameters to adapt besides --targets, as in lora.target_parameters")
	f.BoolVar(&o.dense, "dense", false, "keep the base weights unquantised")
	f.BoolVar(&o.decode, "decode", false,
		"time generation instead of training: one token for each of --slots sequences of --length tokens")
	f.IntSliceVar(&o.slots, "slots", []int{1, 2, 4, 8, 16, 32, 64},
		"with --decode: sequences at the same time, a line each")
	f.IntVar(&o.Warmup, "warmup", 5, "steps before timing starts")
	f.IntVar(&o.Steps, "steps", 10, "timed steps")
	f.StringVar(&o.Device, "device", "auto", "cpu, cuda or auto; with a configuration short for --set device=")
	f.StringVar(&o.Precision, "precision", "auto", "bf16, fp16, tf32, fp32, or auto (what suits the device)")
	f.StringVar(&o.FrozenGEMM, "frozen-gemm", "bf16", "bf16, or fp8: 8-bit floats in large frozen GEMMs")
	f.BoolVar(&o.Dequantised, "dequantised", false, "keep quantised weights dequantised")
	f.BoolVar(&o.Dequantised, "decoded", false, "the old name of --dequantised")
	if err := f.MarkHidden("decoded"); err != nil {
		panic(err) // the flag is defined one line above
	}
	f.StringVar(&o.Checkpointing, "checkpointing", "none",
		"none, selective, full, offload, or auto (the fastest that fits)")
	f.StringVar(&o.BaseSharding, "base-sharding", "auto",
		"auto, never or always: shard the base model over several devices")
	f.IntVar(&o.Context, "context-parallel", 1, "number of devices that share each row's tokens")
	gpuVar(cmd, &o.chip, " and run nothing")
	f.BoolVar(&o.byType, "by-type", false, "group operations by the type of their result")
	f.BoolVar(&o.byLayer, "by-layer", false, "group operations by layer, forward and backward")
	f.BoolVar(&o.StepsAlone, "steps-alone", false, "time whole steps only, without operations, parts and ceilings")
	pathVar(cmd, &o.trace, "trace", "", "write a timeline of one step (Trace Event JSON) to `FILE`")
	pathVar(cmd, &o.compare, "compare", "", "compare with an earlier report, a `FILE` that --json printed")
	f.BoolVar(&o.otherwise, "compare-anyway", false, "compare even if work or device differ")
	f.BoolVar(&o.fails, "fail-on-regression", false,
		"with --compare: exit with code 1 if the step is slower beyond the spread of both")
	f.BoolVar(&o.json, "json", false, "print as JSON")
	workersVar(cmd, &o.workers)
	c.downloadFlag(cmd)
	return cmd
}

// check returns an error for flags that exclude each other.
func (o *benchOptions) check(cmd *cobra.Command) error {
	switch f := cmd.Flags(); {
	case o.Shape == "" && o.config.config == "":
		return usage(
			errors.New("bench times a configuration (trainer bench FILE.yaml) or a shape (--shape NAME): name one"))
	case o.Shape != "" && o.config.config != "":
		return usage(errors.New("bench takes a configuration or --shape, not both"))
	case o.Steps < 1 || o.Warmup < 0:
		return usage(fmt.Errorf("--steps %d --warmup %d: at least one step, and no less than 0 before it",
			o.Steps, o.Warmup))
	case o.Context < 1:
		return usage(fmt.Errorf("--context-parallel %d: at least one device", o.Context))
	case o.StepsAlone && (o.trace != "" || o.byType || o.byLayer):
		return usage(errors.New("--steps-alone leaves out the calls that --trace, --by-type and --by-layer show"))
	case o.chip != "" && (o.trace != "" || o.compare != ""):
		return usage(errors.New("--gpu runs nothing that --trace or --compare could show"))
	case o.chip == "" && !slices.Contains(graph.DeviceNames, o.Device):
		return usage(fmt.Errorf("--device %s: must be one of %s", o.Device, strings.Join(graph.DeviceNames, ", ")))
	case o.compare == "" && (o.fails || o.otherwise):
		return usage(errors.New("--fail-on-regression and --compare-anyway go with --compare FILE"))
	case o.Shape != "" && len(o.config.sets) > 0:
		return usage(errors.New("--set changes a configuration; a shape has flags: trainer bench --help"))
	case o.Shape == "":
		for _, name := range ofShapes {
			if f.Changed(name) {
				return usage(
					fmt.Errorf("--%s is of --shape; a configuration says it by itself, or --set KEY=VALUE does", name))
			}
		}
	}
	return nil
}

func (o *benchOptions) run(ctx context.Context, c *console, device bool) error {
	var old bench.Report
	if o.compare != "" {
		var err error
		if old, err = readReport(o.compare); err != nil {
			return usage(fmt.Errorf("--compare %s: %w", words.ShellQuote(o.compare), err))
		}
	}
	if o.trace != "" {
		if err := writable(o.trace, "a trace", `"otherData":`); err != nil {
			return usage(fmt.Errorf("--trace: %w", err))
		}
		o.Trace = o.writeTrace
	}
	r, err := o.measure(ctx, c, device)
	if err != nil {
		return err
	}
	if o.compare == "" {
		if o.json {
			return writeJSON(c.out, r)
		}
		o.print(c.out, r)
		return nil
	}
	return o.judge(c, old, r)
}

func (o *benchOptions) measure(ctx context.Context, c *console, device bool) (bench.Report, error) {
	if o.Shape == "" {
		return o.measureConfig(ctx, c, device)
	}
	o.LoRA.TargetModules, o.LoRA.TargetParameters, o.VRAM, o.Devices = o.targets, append([]string{}, o.parameters...),
		o.config.vram, deviceList(o.config.device)
	if err := o.Check(); err != nil {
		return bench.Report{}, usage(err)
	}
	if !o.dense {
		q := quant.Default()
		o.Quantization = &q
	}
	if o.chip != "" {
		of, err := graph.FindChip(o.chip)
		if err != nil {
			return bench.Report{}, usage(fmt.Errorf("--gpu: %w", err))
		}
		o.Chip = &of
	}
	return bench.Run(ctx, o.Options, environment(c, o.workers))
}

func (o *benchOptions) measureConfig(ctx context.Context, c *console, device bool) (bench.Report, error) {
	if device {
		o.config.sets = append(o.config.sets, "device="+o.Device)
	}
	loaded, err := o.config.load(c)
	if err != nil {
		return bench.Report{}, err
	}
	if err := checkDevice(loaded.Spec); err != nil {
		return bench.Report{}, err
	}
	env := train.Env{Env: environment(c, o.workers)}
	env.WithoutWeights = true
	if err := findBase(ctx, &loaded, c, env.Env); err != nil {
		return bench.Report{}, err
	}
	r, err := bench.RunConfig(ctx, loaded.Spec, o.Measure, env,
		string(config.Render(config.WithoutSecrets(workOf(loaded.Spec)))))
	r.Config = o.config.config
	return r, err
}

// workOf returns a configuration without the keys that do not change a step's work.
func workOf(s train.Spec) train.Spec {
	s.OutputDir, s.Expect, s.Device = "", train.Expect{}, ""
	s.Training.Resume, s.Training.SaveSteps, s.Training.EvalSteps, s.Training.LoggingSteps, s.Training.ReportTo =
		"", 0, 0, 0, nil
	s.Training.SavesPerEpoch, s.Training.EvalsPerEpoch = 0, 0
	return s
}

func (o *benchOptions) writeTrace(t bench.Trace) error {
	data, err := t.JSON()
	if err == nil {
		err = atomicfile.Write(o.trace, data)
	}
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	return nil
}

func readReport(file string) (bench.Report, error) {
	if err := regular.CheckPath(file); err != nil {
		return bench.Report{}, err
	}
	f, err := os.Open(file)
	if err != nil {
		return bench.Report{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	return bench.Read(f)
}

// compared is the output of --compare --json.
type compared struct {
	bench.Comparison
	Report bench.Report `json:"report"`
}

// judge compares two reports and prints the result. It refuses reports of different work and names the differences.
func (o *benchOptions) judge(c *console, old, now bench.Report) error {
	cmp := bench.Compare(old, now)
	if len(cmp.Differ) > 0 && !o.otherwise {
		return usage(fmt.Errorf("--compare %s: this is no report of the same work on the same device: %s; "+
			"--compare-anyway compares the two all the same",
			words.ShellQuote(o.compare), strings.Join(cmp.Differ, "; ")))
	}
	if o.json {
		if err := writeJSON(c.out, compared{cmp, now}); err != nil {
			return err
		}
	} else {
		o.print(c.out, now)
		printComparison(c.out, cmp)
	}
	if o.fails && cmp.Slower() {
		return &exitError{code: exitFailed,
			err: fmt.Errorf("a step takes %.2f times as long as in %s, beyond the spread of both", cmp.Lines[0].Ratio,
				words.ShellQuote(o.compare))}
	}
	return nil
}

// print writes a report as text.
func (o *benchOptions) print(w io.Writer, r bench.Report) {
	if o.Chip != nil {
		fmt.Fprintf(w, "%s %dx%d on %s: %s; held %s, planned in %.2f s\n", r.Shape, o.Batch, o.Length, r.Device,
			r.Layout, session.FormatBytes(r.Held), r.Planned)
		if r.Estimated > 0 {
			fmt.Fprintf(w, "  a step takes about %.3g ms, by estimate\n", r.Estimated)
		}
		printMemory(w, r)
		for _, l := range r.Peak {
			fmt.Fprintf(w, "  %10.1f MiB  %5d values  %s\n", float64(l.Bytes)/(1<<20), l.Values, l.Kernel)
		}
		return
	}
	fmt.Fprintf(w, "%s %dx%d on %s, %s: median %.2f ms (%.2f to %.2f), %.0f tokens/s; pipelined %.2f ms; load %.1f "+
		"s, first step %.2f s; held %s\n",
		r.Shape, r.Batch, r.Length, devicesOf(r), r.Precision, r.Median, r.Fastest, r.Slowest, r.PerSec, r.Pipelined,
		r.Load, r.First, session.FormatBytes(r.Held))
	printMemory(w, r)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	if r.Ceilings == nil {
		return
	}
	fmt.Fprintf(w, "parts of a step of %d tokens, each waited for, %.3f ms in all:\n", r.Tokens, r.Waited)
	for _, p := range r.Transfers {
		rest := ""
		if p.Bytes > 0 {
			rest = ", " + session.FormatBytes(p.Bytes) + " between host and device"
		}
		if !p.OfStep {
			rest += " (not of the step)"
		}
		fmt.Fprintf(w, "  %9.3f ms (%.3f to %.3f)  %s%s\n", p.Median, p.Fastest, p.Slowest, p.Name, rest)
	}
	printCalls(w, o, r)
}

// devicesOf names the device and the number of devices.
func devicesOf(r bench.Report) string {
	if r.Ranks > 1 {
		return fmt.Sprintf("%d x %s (memory and calls of one)", r.Ranks, r.Device)
	}
	return r.Device
}

func printMemory(w io.Writer, r bench.Report) {
	for _, p := range r.Parts {
		fmt.Fprintf(w, "  %-20s %s\n", p.Name, session.FormatBytes(p.Bytes))
	}
}

// printCalls writes the table of operations, or of layers.
func printCalls(w io.Writer, o *benchOptions, r bench.Report) {
	c := r.Ceilings
	fmt.Fprintf(w, "ceilings measured here: copy %.1f GB/s (%s), GEMM %.4g TFLOP/s (%s)", c.Copy/1e9, c.CopyOf,
		c.GEMM/1e12, c.GEMMOf)
	if c.Upload > 0 {
		fmt.Fprintf(w, ", host to device %.1f GB/s, back %.1f", c.Upload/1e9, c.Download/1e9)
	}
	fmt.Fprintln(w)
	lines, of := r.Ops, "operation"
	switch {
	case o.byLayer:
		lines, of = r.Layers, "layer"
	case o.byType:
		lines, of = r.Profile, "operation and type of its result"
	}
	fmt.Fprintf(w, "%10s %6s %7s %10s %12s %9s  %s\n", "ms", "%", "calls", "MB", "GFLOP", "% of peak", of)
	for _, l := range lines {
		peak := fmt.Sprintf("%.0f", l.Percent)
		if l.Uncosted > 0 {
			peak = "?"
		}
		fmt.Fprintf(w, "%10.3f %6.1f %7d %10.2f %12.4f %9s  %s\n", l.Ms, share(l.Ms, r.Waited), l.Calls,
			float64(l.Bytes)/1e6, float64(l.FLOPs)/1e9, peak, l.Kernel)
	}
	fmt.Fprintf(w, "%10.3f %6.1f  all calls; not covered %.3f ms of the %.3f that the same step takes in its parts\n",
		r.Covered, share(r.Covered, r.Waited), r.Waited-r.Covered, r.Waited)
	if i := slices.IndexFunc(r.Ops, func(l bench.ProfileLine) bool { return l.Uncosted > 0 }); i >= 0 {
		fmt.Fprintf(w, "?: %s and others marked so do not say what they move and compute\n", r.Ops[i].Kernel)
	}
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

func printComparison(w io.Writer, c bench.Comparison) {
	for _, d := range c.Differ {
		fmt.Fprintf(w, "different: %s\n", d)
	}
	for _, d := range c.Made {
		fmt.Fprintf(w, "changed  %s\n", d)
	}
	fmt.Fprintf(w, "%10s %23s %10s %23s %7s  %-18s  %s\n", "old ms", "spread", "new ms", "spread", "ratio",
		"verdict", "of")
	for _, l := range c.Lines {
		spread := func(s [2]float64) string { return fmt.Sprintf("%.3f to %.3f", s[0], s[1]) }
		fmt.Fprintf(w, "%10.3f %23s %10.3f %23s %7.3f  %-18s  %s\n", l.Old, spread(l.OldFrom), l.New, spread(l.NewFrom),
			l.Ratio, l.Verdict, l.What)
	}
}

// notOfDecode lists the flags that apply to training steps only.
var notOfDecode = []string{"batch", "r", "targets", "target-parameters", "dequantised", "decoded", "checkpointing",
	"gpu", "by-layer", "by-type", "trace", "compare", "compare-anyway", "fail-on-regression", "vram"}

// checkDecode returns an error for flags that --decode excludes.
func (o *benchOptions) checkDecode(cmd *cobra.Command) error {
	f := cmd.Flags()
	if !o.decode {
		if f.Changed("slots") {
			return usage(errors.New("--slots goes with --decode"))
		}
		return nil
	}
	if o.Shape == "" {
		return usage(errors.New("--decode times generation of a model's shape: name one with --shape"))
	}
	for _, name := range notOfDecode {
		if f.Changed(name) {
			return usage(fmt.Errorf("--%s is of training steps; it does not go with --decode", name))
		}
	}
	if o.Length < 1 {
		return usage(fmt.Errorf("--length %d: at least one token", o.Length))
	}
	for _, n := range o.slots {
		if n < 1 || n > 256 {
			return usage(fmt.Errorf("--slots %d: 1 to 256 sequences", n))
		}
	}
	if len(o.slots) == 0 {
		return usage(errors.New("--slots: at least one number of sequences"))
	}
	return nil
}

func (o *benchOptions) runDecode(ctx context.Context, c *console) error {
	d := bench.DecodeOptions{Measure: o.Measure, Shape: o.Shape, Slots: o.slots, Length: o.Length, Device: o.Device,
		Precision: o.Precision}
	if !o.dense {
		q := quant.Default()
		d.Quantization = &q
	}
	r, err := bench.Decode(ctx, d, environment(c, o.workers))
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(c.out, r)
	}
	printDecode(c.out, r)
	return nil
}

func printDecode(w io.Writer, r bench.DecodeReport) {
	fmt.Fprintf(w, "%s, %s on %s: weights %s, %s of them read in a round; %d tokens a sequence, %s of cache\n", r.Shape,
		r.Precision, r.Device, r.Weights,
		session.FormatBytes(r.Read), r.Length, session.FormatBytes(r.Cache))
	fmt.Fprintf(w, "prompt    %.0f tokens/s\n\n%10s %10s %10s %10s %10s %10s %8s\n", r.Prompt, "sequences", "ms",
		"fastest", "slowest", "tokens/s", "bound ms", "%")
	for _, l := range r.Rounds {
		fmt.Fprintf(w, "%10d %10.3f %10.3f %10.3f %10.0f %10.3f %8.1f\n", l.Slots, l.Ms, l.Fastest, l.Slowest, l.Tokens,
			l.Least, l.Percent)
	}
	fmt.Fprintln(w, "\nThe bound is reading the weights and caches once, at the rate of a copy.")
	for i, lines := range r.Calls {
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%d sequences, one call after the other:\n%-44s %6s %10s %10s %8s\n", r.Rounds[i].Slots,
			"operation", "calls", "ms", "ceiling", "%")
		for _, l := range lines[:min(len(lines), 14)] {
			fmt.Fprintf(w, "%-44s %6d %10.3f %10.3f %8.1f\n", l.Kernel, l.Calls, l.Ms, l.Least, l.Percent)
		}
	}
}
