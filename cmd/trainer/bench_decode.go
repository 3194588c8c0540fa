package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/bench"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// notOfDecode are the flags that say what only training has.
var notOfDecode = []string{"batch", "r", "targets", "target-parameters", "dequantised", "decoded", "checkpointing", "gpu", "by-layer", "by-type", "trace", "compare", "compare-anyway", "fail-on-regression", "vram"}

// checkDecode refuses flags that do not go with --decode.
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
	d := bench.DecodeOptions{Measure: o.Measure, Shape: o.Shape, Slots: o.slots, Length: o.Length, Device: o.Device, Precision: o.Precision}
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
	fmt.Fprintf(w, "%s, %s on %s: weights %s, %s of them read in a round; %d tokens a sequence, %s of cache\n", r.Shape, r.Precision, r.Device, r.Weights,
		session.FormatBytes(r.Read), r.Length, session.FormatBytes(r.Cache))
	fmt.Fprintf(w, "prompt    %.0f tokens/s\n\n%10s %10s %10s %10s %10s %10s %8s\n", r.Prompt, "sequences", "ms", "fastest", "slowest", "tokens/s", "bound ms", "%")
	for _, l := range r.Rounds {
		fmt.Fprintf(w, "%10d %10.3f %10.3f %10.3f %10.0f %10.3f %8.1f\n", l.Slots, l.Ms, l.Fastest, l.Slowest, l.Tokens, l.Least, l.Percent)
	}
	fmt.Fprintln(w, "\nThe bound is reading the weights and caches once, at the rate of a copy.")
	for i, lines := range r.Calls {
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%d sequences, one call after the other:\n%-44s %6s %10s %10s %8s\n", r.Rounds[i].Slots, "operation", "calls", "ms", "ceiling", "%")
		for _, l := range lines[:min(len(lines), 14)] {
			fmt.Fprintf(w, "%-44s %6d %10.3f %10.3f %8.1f\n", l.Kernel, l.Calls, l.Ms, l.Least, l.Percent)
		}
	}
}
