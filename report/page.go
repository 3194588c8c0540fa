// Package report lays out results for people: one Page, written as Markdown and as one self-contained HTML file that
// shows the same.
//
// A page is data. Texts come from runs, models and data sets, so all of them are escaped in both forms; nothing in a
// page can execute, load or link. Numbers that are not finite are gaps in a plot and are named below it.
//
//	p := report.Page{Title: "Tier quick", Verdict: report.Verdict{State: report.Pass, Text: "passed in 41 s"}}
//	p.Add("Loss", report.Plot{XLabel: "step", Series: []report.Series{{Name: "loss", X: steps, Y: losses}}})
//	p.Add("Criteria", report.Checks{{What: "loss_decrease", State: report.Pass, Detail: "50.3 %, wanted 10.0 %"}})
//	err := p.HTML(file)
package report

import (
	"strings"
	"unicode"
)

// Page is a report: a title, a verdict, and sections of blocks.
type Page struct {
	Title    string
	Subtitle string
	Verdict  Verdict
	Note     string   // a person's note about the result
	Warnings []string // warnings for a person; they stand under the title in amber
	Sections []Section
}

// Add appends a section of these blocks.
func (p *Page) Add(title string, blocks ...Block) {
	p.Sections = append(p.Sections, Section{Title: title, Blocks: blocks})
}

// State is the outcome of something. Every form shows it as a word or sign too, never by colour alone.
type State string

// The states. The zero State says nothing.
const (
	Pass State = "pass"
	Fail State = "fail"
	Skip State = "skip" // skipped, or not known; it does not count as passed
	Note State = "note" // neither good nor bad, such as a run in progress
	Warn State = "warn" // it did not fail, but a person should look at it
)

// Verdict is the page's conclusion in one line, under its title.
type Verdict struct {
	State State
	Text  string
	// Named says that Text begins with the state's own word, such as "finished: 100 steps". The page then writes that
	// word in bold and puts no second one before it.
	Named bool
}

// word splits the text of a named verdict into its first word, with a capital letter, and the rest. For another verdict
// the word is the name of its state.
func (v Verdict) word() (word, rest string) {
	if !v.Named {
		return stateName(v.State), v.Text
	}
	end := strings.IndexFunc(v.Text, func(r rune) bool { return !unicode.IsLetter(r) })
	if end <= 0 {
		return "", v.Text
	}
	return strings.ToUpper(v.Text[:1]) + v.Text[1:end], v.Text[end:]
}

// Section is a heading with the blocks below it.
type Section struct {
	Title  string // "" = no heading
	Blocks []Block
	// In HTML the blocks are hidden until a reader opens the heading; in print and in Markdown they are always visible.
	Folded bool
	// Name of the tab of the live page that shows the section; "" = the first tab. Reports show all sections.
	Tab string
}

// Block is a part of a section: Table, Fields, Figures, Checks, Plot, Bar, Text or Code.
type Block interface {
	markdown(w *markdown)
	html(w *page) error
}

// Table has a heading row and rows of text. A row that is shorter than Columns is padded, a longer one is cut.
type Table struct {
	Caption string
	Columns []Column
	Rows    [][]string
	Strong  []int // indices of highlighted rows, such as the best one
}

// Column is a column of a Table. Numbers are aligned to the right.
type Column struct {
	Title string
	Right bool
	Full  string // the whole title if Title is shortened; "" = Title is whole
}

// Fields are names with their values, such as a configuration or an environment.
type Fields []Field

// Field is a name with its value. Changed says that the value differs from its default; pages show it in bold.
type Field struct {
	Name    string
	Value   string
	Changed bool
}

// Figures are the few numbers that answer a reader's first questions, shown large.
type Figures []Figure

// Figure is a number with its unit, and below it a qualification.
type Figure struct {
	Name  string
	Value string
	Note  string
}

// Checks are criteria with their results.
type Checks []Check

// Check is a criterion with its result.
type Check struct {
	What   string
	State  State
	Detail string
}

// Plot draws series over one axis. A long series keeps the lowest and highest point of each of some thousand intervals,
// so that no spike is lost. In Markdown a plot is a table with sparklines.
type Plot struct {
	Title  string
	XLabel string // name of the x axis, with its unit
	YLabel string
	Series []Series
	YLog   bool // logarithmic scale; values at or below 0 are left out and counted
	Note   string
	// Levels are the levels of smoothing that a reader chooses from. Each is the half-life as a share of the curve,
	// from 0 (none) upwards. Empty = the plot has no slider. Level is the index of the level that Series.Y has.
	Levels  []float64
	Level   int
	Formula string // formula of the smoothing; the slider shows it as its tooltip
}

// Style says how a series is drawn.
type Style string

// The styles. Line is the zero value.
const (
	Line   Style = ""
	Dashed Style = "dashed" // a reference beside measured values
	Points Style = "points" // marks, joined by a thin line: values measured now and then
	Faint  Style = "faint"  // a line in the background: the raw values behind the smoothed ones
)

// Series is a curve. X ascends and has one value for each of Y; values beyond the shorter of both are left out. Lower
// and Upper, if set, bound a band around the curve, such as the spread over seeds. A Y that is NaN or infinite is a
// gap.
type Series struct {
	Name         string
	X, Y         []float64
	Lower, Upper []float64
	Style        Style
	// Levels has this series at each of the plot's levels of smoothing; nil = smoothing does not change it.
	Levels []Series
	// Colour is the index in the palette, from 1 to 6, for series that belong together; 0 = the next free one.
	Colour int
}

// Bar is a stacked bar of memory against a limit.
type Bar struct {
	Title     string
	Parts     []Part
	Limit     int64 // in bytes; 0 = no limit is known
	LimitName string
}

// Part is a part of a Bar.
type Part struct {
	Name  string
	Bytes int64
}

// Text is a paragraph.
type Text string

// Code is preformatted text.
type Code struct {
	Title string
	Text  string
	End   bool // shows the end of the text first, as for a log
}
