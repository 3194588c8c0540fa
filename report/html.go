package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/tierlora/tierlora/session"
)

var (
	//go:embed page.css
	style string
	//go:embed page.js
	script string
	//go:embed page.html
	source string
)

// Mark begins every page in HTML, so that programs recognise a file that they may replace.
const Mark = "<!doctype html>\n<html lang=\"en\">\n<meta name=\"generator\" content=\"tierlora report\">\n"

var templates = template.Must(template.New("page").Funcs(template.FuncMap{
	"plain": plain, "text": printable, "word": stateName, "verdict": verdictOf,
	// data is JSON that writeNumbers made: numbers, null and keys of our own.
	"data": func(b []byte) template.JS { return template.JS(b) }, //nolint:gosec // no text from elsewhere is in it
}).Parse(source))

// HTML writes the page as one file that loads nothing: it contains style, script and data, and its content security
// policy allows nothing else. Without script the page shows the same, but plots do not zoom.
func (p Page) HTML(out io.Writer) error {
	w := &page{points: pagePoints / max(1, p.plots())}
	fmt.Fprintf(w, "%s<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'\">\n",
		Mark, hash(style), hash(script))
	fmt.Fprint(w, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n")
	fmt.Fprintf(w, "<title>%s</title>\n<style>%s</style>\n", template.HTMLEscapeString(plain(p.Title)), style)
	if err := w.render("head", p); err != nil {
		return err
	}
	for i, s := range p.Sections {
		if err := w.section(i, s); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "</main>\n<script>%s</script>\n</body>\n</html>\n", script)
	_, err := out.Write(w.Bytes())
	return err
}

// plots returns the number of plots of a page.
func (p Page) plots() int {
	n := 0
	for _, s := range p.Sections {
		for _, b := range s.Blocks {
			if _, ok := b.(Plot); ok {
				n++
			}
		}
	}
	return n
}

// hash returns the source expression by which a content security policy allows a text.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// page is an HTML document that is being written.
type page struct {
	bytes.Buffer
	points int // points that each plot may keep
	share  int // points that each series may keep; 0 = as points says
}

func (w *page) render(name string, v any) error {
	if err := templates.ExecuteTemplate(w, name, v); err != nil {
		return fmt.Errorf("lay out %s: %w", name, err)
	}
	return nil
}

type sectionView struct {
	Section
	N int
}

// section writes a section; plots that follow each other stand beside each other where there is room.
func (w *page) section(i int, s Section) error {
	if err := w.render("open", sectionView{s, i}); err != nil {
		return err
	}
	for j := 0; j < len(s.Blocks); j++ {
		run := j
		for run < len(s.Blocks) && isPlot(s.Blocks[run]) {
			run++
		}
		if run-j > 1 {
			fmt.Fprint(w, "<div class=\"plots\">\n")
			for ; j < run; j++ {
				if err := s.Blocks[j].html(w); err != nil {
					return err
				}
			}
			fmt.Fprint(w, "</div>\n")
			j--
			continue
		}
		if err := s.Blocks[j].html(w); err != nil {
			return err
		}
	}
	return w.render("close", s)
}

func isPlot(b Block) bool { _, ok := b.(Plot); return ok }

func stateName(s State) string {
	switch s {
	case Pass:
		return "pass"
	case Fail:
		return "fail"
	case Skip:
		return "skipped"
	case Warn:
		return "warning"
	}
	return ""
}

// verdictView is a verdict with its first word separate.
type verdictView struct {
	State      State
	Word, Text string
	Named      bool
}

func verdictOf(v Verdict) verdictView {
	word, rest := v.word()
	return verdictView{State: v.State, Word: word, Text: rest, Named: v.Named}
}

type cellView struct {
	Text, Column string
	Right        bool
}

type rowView struct {
	Strong bool
	Cells  []cellView
}

func (t Table) html(w *page) error {
	if len(t.Columns) == 0 {
		return nil
	}
	var rows []rowView
	for i, row := range t.Rows {
		r := rowView{Strong: slices.Contains(t.Strong, i), Cells: make([]cellView, len(t.Columns))}
		for j, c := range t.Columns {
			r.Cells[j].Right, r.Cells[j].Column = c.Right, orText(c.Full, c.Title)
			if j < len(row) {
				r.Cells[j].Text = row[j]
			}
		}
		rows = append(rows, r)
	}
	return w.render("table", struct {
		Caption string
		Columns []Column
		Rows    []rowView
	}{t.Caption, t.Columns, rows})
}

func (f Fields) html(w *page) error  { return w.render("fields", f) }
func (f Figures) html(w *page) error { return w.render("figures", f) }
func (c Checks) html(w *page) error  { return w.render("checks", c) }
func (t Text) html(w *page) error    { return w.render("text", string(t)) }
func (c Code) html(w *page) error    { return w.render("code", c) }
func (p Plot) html(w *page) error    { return w.render("plot", p.view(w.points, w.share)) }

// segment is one drawn part of a bar.
type segment struct {
	Name, Size, Share, Class string
	X, Width, Middle         string
	Wide                     bool // the name fits inside
}

type barView struct {
	Title, Total, LimitName, Limit, Share, Free, Over string
	// Segments against the limit; Closer shows them alone if the first are too small to see.
	Bar, Closer []segment
	LimitAt     string
	FreeAt      string // centre of the free part, if its name fits there
	// Class of the used part, if it is narrower than a pixel or two.
	Sliver string
	Label  string
}

// html draws the parts against the limit. If they fill less than a third of it, html also draws them alone.
func (b Bar) html(w *page) error {
	total := b.total()
	v := barView{Title: b.Title, Total: session.FormatBytes(total), Label: orText(b.Title, "memory")}
	if b.Limit > 0 {
		v.LimitName, v.Limit = orText(b.LimitName, "limit"), session.FormatBytes(b.Limit)
		v.Share = Percent(float64(total) / float64(b.Limit))
		if total > b.Limit {
			v.Over, v.LimitAt = session.FormatBytes(total-b.Limit), percent(float64(b.Limit)/float64(total))
		} else {
			v.Free = session.FormatBytes(b.Limit - total)
		}
	}
	v.Bar = b.segments(max(total, b.Limit), total)
	if held := float64(total) / float64(max(b.Limit, 1)); b.Limit > 0 && held < 0.7 {
		v.FreeAt = percent((1 + held) / 2)
		if total > 0 && held < 0.004 {
			v.Sliver = v.Bar[slices.IndexFunc(b.Parts, func(p Part) bool { return p.Bytes > 0 })].Class
		}
	}
	if total > 0 && b.Limit/3 > total {
		v.Closer = b.segments(total, total)
	}
	return w.render("bar", v)
}

func (b Bar) segments(whole, total int64) []segment {
	var all []segment
	at := 0.0
	for i, p := range b.Parts {
		width := 0.0
		if whole > 0 {
			width = float64(max(0, p.Bytes)) / float64(whole)
		}
		s := segment{Name: p.Name, Size: session.FormatBytes(p.Bytes), Class: fmt.Sprintf("c%d", i%colours+1),
			X: percent(at), Width: percent(width), Middle: percent(at + width/2), Wide: width > 0.22}
		if total > 0 {
			s.Share = Percent(float64(p.Bytes) / float64(total))
		}
		all = append(all, s)
		at += width
	}
	return all
}

func bytesText(n int64) string { return session.FormatBytes(n) }
