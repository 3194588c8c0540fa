package runs

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// mostName is the largest length of a name in characters; a longer name loses its middle.
const mostName = 60

// SetNames gives each run the shortest end of its path that no other run has. Names that are still equal, such as those
// of a folder that is given twice, get a number. A title that a person wrote replaces the name.
func SetNames(all []*Run) {
	for depth := 1; depth <= 8; depth++ {
		seen := map[string]int{}
		for _, r := range all {
			r.Name = tail(abs(r.Dir), depth)
			seen[r.Name]++
		}
		if len(seen) == len(all) {
			break
		}
	}
	alike := map[string][]*Run{} // runs by their shortened names
	for _, r := range all {
		name := shortened(r.Name)
		alike[name] = append(alike[name], r)
	}
	for name, some := range alike {
		if len(some) == 1 {
			some[0].Name = name
			continue
		}
		for i, part := range namesOf(some) {
			some[i].Name = shortened(part)
		}
	}
	seen := map[string]int{}
	for _, r := range all {
		if r.About.Title != "" {
			r.Name = r.About.Title
		}
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

// compare lays out runs side by side.
func compare(all []*Run) report.Page {
	p := report.Page{Title: fmt.Sprintf("%d runs compared", len(all)), Verdict: bestOf(all)}
	groups := bySeed(all)
	p.Add("", overlay(groups, "Training loss", "step", func(s Step) float64 { return float64(s.Step) }), results(all))
	if e := evaluations(groups); len(e.Series) > 0 {
		p.Add("Evaluation", e)
	}
	p.Add("By tokens and by time", overlay(groups, "Training loss", "tokens", func(s Step) float64 { return s.Tokens }),
		overlay(groups, "Training loss", "seconds", func(s Step) float64 { return s.Seconds }))
	if n := comparedNumbers(all); n != nil {
		p.Add("Numbers of the objective", n...)
	}
	p.Add("What differs in the configuration", differences(all, func(r *Run) []Setting { return r.Settings }))
	p.Add("What differs in the environment", differences(all, func(r *Run) []Setting {
		var s []Setting
		for _, f := range r.environment() {
			switch {
			case strings.Contains(f.Name, "checkpoint") || strings.HasPrefix(f.Name, "configuration") || strings.HasPrefix(f.Name, "losses"):
				continue // these keys differ between any two runs
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

// comparedBy returns the key of the number by which runs are compared: their common training.metric_for_best_model, or
// the loss if they have different ones.
func comparedBy(all []*Run) string {
	if len(all) == 0 || slices.ContainsFunc(all, func(r *Run) bool { return r.bestBy() != all[0].bestBy() }) {
		return train.EvalLoss
	}
	return all[0].bestBy()
}

// best returns the index of the run with the best evaluation by a number; -1 if no run was evaluated.
func best(all []*Run, by string) int {
	at := -1
	for i, r := range all {
		m := r.bestOf(by)
		if m != nil && (at < 0 || r.better(by, m.Value, all[at].bestOf(by).Value)) {
			at = i
		}
	}
	return at
}

func bestOf(all []*Run) report.Verdict {
	by := comparedBy(all)
	i := best(all, by)
	if i < 0 {
		return report.Verdict{State: report.Note, Text: "No run was evaluated, so none is marked as the best: training losses of different runs do not tell."}
	}
	m, what := all[i].bestOf(by), by
	if by == train.EvalLoss {
		what = "evaluation loss"
	}
	v := report.Verdict{State: report.Note, Text: fmt.Sprintf("Best by %s: %s, %s at step %s.", what,
		all[i].Name, report.Number(m.Value), report.Whole(int64(m.Step)))}
	keys := []string{"dataset.path", "dataset.sources", "dataset.val_split", "dataset.val_path", "dataset.val_sources", "dataset.max_length"}
	if split := all[0].Setting("dataset.val_split"); split != "" && split != "0" {
		keys = append(keys, "seed") // the seed chooses the validation rows
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

// group has runs that differ only in their seed.
type group struct {
	name string
	runs []*Run
}

// bySeed groups runs that differ only in their seed and output folder. Each group stands at the position of its first
// run.
func bySeed(all []*Run) []group {
	var groups []group
	at, names := map[string]int{}, map[*Run]string{}
	for i, name := range namesOf(all) {
		names[all[i]] = name
	}
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
		g.name = names[g.runs[0]]
		seeds := map[string]bool{}
		for _, r := range g.runs {
			seeds[r.Setting("seed")] = true
		}
		switch n := len(g.runs); {
		case n > 1 && len(seeds) == n:
			g.name = fmt.Sprintf("%s, %d seeds", g.name, n)
		case n > 1: // some runs have the same seed
			g.name = fmt.Sprintf("%s, %d runs", g.name, n)
		}
	}
	return groups
}

// overlay draws the smoothed training losses over the values of x.
func overlay(groups []group, title, label string, x func(Step) float64) report.Plot {
	p := report.Plot{Title: title + ", by " + label, XLabel: label, YLabel: unitOf(groups)}
	spread := false
	for i, g := range groups {
		var lines []report.Series
		for _, r := range g.runs {
			s := report.Series{Name: g.name, X: column(r.Steps, x), Colour: i + 1}
			for _, share := range smoothings {
				l := report.Series{X: s.X, Y: r.smoothedAt(share), Colour: i + 1}
				l.X, l.Y = whole(l.X, l.Y)
				s.Levels = append(s.Levels, l)
			}
			if s.X, s.Y = s.Levels[usual].X, s.Levels[usual].Y; len(s.X) > 0 {
				lines = append(lines, s)
			}
		}
		switch len(lines) {
		case 0:
		case 1:
			p.Series = append(p.Series, lines[0])
		default:
			spread = true
			mean := band(lines)
			for k := range smoothings {
				var at []report.Series
				for _, l := range lines {
					at = append(at, l.Levels[k])
				}
				mean.Levels = append(mean.Levels, band(at))
			}
			p.Series = append(p.Series, mean)
		}
	}
	if p.Series != nil {
		p.Levels, p.Level, p.Formula = smoothings, usual, formula("logged line")
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

// band returns the mean of curves and their spread, at the x values of the first curve that all curves reach. Between
// its points a curve is interpolated linearly.
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

// at returns a curve's value at x; NaN outside of it.
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
	p := report.Plot{Title: "Evaluation loss, by step", XLabel: "step", YLabel: unitOf(groups)}
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

// results returns a table with a row for each run. It leaves out a column that is empty or the same for all runs.
func results(all []*Run) report.Table {
	columns := []report.Column{{Title: "run"}, {Title: "state"}, {Title: "steps", Right: true}, {Title: "loss", Right: true, Full: "training loss, smoothed"},
		{Title: "eval loss", Right: true, Full: "best evaluation loss"}, {Title: "tokens", Right: true}, {Title: "tokens/s", Right: true},
		{Title: "time", Right: true}, {Title: "memory", Right: true}}
	b, names := best(all, comparedBy(all)), namesOf(all)
	var rows [][]string
	t := report.Table{}
	for i, r := range all {
		s := r.Summary()
		name := names[i]
		if i == b {
			name += " (best)"
			t.Strong = []int{i}
		}
		steps := report.Whole(int64(s.Step))
		if s.Total > 0 && s.Total != s.Step {
			steps += " of " + report.Whole(int64(s.Total))
		}
		row := []string{name, string(s.Status), steps, text(s.Loss), "–", text(s.Tokens), text(s.TokensPerSecond), "–", "–"}
		if s.TokensPerSecond != nil {
			row[6] = report.Whole(int64(min(*s.TokensPerSecond, 1e15)))
		}
		if s.BestEval != nil {
			row[4] = text(s.BestEval) + " at " + report.Whole(int64(*s.BestEvalStep))
		}
		if s.Seconds != nil {
			row[7] = report.Duration(seconds(*s.Seconds))
		}
		if s.HeldBytes > 0 {
			row[8] = session.FormatBytes(s.HeldBytes)
		}
		rows = append(rows, row)
	}
	t.Rows = make([][]string, len(rows))
	for j, c := range columns {
		empty, finished := true, j == 1
		for _, row := range rows {
			empty, finished = empty && row[j] == "–", finished && row[j] == string(Finished)
		}
		if empty || finished {
			continue
		}
		t.Columns = append(t.Columns, c)
		for i, row := range rows {
			t.Rows[i] = append(t.Rows[i], row[j])
		}
	}
	return t
}

// namesOf returns the parts in which the names of runs differ.
func namesOf(all []*Run) []string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Name
	}
	return differing(names)
}

// longName is the length in characters above which a name loses what it shares with all others.
const longName = 20

// differing shortens texts to the part in which they differ, if the longest has more than longName characters: whole
// words that all texts begin or end with become "…". Texts that differ never become equal.
func differing(texts []string) []string {
	longest := 0
	for _, t := range texts {
		longest = max(longest, len([]rune(t)))
	}
	if len(texts) < 2 || longest <= longName {
		return texts
	}
	words := make([][]string, len(texts))
	least := math.MaxInt
	for i, t := range texts {
		words[i] = wordsOf(t)
		least = min(least, len(words[i]))
	}
	head, tail := 0, 0
	for head < least-1 && sameWord(words, func(w []string) string { return w[head] }) {
		head++
	}
	for tail < least-1-head && sameWord(words, func(w []string) string { return w[len(w)-1-tail] }) {
		tail++
	}
	for head > 0 && shortest(words, head, tail) < leastPart {
		head-- // one more word gives a lone number its meaning
	}
	short := make([]string, len(texts))
	for i, w := range words {
		short[i] = strings.Join(w[head:len(w)-tail], "")
		if head > 0 {
			short[i] = "…" + short[i]
		}
		if tail > 0 {
			short[i] += "…"
		}
	}
	return short
}

// leastPart is the least number of characters that a shortened name keeps.
const leastPart = 5

// shortest returns the length in bytes of the shortest text after words at both ends are left out.
func shortest(words [][]string, head, tail int) int {
	least := math.MaxInt
	for _, w := range words {
		least = min(least, len(strings.Join(w[head:len(w)-tail], "")))
	}
	return least
}

// sameWord reports whether all texts have the same word at a position.
func sameWord(words [][]string, at func([]string) string) bool {
	return !slices.ContainsFunc(words[1:], func(w []string) bool { return at(w) != at(words[0]) })
}

// wordsOf splits a text after each character that is neither a letter nor a digit.
func wordsOf(text string) []string {
	var words []string
	from := 0
	for i, r := range text {
		if end := i + utf8.RuneLen(r); r != utf8.RuneError && !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' {
			words, from = append(words, text[from:end]), end
		}
	}
	return append(words, text[from:])
}

func text(v *float64) string {
	if v == nil {
		return "–"
	}
	return report.Number(*v)
}

// differences returns the settings that are not the same in all runs, in the order of the first run that has them.
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
	var rows [][]string
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
			rows = append(rows, append(row[:1:1], differing(row[1:])...))
		}
	}
	switch {
	case rows == nil:
		return report.Text("Nothing.")
	case len(all) > mostColumns:
		return byValue(all, rows)
	}
	t := report.Table{Columns: []report.Column{{Title: "key"}}, Rows: rows}
	for i, name := range namesOf(all) {
		t.Columns = append(t.Columns, report.Column{Title: name, Full: all[i].Name})
	}
	return t
}

// mostColumns is the largest number of runs that stand side by side as columns of a table of settings.
const mostColumns = 5

// byValue returns the table of settings of many runs: a row for each value, with the runs that have it.
func byValue(all []*Run, rows [][]string) report.Table {
	t := report.Table{Columns: []report.Column{{Title: "key"}, {Title: "value"}, {Title: "runs"}}}
	names := namesOf(all)
	for _, row := range rows {
		key := row[0]
		for i, value := range row[1:] {
			if slices.Index(row[1:], value) != i {
				continue
			}
			var who []string
			for k := i; k < len(all); k++ {
				if row[1+k] == value {
					who = append(who, names[k])
				}
			}
			t.Rows = append(t.Rows, []string{key, value, strings.Join(who, ", ")})
		}
	}
	return t
}
