package tier

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/session"
)

// writePages writes the report for people.
func writePages(dir string, p Report) error {
	page := Page(p)
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{{ReportMarkdown, page.Markdown}, {ReportHTML, page.HTML}} {
		var text bytes.Buffer
		if err := f.write(&text); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
		if err := atomicfile.Write(filepath.Join(dir, f.name), text.Bytes()); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

// Page returns the report as a page for people.
func Page(p Report) report.Page {
	var names []string
	for _, t := range p.Tiers {
		names = append(names, t.Tier)
	}
	page := report.Page{Title: "Tiers: " + strings.Join(names, ", "), Subtitle: p.Time,
		Verdict: report.Verdict{State: report.State(p.Status), Text: p.Summary()}}
	rows := [][]string{}
	for _, t := range p.Tiers {
		rows = append(rows, summaryRow(t))
	}
	page.Add("Summary", report.Table{Columns: []report.Column{{Title: "tier"}, {Title: "result"},
		{Title: "steps", Right: true}, {Title: "loss"}, {Title: "step", Right: true},
		{Title: "held", Right: true}, {Title: "time", Right: true}, {Title: "compared"}}, Rows: rows})
	machine := report.Fields{{Name: "GPU", Value: orNone(p.Machine.GPU)},
		{Name: "driver", Value: orNone(p.Machine.Driver)},
		{Name: "platform", Value: fmt.Sprintf("%s, %d cores", p.Machine.Platform, p.Machine.Cores)},
		{Name: "program", Value: p.Program.Version}, {Name: "commit", Value: commit(p.Program)},
		{Name: "program's SHA-256", Value: p.Program.SHA256}, {Name: "command", Value: shown(p.Command)}}
	page.Add("What ran where", machine, checks(p.Checks))
	for _, t := range p.Tiers {
		addTier(&page, t)
	}
	page.Sections = append(page.Sections,
		report.Section{Title: "Environment", Folded: true,
			Blocks: []report.Block{report.Code{Title: "trainer doctor --json", Text: string(p.Environment)}}})
	return page
}

// Summary returns the report in one line.
func (p Report) Summary() string {
	count := map[string]int{}
	regressions := 0
	for _, t := range p.Tiers {
		count[t.Status]++
		if t.Comparison != nil {
			regressions += len(t.Comparison.Regressions)
		}
	}
	text := fmt.Sprintf("%d of %d passed, %d failed, %d skipped in %.1f s", count[Pass], len(p.Tiers), count[Fail],
		count[Skip], p.Seconds)
	if regressions > 0 {
		text += fmt.Sprintf("; %s against kept reports", words.Counted(regressions, "regression"))
	}
	return text
}

func summaryRow(t Result) []string {
	row := []string{t.Tier, t.Status, "", "", "", "", fmt.Sprintf("%.1f s", t.Seconds), compared(t.Comparison)}
	if t.Reason != "" {
		row[1] += ": " + t.Reason
	}
	if t.Run != nil {
		row[2] = fmt.Sprintf("%d of %d", t.Run.Steps, t.Run.MaxSteps)
	}
	if t.Loss != nil {
		row[3] = fmt.Sprintf("%.4f to %.4f (%+.1f%%)", t.Loss.FirstTenth, t.Loss.LastTenth, -100*t.Loss.Fall)
	}
	if t.Throughput != nil {
		row[4] = fmt.Sprintf("%.2f ms", t.Throughput.MedianMs)
	}
	if t.Memory != nil {
		row[5] = session.FormatBytes(t.Memory.Held)
	}
	return row
}

// compared returns a comparison in a few words.
func compared(c *Comparison) string {
	switch {
	case c == nil:
		return ""
	case len(c.Kept) == 0:
		return "nothing kept"
	case len(c.Regressions) > 0:
		return words.Counted(len(c.Regressions), "regression")
	}
	return fmt.Sprintf("as %d kept", len(c.Kept))
}

func addTier(page *report.Page, t Result) {
	verdict := t.What
	if t.Reason != "" {
		verdict = t.Reason
	}
	page.Add("Tier "+t.Tier, report.Checks{{What: t.Tier, State: report.State(t.Status), Detail: verdict}},
		checks(t.Checks))
	if t.Plan != nil {
		f := report.Fields{{Name: "configuration", Value: t.Config}, {Name: "base model", Value: t.Base},
			{Name: "base weights' SHA-256", Value: t.BaseSHA256}, {Name: "device", Value: t.Plan.Device},
			{Name: "precision", Value: t.Plan.Precision}, {Name: "gradient checkpointing", Value: t.Plan.Checkpointing},
			{Name: "trained parameters", Value: fmt.Sprintf("%d of %d", t.Plan.TrainedParameters, t.Plan.Parameters)}}
		if c := t.Curve; c != nil {
			f = append(f, report.Field{Name: "reference curve", Value: c.Name + " of " + c.BaseModel})
		}
		for _, s := range t.Settings {
			f = append(f, report.Field{Name: "--set", Value: s, Changed: true})
		}
		page.Add("", f)
	}
	if len(t.Steps) > 0 {
		addPlots(page, t)
	}
	if t.Memory != nil {
		addMemory(page, t)
	}
	if t.Comparison != nil {
		addComparison(page, t.Comparison)
	}
	var rows [][]string
	for _, c := range t.Commands {
		rows = append(rows, []string{c.Name, fmt.Sprint(c.ExitCode), fmt.Sprintf("%.1f s", c.Seconds), c.Log,
			"trainer " + shown(c.Args)})
	}
	if rows != nil {
		page.Sections = append(page.Sections, report.Section{Title: "Commands of " + t.Tier, Folded: true,
			Blocks: []report.Block{
				report.Table{Columns: []report.Column{{Title: "command"}, {Title: "exit code", Right: true},
					{Title: "time", Right: true}, {Title: "log"}, {Title: "as called"}}, Rows: rows}}})
	}
}

// addPlots draws loss and throughput over the steps.
func addPlots(page *report.Page, t Result) {
	var x, loss, smooth, speed, ex, eval []float64
	mean := 0.0
	for i, s := range t.Steps {
		if i == 0 {
			mean = s.Loss
		}
		mean += (s.Loss - mean) * 0.1
		x, loss, smooth = append(x, float64(s.Step)), append(loss, s.Loss), append(smooth, mean)
		if took := s.Seconds; i == 0 {
			speed = append(speed, float64(s.Tokens)/took)
		} else {
			speed = append(speed, float64(s.Tokens-t.Steps[i-1].Tokens)/(took-t.Steps[i-1].Seconds))
		}
	}
	for _, e := range t.Evaluations {
		ex, eval = append(ex, float64(e.Step)), append(eval, e.Loss)
	}
	curves := []report.Series{{Name: "loss", X: x, Y: loss, Style: report.Faint, Colour: 1},
		{Name: "mean of about ten steps", X: x, Y: smooth, Colour: 1}}
	if ex != nil {
		curves = append(curves, report.Series{Name: "evaluation", X: ex, Y: eval, Style: report.Points, Colour: 2})
	}
	if c := t.Curve; c != nil {
		low, high := make([]float64, len(c.Mean)), make([]float64, len(c.Mean))
		for i, m := range c.Mean {
			low[i], high[i] = m-c.Allowed[i], m+c.Allowed[i]
		}
		beside := report.BesideReference(c.Window, c.Run, c.Seeds, c.Mean, low, high)
		raw := 1
		if c.Window == 1 { // both curves would be the same
			raw = 0
		}
		curves = append(append(curves[:raw:raw], beside...), curves[2:]...)
	}
	page.Add("", report.Plot{Title: "Loss", XLabel: "step", YLabel: "nats a token", Series: curves},
		report.Plot{Title: "Throughput", XLabel: "step", YLabel: "tokens a second",
			Series: []report.Series{{Name: "tokens/s", X: x, Y: speed}}, Note: "Evaluations and saves count."})
}

// addMemory shows the plan by category, and the memory that the system reported.
func addMemory(page *report.Page, t Result) {
	m := t.Memory
	bar := report.Bar{Title: "Memory of the plan", Limit: m.Limit, LimitName: "the tier's limit"}
	for _, c := range t.Plan.Categories {
		bar.Parts = append(bar.Parts, report.Part{Name: c.Name, Bytes: c.Bytes})
	}
	bar.Parts = report.MemoryParts(bar.Parts)
	f := report.Fields{{Name: "planned", Value: bytesText(m.Planned)}, {Name: "held", Value: bytesText(m.Held)},
		{Name: "host process, at most", Value: bytesText(m.HostPeak)}}
	if m.CardKnown {
		f = append(f, report.Field{Name: "card grew by", Value: bytesText(m.CardGrown)},
			report.Field{Name: "card before the run", Value: bytesText(m.CardUsed) + " used, " + bytesText(m.CardFree) +
				" free"})
	}
	var x, card, host []float64
	for i, s := range m.Samples {
		if i > 0 && s.Host == 0 {
			continue // the process had ended
		}
		x, card, host = append(x, s.Seconds), append(card, float64(s.Card)/(1<<20)), append(host,
			float64(s.Host)/(1<<20))
	}
	series := []report.Series{{Name: "host, without mapped files", X: x, Y: host}}
	if m.CardKnown {
		series = append(series, report.Series{Name: "growth of the card", X: x, Y: card})
	}
	page.Add("", bar, f, report.Plot{Title: "Memory while it ran", XLabel: "seconds", YLabel: "MiB", Series: series})
}

func addComparison(page *report.Page, c *Comparison) {
	blocks := []report.Block{report.Text(fmt.Sprintf("Kept reports of the same tier, configuration, machine and base "+
		"model: %d.", len(c.Kept)))}
	if len(c.Lines) > 0 {
		var list report.Checks
		for _, l := range c.Lines {
			state := report.Pass
			if !l.OK { // --fail-on-regression decides whether it fails the tier
				state = report.Note
			}
			list = append(list, report.Check{What: l.What, State: state, Detail: fmt.Sprintf("%s, was %s, at most "+
				"%s: %s", Figure(l.Now), Figure(l.Was), Figure(l.Limit), l.Rule)})
		}
		var rows [][]string
		for _, k := range c.Kept {
			rows = append(rows, []string{k.Time, k.Report, fmt.Sprintf("%.2f ms", k.MedianMs),
				fmt.Sprintf("%.4f", k.LossEnd), fmt.Sprint(k.Held), k.ProgramSHA256[:min(12, len(k.ProgramSHA256))]})
		}
		blocks = append(blocks, list,
			report.Table{Columns: []report.Column{{Title: "kept"}, {Title: "report"}, {Title: "step", Right: true},
				{Title: "loss", Right: true}, {Title: "held bytes", Right: true}, {Title: "program"}}, Rows: rows})
	}
	for _, r := range c.others() {
		blocks = append(blocks, report.Checks{{What: "regression", State: report.Note, Detail: r}})
	}
	for _, n := range c.Notes {
		blocks = append(blocks, report.Text("Not compared: "+n))
	}
	page.Add("", blocks...)
}

func checks(list []Check) report.Checks {
	var out report.Checks
	for _, c := range list {
		out = append(out, report.Check{What: c.Name, State: report.State(c.Status), Detail: c.Detail})
	}
	return out
}

// shown returns a command with its arguments quoted where necessary.
func shown(words []string) string {
	words = slices.Clone(words)
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\"'") {
			words[i] = strconv.Quote(w)
		}
	}
	return strings.Join(words, " ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func commit(p Program) string {
	switch {
	case p.Commit == "":
		return "not known"
	case p.Dirty:
		return p.Commit + ", with changes"
	}
	return p.Commit
}

// FolderName returns the default name of a report's folder.
func FolderName(now time.Time) string { return now.UTC().Format("20060102T150405Z") }
