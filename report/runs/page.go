package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/journal"
)

// Page lays out one run, or several side by side.
func Page(all []*Run, title string) report.Page {
	var p report.Page
	if len(all) == 1 {
		p = all[0].page()
	} else {
		p = compare(all)
	}
	if title != "" {
		p.Title = title
	}
	return p
}

func (r *Run) page() report.Page {
	checks := r.Checks()
	p := report.Page{Title: r.Name, Subtitle: r.subtitle(), Verdict: r.Verdict(checks), Note: r.About.Note, Warnings: r.warnings()}
	p.Add("", r.figures(), r.lossPlot())
	if bar, ok := r.memory(); ok {
		p.Sections[0].Blocks = append(p.Sections[0].Blocks, bar)
	}
	if len(r.Problems) > 0 {
		p.Add("What could not be read", problems(r))
	}
	if r.Status() == Failed {
		r.addFailure(&p)
	}
	if curves := r.curves(); curves != nil {
		p.Add("Curves", curves...)
	}
	if n := r.numberPlots(); n != nil {
		p.Add("Numbers of the objective", n...)
	}
	if h := r.hardware(); h != nil {
		p.Sections = append(p.Sections, report.Section{Title: "Hardware", Tab: TabHardware, Blocks: h})
	}
	if len(checks) > 0 {
		p.Add("Checks", checks)
	}
	if a := r.answers(); a != nil {
		p.Add("Answers and rewards", a...)
	}
	if s := r.samples(); s != nil {
		p.Add("Samples and tasks", s...)
	}
	if r.Curve != nil {
		p.Add("Beside the reference", r.besideReference())
	}
	if len(r.Norms) > 0 {
		p.Add("Gradient norms by tensor", r.norms())
	}
	p.Sections = append(p.Sections, r.details()...)
	if r.Log != "" {
		p.Sections = append(p.Sections, report.Section{Title: "Log", Tab: TabLog, Folded: true,
			Blocks: []report.Block{report.Code{Text: r.Log, End: true}}})
	}
	return p
}

// Names of the tabs of the live page other than the first.
const (
	TabData          = "Data"
	TabConfiguration = "Configuration"
	TabLog           = "Log"
)

// details returns the sections about the data, the memory plan, the configuration and the environment.
func (r *Run) details() []report.Section {
	var all []report.Section
	add := func(tab, title string, blocks ...report.Block) {
		all = append(all, report.Section{Title: title, Tab: tab, Blocks: blocks})
	}
	if r.Data != nil {
		add(TabData, "Data", terms(r.Data.String()))
	}
	if len(r.Settings) > 0 {
		add(TabConfiguration, "Configuration", report.Text("Bold: differs from the default."), settings(r.Settings))
	} else if r.Config != nil {
		add(TabConfiguration, "Configuration", report.Code{Text: safetext.Mask(string(r.Config[:min(len(r.Config), 64<<10)]))})
	}
	if r.Plan != nil {
		all = append(all, report.Section{Title: "Memory plan", Tab: TabConfiguration, Folded: true,
			Blocks: []report.Block{report.Code{Text: r.Plan.String()}}})
	}
	if e := r.environment(); len(e) > 0 {
		add(TabConfiguration, "Environment", e)
	}
	return all
}

// lastLines is the number of log lines that the page of a failed run shows at its top.
const lastLines = 12

// addFailure adds the errors of the ranks that failed and the last lines of the log.
func (r *Run) addFailure(p *report.Page) {
	if r.Journal != nil && len(r.Journal.Ranks) > 0 && r.Journal.State == journal.Failed {
		var ranks report.Checks
		for _, one := range r.Journal.Ranks {
			ranks = append(ranks, report.Check{What: fmt.Sprintf("rank %d", one.Rank), State: report.Fail, Detail: safetext.Line(one.Error, shownError)})
		}
		p.Add("Ranks that failed", ranks)
	}
	if r.Log != "" {
		lines := strings.Split(strings.TrimRight(r.Log, "\n"), "\n")
		p.Add("Last lines of the log", report.Code{Text: strings.Join(lines[max(0, len(lines)-lastLines):], "\n"), End: true})
	}
}

// warnings returns the warnings about the data that a person should read.
func (r *Run) warnings() []string {
	var all []string
	if r.Data != nil {
		for _, text := range r.Data.Warnings() {
			all = append(all, safetext.Line(text, shownError))
		}
	}
	return all
}

func problems(r *Run) report.Checks {
	var all report.Checks
	for _, text := range r.Problems {
		name, rest, ok := strings.Cut(text, ": ")
		if !ok {
			name, rest = "folder", text
		}
		all = append(all, report.Check{What: name, State: report.Skip, Detail: rest})
	}
	return all
}

// subtitle says what was trained, on which data and device.
func (r *Run) subtitle() string {
	var parts []string
	add := func(format string, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("%s", r.Setting("adapter"))
	add("of %s", r.Setting("base_model"))
	if r.Data != nil {
		add("on %s", r.Data.Source)
	}
	if r.Plan != nil {
		add("on %s", r.Plan.Device)
		add("in %s", r.Plan.Precision)
	}
	return strings.Join(parts, " ")
}

// figures returns the numbers that answer a reader's first questions.
func (r *Run) figures() report.Figures {
	k := r.LastStep()
	steps := report.Figure{Name: "steps", Value: report.Whole(int64(k))}
	if r.Total > 0 {
		steps.Value += " of " + report.Whole(int64(r.Total))
	}
	if s := r.seconds(); s > 0 {
		steps.Note = report.Duration(seconds(s))
	}
	f := report.Figures{steps}
	if _, raw, _ := r.losses(); len(raw) > 0 { // the end of the curve below
		y := Smooth(raw)
		last, first := y[len(y)-1], raw[0]
		loss := report.Figure{Name: "training loss, smoothed", Value: report.Number(last)}
		// With fewer lines, the rows of one step decide.
		if fall := (first - last) / first; finite(fall) && len(y) >= few {
			word := "down"
			if fall < 0 {
				word = "up"
			}
			loss.Note = fmt.Sprintf("%s %s from %s", word, report.Percent(math.Abs(fall)), report.Number(first))
		}
		f = append(f, loss)
	}
	if best := r.BestEval(); best != nil {
		note := "at step " + report.Whole(int64(best.Step))
		if ppl := math.Exp(best.Loss); finite(ppl) && r.likelihood() {
			note = "perplexity " + report.Number(ppl) + ", " + note
		}
		f = append(f, report.Figure{Name: "best evaluation loss", Value: report.Number(best.Loss), Note: note})
	}
	if m := r.Summary().BestMetric; m != nil {
		at := "at step " + report.Whole(int64(m.Step))
		f = append(f, report.Figure{Name: "best " + m.Name, Value: report.Number(m.Value), Note: at})
	}
	if n := len(r.Steps); n > 0 && finite(r.Steps[n-1].Rate) {
		s := r.Steps[n-1]
		speed := report.Figure{Name: "speed", Value: report.Whole(int64(min(s.Rate, 1e15))) + " tokens/s"}
		took := s.Seconds
		for _, e := range r.Evals { // the time of evaluations between steps
			if e.Step > 0 && e.Step < s.Step && finite(e.Seconds) {
				took -= e.Seconds
			}
		}
		if finite(took) && took > 0 && s.Step > 0 {
			speed.Note = report.PerStep(seconds(took / float64(s.Step)))
		}
		f = append(f, speed)
	}
	if held := r.HeldBytes(); held > 0 {
		m := report.Figure{Name: "memory", Value: session.FormatBytes(held)}
		if r.Plan != nil && r.Plan.Limit > 0 {
			m.Note = report.Percent(float64(held)/float64(r.Plan.Limit)) + " of " + session.FormatBytes(r.Plan.Limit)
		}
		f = append(f, m)
	}
	return f
}

// few is the number of lines below which a curve is not smoothed.
const few = 20

// losses returns the loss of each step if a checkpoint has them, else the means of the logged lines.
func (r *Run) losses() (x, y []float64, what string) {
	x, y = column(r.Steps, func(s Step) float64 { return float64(s.Step) }), column(r.Steps, func(s Step) float64 { return s.Loss })
	if len(r.Losses) <= len(y) {
		return x, y, "logged line"
	}
	x = make([]float64, len(r.Losses))
	for i := range x {
		x[i] = float64(i + 1)
	}
	return x, r.Losses, "step"
}

// Loss returns the end of the smoothed curve on the run's page; ok is false if there is none yet.
func (r *Run) Loss() (last float64, ok bool) {
	_, y, _ := r.losses()
	if y = Smooth(y); len(y) == 0 || !finite(y[len(y)-1]) {
		return 0, false
	}
	return y[len(y)-1], true
}

// lossPlot draws the losses, raw and smoothed.
func (r *Run) lossPlot() report.Plot {
	p := report.Plot{Title: "Loss", XLabel: "step", YLabel: r.lossUnit()}
	x, y, what := r.losses()
	switch {
	case len(y) >= few:
		smoothed := report.Series{Name: "training", X: x, Y: Smooth(y), Colour: 1}
		for _, share := range smoothings {
			smoothed.Levels = append(smoothed.Levels, report.Series{X: x, Y: smoothAt(y, share)})
		}
		p.Series = append(p.Series, report.Series{Name: "training, each " + what, X: x, Y: y, Style: report.Faint, Colour: 1}, smoothed)
		p.Levels, p.Level, p.Formula = smoothings, usual, formula(what)
	case len(y) > 0:
		p.Series = append(p.Series, report.Series{Name: "training", X: x, Y: y, Colour: 1})
	}
	if len(r.Evals) > 0 {
		e := report.Series{Name: "evaluation", Style: report.Points, Colour: 2}
		for _, v := range r.Evals {
			e.X, e.Y = append(e.X, float64(v.Step)), append(e.Y, v.Loss)
		}
		p.Series = append(p.Series, e)
	}
	return p
}

// formula describes how a level of smoothing is computed from the value of each step or logged line.
func formula(what string) string {
	return "Smoothing is the mean around each " + what + " with weights that halve every h " + what +
		"s to both sides: s(t) = Σ β^|t−i| y(i) / Σ β^|t−i|, β = 2^(−1/h). The half-life h is the chosen share of the curve, " +
		"rounded down, and at least 1. The newest value has only the past."
}

// memory returns the planned memory against its limit.
func (r *Run) memory() (report.Bar, bool) {
	if r.Plan == nil {
		held := r.HeldBytes()
		return report.Bar{Title: "Memory", LimitName: "the limit", Parts: []report.Part{{Name: "held", Bytes: held}}}, held > 0
	}
	b := MemoryBar(r.Plan)
	return b, len(b.Parts) > 0
}

// MemoryBar returns the planned memory of a plan against its limit.
func MemoryBar(p *train.PlanReport) report.Bar {
	b := report.Bar{Title: "Memory", LimitName: "the limit", Limit: p.Limit}
	for _, c := range p.Categories {
		b.Parts = append(b.Parts, report.Part{Name: c.Name, Bytes: c.Bytes})
	}
	b.Parts = report.MemoryParts(b.Parts)
	return b
}

// curves draws the numbers of each logged line beside the loss.
func (r *Run) curves() []report.Block {
	if len(r.Steps) == 0 {
		return nil
	}
	x := column(r.Steps, func(s Step) float64 { return float64(s.Step) })
	of := func(name string, v func(Step) float64) report.Series {
		return report.Series{Name: name, X: x, Y: column(r.Steps, v)}
	}
	known := func(s report.Series) bool {
		return slices.ContainsFunc(s.Y, func(v float64) bool { return !math.IsNaN(v) })
	}
	var blocks []report.Block
	plot := func(title, unit string, series ...report.Series) {
		p := report.Plot{Title: title, XLabel: "step", YLabel: unit}
		for _, s := range series {
			if known(s) {
				p.Series = append(p.Series, s)
			}
		}
		if p.Series != nil {
			blocks = append(blocks, p)
		}
	}
	plot("Learning rate", "", of("learning rate", func(s Step) float64 { return s.LearningRate }))
	plot("Gradient norm", "before and after clipping", of("raw", func(s Step) float64 { return s.GradNorm }), of("clipped", func(s Step) float64 { return s.Clipped }))
	plot("Throughput", "tokens a second, mean of the steps so far", of("tokens/s", func(s Step) float64 { return s.Rate }))
	plot("Loss scale", "", of("loss scale", func(s Step) float64 { return s.LossMult }))
	return blocks
}

// norms returns the tensors with the highest gradient norms.
func (r *Run) norms() report.Table {
	const most = 40
	all := slices.Clone(r.Norms)
	slices.SortStableFunc(all, func(a, b TensorNorms) int {
		switch {
		case a.Highest > b.Highest:
			return -1
		case a.Highest < b.Highest:
			return 1
		}
		return 0
	})
	t := report.Table{Columns: []report.Column{{Title: "tensor"}, {Title: "lowest", Right: true}, {Title: "mean", Right: true}, {Title: "last", Right: true},
		{Title: "highest", Right: true}, {Title: "at step", Right: true}, {Title: "lines", Right: true}, {Title: "not finite", Right: true}}}
	t.Caption = "Norms before clipping, of all tensors that are trained, the highest first."
	if len(all) > most {
		t.Caption = fmt.Sprintf("Norms before clipping: the %d highest of %d trained tensors.", most, len(all))
		all = all[:most]
	}
	for _, n := range all {
		row := []string{n.Name, "", "", "", "", "", report.Number(n.lines), report.Number(n.unknown)}
		if n.lines > 0 {
			copy(row[1:], []string{report.Number(n.Lowest), report.Number(n.Mean), report.Number(n.Last), report.Number(n.Highest), report.Number(n.HighestAt)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// terms returns "term: text" lines as fields.
func terms(text string) report.Fields {
	var f report.Fields
	for _, line := range strings.Split(text, "\n") {
		if term, rest, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			f = append(f, report.Field{Name: term, Value: rest})
		} else if line = strings.TrimSpace(line); line != "" {
			f = append(f, report.Field{Name: "", Value: line})
		}
	}
	return f
}

func settings(all []Setting) report.Fields {
	var f report.Fields
	for _, s := range all {
		f = append(f, report.Field{Name: s.Key, Value: orNone(s.Value), Changed: s.Changed})
	}
	return f
}

func orNone(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// environment returns what the manifest says about program, machine and inputs.
func (r *Run) environment() report.Fields {
	var f report.Fields
	add := func(name, value string) {
		if value != "" {
			f = append(f, report.Field{Name: name, Value: value})
		}
	}
	if m := r.Manifest; m != nil {
		add("program", m.Program)
		commit := m.Commit
		if m.Dirty {
			commit += " with files that differ from it"
		}
		add("commit", commit)
		add("Go", m.GoVersion)
		add("platform", m.Platform)
		add("device", m.Device)
		add("precision", m.Precision)
		for _, s := range software(m.Software) {
			add(s.Name, s.Value)
		}
		for _, h := range []struct{ name, value string }{
			{"configuration, SHA-256", m.Config}, {"data, SHA-256", m.Data}, {"base weights, SHA-256", m.Base},
			{"tokenizer and template, SHA-256", m.Tokenizer}, {"plan, SHA-256", m.Plan}, {"losses, SHA-256", m.Losses},
			{"adapter_model.safetensors, SHA-256", m.Adapter()},
		} {
			add(h.name, h.value)
		}
	} else if r.Plan != nil {
		add("device", r.Plan.Device)
		add("precision", r.Plan.Precision)
	}
	var saved []string
	for _, n := range r.Checkpoints {
		saved = append(saved, report.Whole(int64(n)))
	}
	if len(saved) > 12 {
		saved = append(append(slices.Clone(saved[:5]), "…"), saved[len(saved)-5:]...)
	}
	add("checkpoints at steps", strings.Join(saved, ", "))
	add("best checkpoint", r.Best)
	return f
}

// software lists the kernels, driver and libraries of a manifest, in its order.
func software(v any) report.Fields {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	var f report.Fields
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return f
		}
		var value any
		if dec.Decode(&value) != nil {
			return f
		}
		if s, ok := value.(string); ok {
			if s != "" {
				f = append(f, report.Field{Name: fmt.Sprint(name), Value: s})
			}
			continue
		}
		out, _ := json.Marshal(value)
		f = append(f, report.Field{Name: fmt.Sprint(name), Value: string(out)})
	}
	return f
}
