package train

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
)

// String returns the plan as a table.
func (r PlanReport) String() string {
	var b strings.Builder
	size := fmt.Sprintf("%d x %d tokens", r.Batch, r.SequenceLength)
	if r.Flat {
		size = fmt.Sprintf("%d rows, at most %d tokens", r.Batch, slices.Max(r.Budgets))
	}
	fmt.Fprintf(&b, "plan: %s on %s, %d parameters, %d trained; %d steps of %s; precision %s; "+
		"gradient_checkpointing %s\n",
		r.Model, r.Device, r.Parameters, r.TrainedParameters, r.Steps, size,
		precisionText(r.Precision, r.PrecisionAuto), r.Checkpointing)
	fmt.Fprintf(&b, "  batches of %s tokens: %.1f%% padding\n", list(r.Budgets), 100*r.Padding)
	if r.Ranks > 1 {
		fmt.Fprintf(&b, "  %d devices share each step; each of them holds\n", r.Ranks)
	}
	for _, c := range r.Categories {
		fmt.Fprintf(&b, "  %-16s %14d bytes  %s\n", c.Name, c.Bytes, session.FormatBytes(c.Bytes))
	}
	fmt.Fprintf(&b, "  %-16s %14d bytes  %s", "total", r.TotalBytes, session.FormatBytes(r.TotalBytes))
	if r.Limit > 0 {
		fmt.Fprintf(&b, "\n  memory limit     %14d bytes  %s", r.Limit, session.FormatBytes(r.Limit))
	}
	for _, t := range r.Tried {
		fmt.Fprintf(&b, "\n  does not fit: %s: %s, %s too much", t.Way, session.FormatBytes(t.Bytes),
			session.FormatBytes(t.Bytes-r.Limit))
	}
	if r.Estimate != nil {
		b.WriteString("\n  " + r.Estimate.String())
	}
	for _, n := range r.Notes {
		b.WriteString("\n  " + n)
	}
	for _, s := range r.Slow {
		b.WriteString("\n  slow path: " + s.String())
	}
	return b.String()
}

// list joins numbers with commas.
func list(numbers []int) string {
	var parts []string
	for _, n := range numbers {
		parts = append(parts, fmt.Sprint(n))
	}
	return strings.Join(parts, ", ")
}

// precisionText returns a precision as reports show it.
func precisionText(name string, auto bool) string {
	if auto {
		return name + " (auto)"
	}
	return name
}

// PlanReportFile is the name of the plan in a run's output folder, a PlanReport as JSON.
const PlanReportFile = "plan_report.json"

// writePlanReport saves the plan that the run allocates its memory by.
func (p *prepared) writePlanReport() error {
	text, err := json.MarshalIndent(p.planReport(), "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(p.spec.OutputDir, PlanReportFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", PlanReportFile, err)
	}
	return nil
}

// report logs a report: in full, or if Env.Details receives the full one, as a summary of a few lines.
func (e Env) report(full string, brief []string) {
	if e.Details == nil {
		e.Newsf("%s", full)
		return
	}
	e.Details(full)
	for _, line := range brief {
		e.Newsf("%s", line)
	}
}

// brief returns the plan in a few lines: the model, the steps, the memory, and the fast paths that the run does not
// take.
func (r PlanReport) brief() []string {
	size := fmt.Sprintf("%s x %s tokens", words.Count(r.Batch), words.Count(r.SequenceLength))
	if r.Flat {
		size = fmt.Sprintf("%s rows, at most %s tokens", words.Count(r.Batch), words.Count(slices.Max(r.Budgets)))
	}
	memory := session.FormatBytes(r.TotalBytes) + " planned"
	if r.Ranks > 1 {
		memory += fmt.Sprintf(" on each of %d devices", r.Ranks)
	}
	if r.Limit > 0 {
		memory += ", limit " + session.FormatBytes(r.Limit)
	}
	lines := []string{
		fmt.Sprintf("model    %s on %s, %s parameters, %s trained", r.Model, r.Device, words.Count(r.Parameters),
			words.Count(r.TrainedParameters)),
		fmt.Sprintf("run      %s steps of %s, precision %s, gradient checkpointing %s", words.Count(r.Steps), size,
			precisionText(r.Precision, r.PrecisionAuto), r.Checkpointing),
		"memory   " + memory,
	}
	for _, s := range r.Slow {
		lines = append(lines, "slow path: "+s.String())
	}
	return lines
}
