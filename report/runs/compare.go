package runs

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/session"
)

// mostName bounds a name, in characters: of a longer one the middle is left out.
const mostName = 60

// SetNames gives each run the shortest end of its path that no other has. Names that are equal then, as of a folder that
// is given twice, get a number.
func SetNames(all []*Run) {
	for depth := 1; depth <= 8; depth++ {
		seen := map[string]int{}
		for _, r := range all {
			r.Name = shortened(tail(abs(r.Dir), depth))
			seen[r.Name]++
		}
		if len(seen) == len(all) {
			return
		}
	}
	seen := map[string]int{}
	for _, r := range all {
		if seen[r.Name]++; seen[r.Name] > 1 {
			r.Name = fmt.Sprintf("%s (%d)", r.Name, seen[r.Name])
		}
	}
}

func shortened(name string) string {
	r := []rune(name)
	if len(r) <= mostName {
		return name
	}
	return string(r[:mostName/2-1]) + "…" + string(r[len(r)-mostName/2:])
}

func tail(path string, depth int) string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	return strings.Join(parts[max(0, len(parts)-depth):], "/")
}

// compare lays runs out beside each other.
func compare(all []*Run) report.Page {
	p := report.Page{Title: fmt.Sprintf("%d runs compared", len(all)), Verdict: bestOf(all)}
	groups := bySeed(all)
	p.Add("", overlay(groups, "Training loss, smoothed", "step", func(s Step) float64 { return float64(s.Step) }), results(all))
	if e := evaluations(groups); len(e.Series) > 0 {
		p.Add("Evaluation", e)
	}
	p.Add("By tokens and by time", overlay(groups, "Training loss, smoothed", "tokens", func(s Step) float64 { return s.Tokens }),
		overlay(groups, "Training loss, smoothed", "seconds", func(s Step) float64 { return s.Seconds }))
	p.Add("What differs in the configuration", differences(all, func(r *Run) []Setting { return r.Settings }))
	p.Add("What differs in the environment", differences(all, func(r *Run) []Setting {
		var s []Setting
		for _, f := range r.environment() {
			switch {
			case strings.Contains(f.Name, "checkpoint") || strings.HasPrefix(f.Name, "configuration") || strings.HasPrefix(f.Name, "losses"):
				continue // they differ wherever two runs do
			case strings.HasSuffix(f.Name, "SHA-256"):
				f.Value = f.Value[:min(len(f.Value), 12)]
			}
			s = append(s, Setting{Key: f.Name, Value: f.Value})
		}
		return s
	}))
	var bad report.Checks
	for _, r := range all {
		for _, c := range problems(r) {
			c.What = r.Name + ": " + c.What
			bad = append(bad, c)
		}
	}
	if bad != nil {
		p.Add("What could not be read", bad)
	}
	return p
}

// best is the index of the run with the lowest evaluation loss; -1 where none was evaluated.
func best(all []*Run) int {
	at := -1
	for i, r := range all {
		if e := r.BestEval(); e != nil && (at < 0 || e.Loss < all[at].BestEval().Loss) {
			at = i
		}
	}
	return at
}

func bestOf(all []*Run) report.Verdict {
	i := best(all)
	if i < 0 {
		return report.Verdict{State: report.Note, Text: "No run was evaluated, so none is marked as the best: training losses of different runs do not tell."}
	}
	e := all[i].BestEval()
	v := report.Verdict{State: report.Note, Text: fmt.Sprintf("Best by evaluation loss: %s, %s at step %s.", all[i].Name, report.Number(e.Loss), report.Whole(int64(e.Step)))}
	keys := []string{"dataset.path", "dataset.sources", "dataset.val_split", "dataset.val_path", "dataset.val_sources", "dataset.max_length"}
	if split := all[0].Setting("dataset.val_split"); split != "" && split != "0" {
		keys = append(keys, "seed") // it chooses the rows that are held out
	}
	for _, key := range keys {
		for _, r := range all {
			if r.Setting(key) != all[0].Setting(key) {
				v.Text += " " + key + " differs: these losses are of different rows."
				return v
			}
		}
	}
	return v
}

// group is runs that differ in their seed alone.
type group struct {
	name string
	runs []*Run
}

// bySeed puts runs together that differ in their seed and output folder alone. Each group stands where its first run does.
func bySeed(all []*Run) []group {
	var groups []group
	at := map[string]int{}
	for _, r := range all {
		var key strings.Builder
		for _, s := range r.Settings {
			if s.Key != "seed" && s.Key != "output_dir" && s.Key != "training.resume" {
				fmt.Fprintf(&key, "%q=%q\n", s.Key, s.Value)
			}
		}
		k, ok := at[key.String()]
		if !ok || len(r.Settings) == 0 {
			k = len(groups)
			groups = append(groups, group{})
			at[key.String()] = k
		}
		groups[k].runs = append(groups[k].runs, r)
	}
	for i := range groups {
		g := &groups[i]
		g.name = g.runs[0].Name
		seeds := map[string]bool{}
		for _, r := range g.runs {
			seeds[r.Setting("seed")] = true
		}
		switch n := len(g.runs); {
		case n > 1 && len(seeds) == n:
			g.name = fmt.Sprintf("%s, %d seeds", g.name, n)
		case n > 1: // some have the same seed
			g.name = fmt.Sprintf("%s, %d runs", g.name, n)
		}
	}
	return groups
}

// overlay draws the smoothed training losses over what x says.
func overlay(groups []group, title, label string, x func(Step) float64) report.Plot {
	p := report.Plot{Title: title + ", by " + label, XLabel: label, YLabel: "nats a token"}
	spread := false
	for i, g := range groups {
		var lines []report.Series
		for _, r := range g.runs {
			s := report.Series{Name: g.name, X: column(r.Steps, x), Y: r.Smoothed(), Colour: i + 1}
			if s.X, s.Y = whole(s.X, s.Y); len(s.X) > 0 {
				lines = append(lines, s)
			}
		}
		switch len(lines) {
		case 0:
		case 1:
			p.Series = append(p.Series, lines[0])
		default:
			spread = true
			p.Series = append(p.Series, band(lines))
		}
	}
	if spread {
		p.Note = "A band spans the lowest and the highest of runs that differ in nothing but their seed; its line is their mean."
	}
	return p
}

// whole leaves out points without an x.
func whole(x, y []float64) (xs, ys []float64) {
	for i := range x {
		if finite(x[i]) {
			xs, ys = append(xs, x[i]), append(ys, y[i])
		}
	}
	return xs, ys
}

// band is the mean of curves and their spread, at the places of the first that all of them reach. Between its points a
// curve is a straight line.
func band(lines []report.Series) report.Series {
	out := report.Series{Name: lines[0].Name, Colour: lines[0].Colour}
	for _, x := range lines[0].X {
		sum, lo, hi, n := 0.0, math.Inf(1), math.Inf(-1), 0
		for _, l := range lines {
			if v := at(l, x); finite(v) {
				sum, lo, hi, n = sum+v, min(lo, v), max(hi, v), n+1
			}
		}
		if n == len(lines) {
			out.X, out.Y = append(out.X, x), append(out.Y, sum/float64(n))
			out.Lower, out.Upper = append(out.Lower, lo), append(out.Upper, hi)
		}
	}
	return out
}

// at is a curve's value at x; NaN outside of it.
func at(s report.Series, x float64) float64 {
	i, found := slices.BinarySearch(s.X, x)
	switch {
	case found:
		return s.Y[i]
	case i == 0 || i == len(s.X):
		return math.NaN()
	}
	t := (x - s.X[i-1]) / (s.X[i] - s.X[i-1])
	return s.Y[i-1] + t*(s.Y[i]-s.Y[i-1])
}

// evaluations draws the evaluation losses.
func evaluations(groups []group) report.Plot {
	p := report.Plot{Title: "Evaluation loss, by step", XLabel: "step", YLabel: "nats a token"}
	for i, g := range groups {
		var lines []report.Series
		for _, r := range g.runs {
			s := report.Series{Name: g.name, Style: report.Points, Colour: i + 1}
			for _, e := range r.Evals {
				s.X, s.Y = append(s.X, float64(e.Step)), append(s.Y, e.Loss)
			}
			if len(s.X) > 0 {
				lines = append(lines, s)
			}
		}
		if len(lines) == 1 {
			p.Series = append(p.Series, lines[0])
		} else if len(lines) > 1 {
			b := band(lines)
			b.Style = report.Points
			p.Series = append(p.Series, b)
		}
	}
	return p
}

// results is a row for each run.
func results(all []*Run) report.Table {
	t := report.Table{Columns: []report.Column{{Title: "run"}, {Title: "state"}, {Title: "steps", Right: true}, {Title: "training loss, smoothed", Right: true},
		{Title: "best evaluation loss", Right: true}, {Title: "at step", Right: true}, {Title: "tokens", Right: true}, {Title: "tokens/s", Right: true},
		{Title: "time", Right: true}, {Title: "memory", Right: true}}}
	b := best(all)
	for i, r := range all {
		s := r.Summary()
		name := s.Name
		if i == b {
			name += " (best)"
			t.Strong = []int{i}
		}
		steps := report.Whole(int64(s.Step))
		if s.Total > 0 {
			steps += " of " + report.Whole(int64(s.Total))
		}
		row := []string{name, string(s.Status), steps, text(s.Loss), "–", "–", text(s.Tokens), text(s.TokensPerSecond), "–", "–"}
		if s.BestEval != nil {
			row[4], row[5] = text(s.BestEval), report.Whole(int64(*s.BestEvalStep))
		}
		if s.Seconds != nil {
			row[8] = report.Duration(seconds(*s.Seconds))
		}
		if s.HeldBytes > 0 {
			row[9] = session.FormatBytes(s.HeldBytes)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func text(v *float64) string {
	if v == nil {
		return "–"
	}
	return report.Number(*v)
}

// differences are the settings that are not the same in all runs, in the order of the first run that has them.
func differences(all []*Run, of func(*Run) []Setting) report.Block {
	var keys []string
	values := make([]map[string]string, len(all))
	for i, r := range all {
		values[i] = map[string]string{}
		for _, s := range of(r) {
			if _, ok := values[i][s.Key]; !ok {
				values[i][s.Key] = s.Value
			}
			if !slices.Contains(keys, s.Key) {
				keys = append(keys, s.Key)
			}
		}
	}
	t := report.Table{Columns: []report.Column{{Title: "key"}}}
	for _, r := range all {
		t.Columns = append(t.Columns, report.Column{Title: r.Name})
	}
	for _, key := range keys {
		row, differs := []string{key}, false
		for i := range all {
			v, ok := values[i][key]
			section, _, inside := strings.Cut(key, ".")
			if empty, there := values[i][section]; !ok && !(inside && there && orNone(empty) == "–") {
				v = "not known"
			}
			v = orNone(v)
			differs = differs || i > 0 && v != row[1]
			row = append(row, v)
		}
		isSection := slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, key+".") })
		if differs && !isSection {
			t.Rows = append(t.Rows, row)
		}
	}
	if t.Rows == nil {
		return report.Text("Nothing.")
	}
	return t
}
