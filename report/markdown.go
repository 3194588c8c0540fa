package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/session"
)

// MarkdownMark begins every page in Markdown, as Mark begins every page in HTML. It is a comment.
const MarkdownMark = "<!-- tierlora report -->\n\n"

// Markdown writes the page in GitHub's Markdown: plots as tables with sparklines.
func (p Page) Markdown(out io.Writer) error {
	w := &markdown{}
	w.WriteString(MarkdownMark)
	w.line("# " + escape(p.Title))
	if p.Subtitle != "" {
		w.line(escape(p.Subtitle))
	}
	if p.Verdict.Text != "" {
		mark := stateWord(p.Verdict.State)
		if p.Verdict.Named {
			mark, _, _ = strings.Cut(mark, " ")
		}
		w.line(strings.TrimSpace(mark + " **" + escape(p.Verdict.Text) + "**"))
	}
	for _, text := range strings.Split(p.Note, "\n") {
		if strings.TrimSpace(text) != "" {
			w.line(escape(text))
		}
	}
	for _, text := range p.Warnings {
		w.line(stateWord(Warn) + " " + escape(text))
	}
	for _, s := range p.Sections {
		if s.Title != "" {
			w.line("## " + escape(s.Title))
		}
		for _, b := range s.Blocks {
			b.markdown(w)
		}
	}
	_, err := out.Write(append(bytes.TrimRight(w.Bytes(), "\n"), '\n'))
	return err
}

// markdown is a Markdown document that is being written. Every block ends with an empty line.
type markdown struct{ bytes.Buffer }

func (w *markdown) line(s string) { fmt.Fprintf(w, "%s\n\n", s) }

// row writes a row of a table; the cells are escaped already.
func (w *markdown) row(cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

// stateWord returns the word for a state where no colour shows it.
func stateWord(s State) string {
	switch s {
	case Pass:
		return "✅ pass:"
	case Fail:
		return "❌ fail:"
	case Skip:
		return "⚠️ skipped:"
	case Warn:
		return "⚠️ warning:"
	}
	return ""
}

// escape escapes a text so that Markdown takes it literally in a paragraph, a heading and a cell of a table.
func escape(s string) string {
	s = plain(s)
	var b strings.Builder
	for i, r := range s {
		if r == '_' && inWord(s, i) {
			b.WriteByte('_')
			continue
		}
		if strings.ContainsRune("\\`*_{}[]<>()#|!~&$@", r) ||
			r == ':' && strings.HasPrefix(s[i:], "://") ||
			r == '.' && strings.HasSuffix(strings.ToLower(s[:i]), "www") {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	t := b.String()
	if t != "" && strings.ContainsRune("-+=", rune(t[0])) {
		return `\` + t
	}
	if n := strings.IndexFunc(t, func(r rune) bool { return r < '0' || r > '9' }); n > 0 && (t[n] == '.' || t[n] == ')') && (n+1 == len(t) || t[n+1] == ' ') {
		return t[:n] + `\` + t[n:]
	}
	return t
}

// inWord tells whether the byte at i stands between letters and digits, where an underscore is no mark.
func inWord(s string, i int) bool {
	letter := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }
	return i > 0 && i+1 < len(s) && letter(s[i-1]) && letter(s[i+1])
}

func (t Table) markdown(w *markdown) {
	if len(t.Columns) == 0 {
		return
	}
	if t.Caption != "" {
		w.line(escape(t.Caption))
	}
	var head, rule []string
	for _, c := range t.Columns {
		head = append(head, escape(c.Title))
		if c.Right {
			rule = append(rule, "---:")
		} else {
			rule = append(rule, "---")
		}
	}
	w.row(head...)
	w.row(rule...)
	for i, row := range t.Rows {
		cells := make([]string, len(t.Columns))
		for j := range min(len(row), len(cells)) {
			cells[j] = bold(escape(row[j]), slices.Contains(t.Strong, i))
		}
		w.row(cells...)
	}
	w.WriteByte('\n')
}

func bold(s string, on bool) string {
	if on && s != "" {
		return "**" + s + "**"
	}
	return s
}

func (f Fields) markdown(w *markdown) {
	if len(f) == 0 {
		return
	}
	w.row("", "")
	w.row("---", "---")
	for _, x := range f {
		w.row(bold(escape(x.Name), x.Changed), bold(escape(x.Value), x.Changed))
	}
	w.WriteByte('\n')
}

func (f Figures) markdown(w *markdown) {
	if len(f) == 0 {
		return
	}
	w.row("", "", "")
	w.row("---", "---:", "---")
	for _, x := range f {
		w.row(escape(x.Name), bold(escape(x.Value), true), escape(x.Note))
	}
	w.WriteByte('\n')
}

func (c Checks) markdown(w *markdown) {
	if len(c) == 0 {
		return
	}
	w.row("check", "result", "")
	w.row("---", "---", "---")
	for _, x := range c {
		w.row(escape(x.What), strings.TrimSuffix(stateWord(x.State), ":"), escape(x.Detail))
	}
	w.WriteByte('\n')
}

func (p Plot) markdown(w *markdown) {
	if p.Title != "" {
		w.line("**" + escape(p.Title) + "**")
	}
	if len(p.Series) == 0 {
		w.line("No values yet.")
		return
	}
	value := escape(p.YLabel)
	if value == "" {
		value = "value"
	}
	w.row(value, "lowest", "median", "highest", "last", "points", "by "+escape(orText(p.XLabel, "order")))
	w.row("---", "---:", "---:", "---:", "---:", "---:", "---")
	for _, s := range p.Series {
		_, y := s.points()
		v := slices.DeleteFunc(slices.Clone(y), func(v float64) bool { return !finite(v) })
		if len(v) == 0 {
			w.row(escape(s.Name), "", "", "", "", fmt.Sprint(len(y)), "")
			continue
		}
		last := v[len(v)-1]
		slices.Sort(v)
		w.row(escape(s.Name), Number(v[0]), Number(median(v)), Number(v[len(v)-1]), Number(last), Whole(int64(len(y))), spark(y))
	}
	w.WriteByte('\n')
	for _, note := range append(p.notes(), p.Formula) {
		if note != "" {
			w.line(escape(note))
		}
	}
}

// median is of ascending values.
func median(v []float64) float64 {
	return v[(len(v)-1)/2]/2 + v[len(v)/2]/2
}

// sparkWidth is how many characters a sparkline has at most.
const sparkWidth = 32

// spark draws values as a line of blocks, each the mean of its share; × where one of them is not finite.
func spark(y []float64) string {
	n := min(sparkWidth, len(y))
	means := make([]float64, n)
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range n {
		from, to := i*len(y)/n, (i+1)*len(y)/n
		for _, v := range y[from:to] {
			means[i] += v / float64(to-from)
		}
		if finite(means[i]) {
			lo, hi = min(lo, means[i]), max(hi, means[i])
		}
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, m := range means {
		switch {
		case !finite(m):
			b.WriteRune('×')
		case !(hi/2 > lo/2):
			b.WriteRune(blocks[3])
		default:
			b.WriteRune(blocks[min(7, int(8*((m/2-lo/2)/(hi/2-lo/2))))])
		}
	}
	return b.String()
}

func (b Bar) markdown(w *markdown) {
	if b.Title != "" {
		w.line("**" + escape(b.Title) + "**")
	}
	w.row("memory", "size", "bytes")
	w.row("---", "---:", "---:")
	for _, p := range b.rows() {
		w.row(escape(p.Name), session.FormatBytes(p.Bytes), Whole(p.Bytes))
	}
	w.WriteByte('\n')
}

// rows is the parts, their sum and what the limit leaves.
func (b Bar) rows() []Part {
	rows := slices.Clone(b.Parts)
	total := b.total()
	rows = append(rows, Part{"total", total})
	switch {
	case b.Limit <= 0:
	case total <= b.Limit:
		rows = append(rows, Part{"free", b.Limit - total}, Part{orText(b.LimitName, "limit"), b.Limit})
	default:
		rows = append(rows, Part{"over the limit by", total - b.Limit}, Part{orText(b.LimitName, "limit"), b.Limit})
	}
	return rows
}

func (b Bar) total() int64 {
	total := int64(0)
	for _, p := range b.Parts {
		total += max(0, p.Bytes)
	}
	return total
}

func (t Text) markdown(w *markdown) { w.line(escape(string(t))) }

func (c Code) markdown(w *markdown) {
	if c.Title != "" {
		w.line(escape(c.Title))
	}
	text := strings.TrimRight(printable(c.Text), "\n")
	fence, run := 3, 0
	for _, r := range text {
		if r == '`' {
			run++
			fence = max(fence, run+1)
		} else {
			run = 0
		}
	}
	mark := strings.Repeat("`", fence)
	w.line(mark + "text\n" + text + "\n" + mark)
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// finite leaves out what is beyond 1e300 too, whose differences overflow.
func finite(v float64) bool { return math.Abs(v) <= 1e300 }
