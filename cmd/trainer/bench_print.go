package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/tierlora/tierlora/bench"
	"github.com/tierlora/tierlora/session"
)

// print writes a report for a person.
func (o *benchOptions) print(w io.Writer, r bench.Report) {
	if o.Chip != nil {
		fmt.Fprintf(w, "%s %dx%d on %s: %s; held %s, planned in %.2f s\n", r.Shape, o.Batch, o.Length, r.Device, r.Layout, session.FormatBytes(r.Held), r.Planned)
		printMemory(w, r)
		for _, l := range r.Peak {
			fmt.Fprintf(w, "  %10.1f MiB  %5d values  %s\n", float64(l.Bytes)/(1<<20), l.Values, l.Kernel)
		}
		return
	}
	fmt.Fprintf(w, "%s %dx%d on %s, %s: median %.2f ms (%.2f to %.2f), %.0f tokens/s; pipelined %.2f ms; load %.1f s, first step %.2f s; held %s\n",
		r.Shape, r.Batch, r.Length, devicesOf(r), r.Precision, r.Median, r.Fastest, r.Slowest, r.PerSec, r.Pipelined, r.Load, r.First, session.FormatBytes(r.Held))
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

// devicesOf names the device, and how many there are.
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
	fmt.Fprintf(w, "ceilings measured here: copy %.1f GB/s (%s), GEMM %.4g TFLOP/s (%s)", c.Copy/1e9, c.CopyOf, c.GEMM/1e12, c.GEMMOf)
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
		fmt.Fprintf(w, "%10.3f %6.1f %7d %10.2f %12.4f %9s  %s\n", l.Ms, share(l.Ms, r.Waited), l.Calls, float64(l.Bytes)/1e6, float64(l.FLOPs)/1e9, peak, l.Kernel)
	}
	fmt.Fprintf(w, "%10.3f %6.1f  all calls; not covered %.3f ms of the %.3f that the same step takes in its parts\n", r.Covered, share(r.Covered, r.Waited), r.Waited-r.Covered, r.Waited)
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
	fmt.Fprintf(w, "%10s %23s %10s %23s %7s  %-18s  %s\n", "old ms", "spread", "new ms", "spread", "ratio", "verdict", "of")
	for _, l := range c.Lines {
		spread := func(s [2]float64) string { return fmt.Sprintf("%.3f to %.3f", s[0], s[1]) }
		fmt.Fprintf(w, "%10.3f %23s %10.3f %23s %7.3f  %-18s  %s\n", l.Old, spread(l.OldFrom), l.New, spread(l.NewFrom), l.Ratio, l.Verdict, l.What)
	}
}
