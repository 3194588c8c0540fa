package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// PageStyle and PageScript are the style and script of a page in HTML, for a server that shows pages in parts. The
// script defines an object plots; its method attach gives a plot's element pointer and keyboard control and lets it
// grow.
var PageStyle, PageScript = style, script

// Piece is a part of a page that can be replaced separately: the title with the verdict, or a block.
type Piece struct {
	ID   string // id of its element
	Plot *Plot  // nil if the piece is no plot
	html func(w *page) error
}

// Pieces returns the parts of a page.
func (p Page) Pieces() []Piece {
	pieces := []Piece{{ID: "head", html: func(w *page) error { return w.render("title", p) }}}
	for i, s := range p.Sections {
		for j, b := range s.Blocks {
			piece := Piece{ID: fmt.Sprintf("p%d-%d", i, j), html: b.html}
			if plot, ok := b.(Plot); ok {
				piece.Plot = &plot
			}
			pieces = append(pieces, piece)
		}
	}
	return pieces
}

// HTML returns the element of a piece. points is the number of points that each series of a plot keeps.
func (p Piece) HTML(points int) (string, error) {
	w := &page{points: points, share: points}
	err := p.write(w)
	return w.String(), err
}

func (p Piece) write(w *page) error {
	fmt.Fprintf(w, "<div class=\"piece\" id=\"%s\">\n", p.ID)
	if err := p.html(w); err != nil {
		return err
	}
	fmt.Fprint(w, "</div>\n")
	return nil
}

// Fragment returns the inner HTML of a page's body, made of its pieces.
func (p Page) Fragment(points int) (string, error) {
	w, pieces := &page{points: points, share: points}, p.Pieces()
	put := func() error {
		next := pieces[0]
		pieces = pieces[1:]
		return next.write(w)
	}
	if err := put(); err != nil {
		return "", err
	}
	for i, s := range p.Sections {
		if err := w.render("open", sectionView{s, i}); err != nil {
			return "", err
		}
		grid := false
		for j, b := range s.Blocks {
			if beside := isPlot(b) && (j > 0 && isPlot(s.Blocks[j-1]) || j+1 < len(s.Blocks) && isPlot(s.Blocks[j+1])); beside != grid {
				grid = beside
				fmt.Fprint(w, map[bool]string{true: "<div class=\"plots\">\n", false: "</div>\n"}[grid])
			}
			if err := put(); err != nil {
				return "", err
			}
		}
		if grid {
			fmt.Fprint(w, "</div>\n")
		}
		if err := w.render("close", s); err != nil {
			return "", err
		}
	}
	return w.String(), nil
}

// Between returns the part of a plot from lo to hi as JSON for page.js, with at most about points points of each
// series.
func (p Plot) Between(lo, hi float64, points int) []byte {
	q := p
	q.Series = nil
	for _, s := range p.Series {
		x, y := s.points()
		from, _ := slices.BinarySearch(x, lo)
		to, _ := slices.BinarySearch(x, hi)
		from, to = max(0, from-1), min(len(x), to+2)
		if from > to {
			from = to
		}
		part := Series{Name: s.Name, X: x[from:to], Y: y[from:to]}
		if bx, lower, upper := s.band(); len(bx) >= to {
			part.Lower, part.Upper = lower[from:to], upper[from:to]
		}
		for _, l := range s.Levels {
			if len(l.X) >= to {
				part.Levels = append(part.Levels, Series{X: l.X[from:to], Y: l.Y[from:to]})
			}
		}
		q.Series = append(q.Series, part)
	}
	return q.data(points)
}

// Grown returns what the series of a plot have gained since the state was, as JSON for page.js:
// {"s":[{"x":[…],"y":[…]}], "ends":[["12%","88%","3.1"]]} with the labels at the curves' ends. n is the number of new
// points. ok is false if anything else differs; the whole plot must then be sent again.
func (p Plot) Grown(was Plot) (data []byte, n int, ok bool) {
	if p.Title != was.Title || p.XLabel != was.XLabel || p.YLabel != was.YLabel || p.YLog != was.YLog || len(p.Series) != len(was.Series) ||
		!slices.Equal(p.notes(), was.notes()) {
		return nil, 0, false
	}
	var b bytes.Buffer
	b.WriteString(`{"s":[`)
	for i, s := range p.Series {
		o := was.Series[i]
		x, y := s.points()
		ox, oy := o.points()
		if s.Name != o.Name || s.Style != o.Style || s.Colour != o.Colour || s.Lower != nil || o.Lower != nil ||
			len(x) < len(ox) || len(ox) == 0 && len(x) > 0 || !same(x[:len(ox)], ox) || !same(y[:len(oy)], oy) || s.dotted(len(y)) != s.dotted(len(oy)) ||
			len(s.Levels) != len(o.Levels) || s.Levels != nil && len(x) > len(ox) {
			return nil, 0, false
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"x":`)
		writeNumbers(&b, x[len(ox):])
		b.WriteString(`,"y":`)
		writeNumbers(&b, y[len(oy):])
		b.WriteByte('}')
		n += len(x) - len(ox)
	}
	now, before := p.ends(), was.ends()
	if len(now.inside) != len(before.inside) || len(now.beside) != len(before.beside) || now.width != before.width {
		return nil, 0, false
	}
	b.WriteString(`],"ends":[`)
	for i, e := range append(now.inside, now.beside...) { // in the order of the element
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `[%q,%q,%s]`, e.EndX, e.End, quoted(e.Short))
	}
	b.WriteString("]}")
	return b.Bytes(), n, true
}

// same reports whether two lists hold the same numbers, NaN included.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

type endLabels struct {
	inside, beside []curveView
	width          int
}

// ends returns the labels at the curves' ends.
func (p Plot) ends() endLabels {
	xa, ya := p.axes()
	v := plotView{}
	for _, s := range p.Series {
		v.Curves = append(v.Curves, s.labels(xa, ya))
	}
	v.labelEnds(p)
	e := endLabels{width: v.EndsWidth}
	for _, c := range v.Curves {
		switch {
		case c.EndX != "":
			e.inside = append(e.inside, c)
		case c.End != "":
			e.beside = append(e.beside, c)
		}
	}
	return e
}

// quoted returns a text as JSON; plain has removed the characters that control a display.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r == '"' || r == '\\' || r < ' ' || r == '<' || r == '\u2028' || r == '\u2029' {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String()
}
