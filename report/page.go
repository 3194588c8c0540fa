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
	Note     string   // what a person wrote about it
	Warnings []string // what a person should look at; they stand under the title in amber
	Sections []Section
}

// Add appends a section of these blocks.
func (p *Page) Add(title string, blocks ...Block) {
	p.Sections = append(p.Sections, Section{Title: title, Blocks: blocks})
}

// State is how something ended. Every form shows it as a word or sign too, never by colour alone.
type State string

// The states. The zero State says nothing.
const (
	Pass State = "pass"
	Fail State = "fail"
	Skip State = "skip" // not tried, or not known: not a pass
	Note State = "note" // neither good nor bad: a run on its way
	Warn State = "warn" // it did not fail, and a person should look at it
)

// Verdict is the page's conclusion in one line, under its title.
type Verdict struct {
	State State
	Text  string
	// Named says that Text begins with the state's own word, such as "finished: 100 steps". The page then writes that
	// word in bold and puts no second one before it.
	Named bool
}

// word splits the text of a named verdict into its first word, with a capital letter, and the rest. Of another verdict
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

// Section is a heading with what stands below it.
type Section struct {
	Title  string // "" = no heading
	Blocks []Block
	Folded bool   // in HTML behind its heading until it is opened; printed and in Markdown it is always open
	Tab    string // names the tab of the live page that shows the section; "" = the first tab. Reports show all sections
}

// Block is a part of a section: Table, Fields, Figures, Checks, Plot, Bar, Text or Code.
type Block interface {
	markdown(w *markdown)
	html(w *page) error
}

// Table has a heading line and rows of text. A row that is shorter than Columns is filled up, a longer one is cut.
type Table struct {
	Caption string
	Columns []Column
	Rows    [][]string
	Strong  []int // indices of rows that stand out, the best one say
}

// Column is a column of a Table. Numbers are aligned to the right.
type Column struct {
	Title string
	Right bool
	Full  string // the whole title where Title is shortened; "" = Title is whole
}

// Fields are names with their values, such as a configuration or an environment.
type Fields []Field

// Field is a name with its value. Changed says that the value differs from its default; pages show it in bold.
type Field struct {
	Name    string
	Value   string
	Changed bool
}

// Figures are the few numbers that answer what a reader asks first, shown large.
type Figures []Figure

// Figure is a number with its unit, and below it what qualifies it.
type Figure struct {
	Name  string
	Value string
	Note  string
}

// Checks are criteria with what came of them.
type Checks []Check

// Check is a criterion.
type Check struct {
	What   string
	State  State
	Detail string
}

// Plot draws series over one axis. Of a long series the lowest and highest point of each of some thousand intervals is
// kept, so that no spike is lost. In Markdown it is a table with sparklines.
type Plot struct {
	Title  string
	XLabel string // with its unit
	YLabel string
	Series []Series
	YLog   bool // a logarithmic scale; values at or below 0 are left out and counted
	Note   string
	// Levels are the levels of smoothing that a reader chooses from, each the half-life as a share of the curve, from 0
	// (none) upwards. Empty = the plot has no slider. Level is the index of the one that Series.Y has.
	Levels  []float64
	Level   int
	Formula string // says how a level is computed; the slider shows it as its tooltip
}

// Style is how a series is drawn.
type Style string

// The styles. Line is the zero value.
const (
	Line   Style = ""
	Dashed Style = "dashed" // a reference beside the measured
	Points Style = "points" // marks, joined by a thin line: measured now and then
	Faint  Style = "faint"  // a line that stays behind another: the raw values beside the smoothed
)

// Series is a curve. X ascends and has one value for each of Y; what exceeds the shorter of both is left out. Lower and
// Upper, where they are given, bound a band around it: the spread over seeds, say. A Y that is NaN or infinite is a
// gap.
type Series struct {
	Name         string
	X, Y         []float64
	Lower, Upper []float64
	Style        Style
	// Levels are this series at each of the plot's levels of smoothing; nil = smoothing does not change it.
	Levels []Series
	// Colour is the place in the palette, from 1 to 6, for series that belong together; 0 = the next free one.
	Colour int
}

// Bar is a stacked bar of memory against a limit.
type Bar struct {
	Title     string
	Parts     []Part
	Limit     int64 // bytes; 0 = none is known
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
	End   bool // the end of the text is in view at first, as of a log
}
