package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/lrfind"
)

// lrFindRows is the height of the chart in a terminal.
const lrFindRows = 16

// lrFindPages are the endings of the files that --out writes.
var lrFindPages = []string{".html", ".htm", ".md", ".json"}

// lrFindMark begins the JSON that --out writes, so that a later call may replace the file.
const lrFindMark = `{"learning_rate_range_test":1,`

func newLRFind(c *console) *cobra.Command {
	var o configOptions
	test := lrfind.Defaults()
	var workers int
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lr-find FILE",
		Short: "Try rising learning rates on your data and suggest one",
		Long: `Train a few steps on the run's own data while the learning rate rises geometrically from --from to --to, and print
the loss by rate as a chart (a learning-rate range test). The base model is loaded once. Nothing is saved, and
output_dir is not touched.

Each step's loss is compared with that of the same batch before training, which a first pass over the batches computes;
the chart has the mean loss plus that difference, as a moving average. So rows of different difficulty do not hide what
a rate does.

The test ends before --steps where the loss is not finite, or where the smoothed loss is 1.5 times that before training.
The suggestion is a tenth of the rate at which the smoothed loss is lowest; there is none where the
loss does not fall by 1%, or still falls at the highest rate. It is a start for a comparison by trainer sweep, not a
measurement of the best rate. The same configuration prints the same numbers again.`,
		Example: `  trainer lr-find run.yaml
  trainer lr-find run.yaml --from 1e-5 --to 1e-2 --steps 60 --out lr.html
  trainer lr-find cpu_stories_quick.yaml --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := test.Check(); err != nil {
				return usage(err)
			}
			if err := checkLRFindPage(out); err != nil {
				return usage(err)
			}
			return o.argument(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, env, err := o.open(cmd.Context(), c, workers)
			if err != nil {
				return err
			}
			r, err := train.LRFind(cmd.Context(), loaded.Spec, train.Env{Env: env, Details: func(string) {}}, test)
			if err != nil {
				return err
			}
			if err := writeLRFind(out, loaded.Spec, r); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, r)
			}
			return printLRFind(c, loaded.Spec, r, out)
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().Float64Var(&test.From, "from", test.From, "learning `RATE` of the first step")
	cmd.Flags().Float64Var(&test.To, "to", test.To, "learning `RATE` of the last step")
	cmd.Flags().IntVar(&test.Steps, "steps", test.Steps, "number of optimizer `STEPS`")
	pathVar(cmd, &out, "out", "", "also write the chart to `FILE`: .html, .md or .json")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the numbers as JSON")
	workersVar(cmd, &workers)
	return cmd
}

// checkLRFindPage returns an error, before the test, if --out cannot be written.
func checkLRFindPage(out string) error {
	if out == "" {
		return nil
	}
	ext := strings.ToLower(filepath.Ext(out))
	if !slices.Contains(lrFindPages, ext) {
		return fmt.Errorf("--out %s: its name must end in .html, .md or .json", out)
	}
	mark := map[string]string{".md": report.MarkdownMark, ".json": lrFindMark}[ext]
	if mark == "" {
		mark = report.Mark
	}
	if err := checkPage(filename.ExpandHome(out), mark); err != nil {
		return fmt.Errorf("--out %s: %w", out, err)
	}
	return nil
}

// lrFindPlot returns the chart of a test: the smoothed loss by the logarithm of the rate, and the loss before training.
func lrFindPlot(r lrfind.Report) report.Plot {
	before := report.Series{Name: "before training", Style: report.Dashed, Colour: 6}
	smoothed := report.Series{Name: "smoothed", Colour: 1}
	for _, p := range r.Points {
		x := math.Log10(p.Rate)
		before.X, before.Y = append(before.X, x), append(before.Y, r.Before)
		smoothed.X, smoothed.Y = append(smoothed.X, x), append(smoothed.Y, p.Smoothed)
	}
	return report.Plot{Title: "Smoothed loss", XLabel: "log10 of the learning rate", YLabel: "loss",
		Series: []report.Series{before, smoothed}}
}

// lrFindFields returns what a test found, as names and values.
func lrFindFields(s train.Spec, r lrfind.Report) []report.Field {
	rate := func(v float64, none string) string {
		if v == 0 {
			return none
		}
		return fmt.Sprintf("%.2e", v)
	}
	steps := "0"
	if n := len(r.Points); n > 0 {
		steps = fmt.Sprintf("%d, %.2e to %.2e", n, r.Points[0].Rate, r.Points[n-1].Rate)
	}
	return []report.Field{
		{Name: "steps", Value: steps},
		{Name: "ended", Value: r.Ended},
		{Name: "steepest fall", Value: "at " + rate(r.Steepest, "no rate")},
		{Name: "lowest loss", Value: "at " + rate(r.Lowest, "no rate")},
		{Name: "configured", Value: fmt.Sprintf("%.2e", s.Training.LearningRate)},
		{Name: "suggestion", Value: rate(r.Suggested, "none")},
		{Name: "rule", Value: strings.TrimPrefix(r.Why, "none: ")},
	}
}

// printLRFind prints the chart and what the test found.
func printLRFind(c *console, s train.Spec, r lrfind.Report, out string) error {
	w := bufio.NewWriter(coloured(c.out))
	fmt.Fprint(w, "smoothed loss by learning rate, as a power of ten\n\n")
	for _, line := range lrFindPlot(r).Braille(min(columns(c.out), 120), lrFindRows, mayColour(c.out)) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	for _, f := range lrFindFields(s, r) {
		fmt.Fprintf(w, "%-14s %s\n", f.Name, plainText(f.Value))
	}
	if out != "" {
		fmt.Fprintf(w, "%-14s %s\n", "chart", plainText(out))
	}
	return w.Flush()
}

// writeLRFind writes the chart to a file in the form that its name asks for; "" writes nothing.
func writeLRFind(out string, s train.Spec, r lrfind.Report) error {
	if out == "" {
		return nil
	}
	page := report.Page{Title: "Learning-rate range test", Subtitle: s.BaseModel}
	page.Add("Result", report.Fields(lrFindFields(s, r)))
	page.Add("Loss by learning rate", lrFindPlot(r))
	var text bytes.Buffer
	var err error
	switch strings.ToLower(filepath.Ext(out)) {
	case ".json":
		err = lrFindJSON(&text, r)
	case ".md":
		err = page.Markdown(&text)
	default:
		err = page.HTML(&text)
	}
	if err == nil {
		err = atomicfile.Write(filename.ExpandHome(out), text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// lrFindJSON writes a test as one line of JSON that begins with lrFindMark.
func lrFindJSON(text *bytes.Buffer, r lrfind.Report) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(data, []byte("{"))
	if !ok {
		return errors.New("a report is no JSON object")
	}
	text.WriteString(lrFindMark)
	text.Write(rest)
	text.WriteByte('\n')
	return nil
}
