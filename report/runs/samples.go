package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
)

// Bounds of what is kept and shown of samples and tasks.
const (
	mostSamples     = 1000 // samples kept in addition to the first step's
	mostSampleRows  = 120  // rows of samples shown
	mostSampleText  = 2000 // characters of an answer or a prompt
	mostTasks       = 10_000
	mostTaskColumns = 24
	mostTaskRows    = 100
)

// Task is a metric of one of training.eval_tasks after a step.
type Task struct {
	Step          int
	Name          string // name of the task and the metric
	Value, StdErr float64
	Questions     int
}

// takeSample parses a line of samples.jsonl and reports whether it is valid. If steps go back, as after a resume, the
// later line counts.
func (r *Run) takeSample(text []byte) bool {
	var l train.SampleLine
	if json.Unmarshal(text, &l) != nil || l.Step < 0 || l.Prompt == "" {
		return false
	}
	n := len(r.Samples)
	for n > 0 && r.Samples[n-1].Step > l.Step {
		n--
	}
	l.Prompt, l.Text = clip(l.Prompt), clip(l.Text)
	r.Samples = append(r.Samples[:n], l)
	// Cut in large portions, so that each line costs little.
	if first := r.firstSamples(); len(r.Samples) > first+2*mostSamples {
		r.Samples = slices.Delete(r.Samples, first, len(r.Samples)-mostSamples)
	}
	return true
}

// firstSamples returns the number of samples of the first step.
func (r *Run) firstSamples() int {
	n := 0
	for n < min(len(r.Samples), mostSampleRows) && r.Samples[n].Step == r.Samples[0].Step {
		n++
	}
	return n
}

func clip(text string) string {
	if utf8.RuneCountInString(text) <= mostSampleText {
		return text
	}
	return string([]rune(text)[:mostSampleText]) + "…"
}

// takeTask adds a line about a task. A metric that occurs again replaces the earlier one.
func (r *Run) takeTask(l metricsLine) {
	name := l.Task
	if l.Metric != "" {
		name += ", " + l.Metric
	}
	r.tasksBefore(l.Step + 1)
	for i := len(r.Tasks) - 1; i >= 0 && r.Tasks[i].Step == l.Step; i-- {
		if r.Tasks[i].Name == name {
			r.tasksBefore(l.Step)
			break
		}
	}
	if len(r.Tasks) < mostTasks {
		r.Tasks = append(r.Tasks, Task{l.Step, clip(name), l.Value.value(), l.StdErr.value(), l.Questions})
	}
}

// tasksBefore keeps the metrics before a step.
func (r *Run) tasksBefore(step int) {
	n := len(r.Tasks)
	for n > 0 && r.Tasks[n-1].Step >= step {
		n--
	}
	r.Tasks = r.Tasks[:n]
}

// samples returns tables of the model's answers and of its scores, by step.
func (r *Run) samples() []report.Block {
	var all []report.Block
	if len(r.Tasks) > 0 {
		all = append(all, r.taskTable())
	}
	if len(r.Samples) == 0 {
		return all
	}
	t := report.Table{Caption: "Samples: what the model makes of training.sample_prompts, greedily", Columns: []report.Column{{Title: "step"}, {Title: "prompt"}, {Title: "text"}}}
	rows, first := r.Samples, r.firstSamples()
	if len(rows) > mostSampleRows {
		newest := rows[len(rows)-(mostSampleRows-min(first, mostSampleRows/2)):]
		for len(newest) > 1 && len(newest) < len(rows) && newest[0].Step == rows[len(rows)-len(newest)-1].Step && newest[0].Step != newest[len(newest)-1].Step {
			newest = newest[1:] // only complete steps
		}
		rows = slices.Concat(rows[:min(first, mostSampleRows/2)], newest)
		t.Caption += fmt.Sprintf("; of the first step and the newest ones, %s has all", train.SamplesFile)
	}
	for _, s := range rows {
		t.Rows = append(t.Rows, []string{report.Whole(int64(s.Step)), s.Prompt, s.Text})
	}
	return append(all, t)
}

// taskTable returns a table with a row for each step and a column for each metric.
func (r *Run) taskTable() report.Table {
	t := report.Table{Caption: "Scores of training.eval_tasks: mean over the questions ± standard error", Columns: []report.Column{{Title: "step"}}}
	at := map[string]int{}
	for _, k := range r.Tasks {
		if _, ok := at[k.Name]; !ok && len(at) < mostTaskColumns {
			at[k.Name] = len(t.Columns)
			t.Columns = append(t.Columns, report.Column{Title: k.Name, Right: true})
		}
	}
	last := -1
	for _, k := range r.Tasks {
		column, ok := at[k.Name]
		if !ok {
			continue
		}
		if n := len(t.Rows); n == 0 || k.Step != last {
			if n == mostTaskRows { // the first step and the newest ones
				t.Rows = slices.Delete(t.Rows, 1, 2)
			}
			last = k.Step
			t.Rows = append(t.Rows, slices.Repeat([]string{"–"}, len(t.Columns)))
			t.Rows[len(t.Rows)-1][0] = report.Whole(int64(k.Step))
		}
		text := report.Number(rounded(k.Value))
		if finite(k.StdErr) {
			text += " ± " + report.Number(rounded(k.StdErr))
		}
		t.Rows[len(t.Rows)-1][column] = text
	}
	return t
}

// rounded rounds to four digits after the point.
func rounded(x float64) float64 { return math.Round(1e4*x) / 1e4 }
