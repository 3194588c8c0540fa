package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/session"
)

// printMerge writes what a merge did for people.
func printMerge(c *console, r export.MergeReport) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s  %s\n", labelWidth, label, fmt.Sprintf(format, args...))
	}
	with := "the adapter"
	if n := len(r.Adapters); n > 1 {
		with = fmt.Sprintf("%d adapters", n)
	}
	fmt.Fprintf(&b, "%s: %s with %s in %d layers, %s\n", r.Output, r.Model, with, r.Layers, session.FormatBytes(r.Bytes))
	base := r.Base
	if strings.HasPrefix(base, "trained: ") {
		base += " (--base original adds the adapter to the model's own weights; docs/MERGE.md compares them)"
	}
	line("base", "%s", base)
	line("written", "%s, %d file%s, read back and compared", r.DType, r.Files, plural(r.Files))
	line("answers", "%s", r.Answers)
	line("rounding", "%s, rounding noise %s of the update; %s of the adapted weights change by less than half a step", kept(r.Rounding.Kept), percent(r.Rounding.Noise), percent(r.Rounding.BelowHalfStep))
	for _, l := range r.Rounding.Worst(3) {
		line("", "least kept: %s, %s; update %.3g, half a step %.3g (root mean squares)", l.Layer, percent(l.Kept), l.Delta, l.HalfStep)
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

// driftLines say for people how far what was written is from base and adapter, each with a label; none where it was not
// compared.
func driftLines(d *export.Drift) (lines [][2]string) {
	if d == nil {
		return nil
	}
	add := func(label, format string, args ...any) {
		lines = append(lines, [2]string{label, fmt.Sprintf(format, args...)})
	}
	if d.Tokens > 0 {
		add("drift", "from base and adapter on %d tokens: logits differ by at most %.3g, mean KL divergence %.3g (the adapter's own effect is %.3g)", d.Tokens, d.MaxLogit, d.MeanKL, d.AdapterKL)
		add("loss", "%.6f merged, %.6f with the adapter beside the base, %.6f without it", d.MergedLoss, d.Loss, d.BaseLoss)
	}
	if f := d.Trained; f != nil && d.Tokens > 0 {
		add("trained", "the adapter saw other weights than it was added to: there the loss is %.6f, logits differ by at most %.3g, mean KL divergence %.3g; --base trained adds it to those", f.Loss, f.MaxLogit, f.MeanKL)
	}
	if o := d.Own; o != nil {
		add("own rows", "%d of %s, %d trained tokens: loss %.6f merged, %.6f with the adapter beside the base, %.6f without it", o.Rows, o.Data, o.Tokens, o.MergedLoss, o.Loss, o.BaseLoss)
		add("", "the most likely token is the one with the adapter beside the base in %s of them; without the adapter in %s", percent(o.Agree), percent(o.BaseAgree))
	}
	return lines
}

// percent is a share for people, with as many digits behind the point as tell it from nothing and from all.
func percent(share float64) string {
	for digits := 1; digits < 4; digits++ {
		text := strconv.FormatFloat(100*share, 'f', digits, 64)
		rounded := strings.Trim(text, "0.-") == "" && share != 0 || text == strconv.FormatFloat(100, 'f', digits, 64) && share < 1
		if !rounded {
			return strings.TrimSuffix(text, ".0") + "%"
		}
	}
	return fmt.Sprintf("%.3g%%", 100*share)
}

// kept says how much of an update is kept.
func kept(share float64) string { return percent(share) + " of the update kept" }

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
