package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	plotHeight   = 260 // CSS pixels; page.css and page.js have the same number
	colours      = 6
	pagePoints   = 40_000 // points that all plots of a page keep for zooming
	seriesPoints = 8_000  // points that one series keeps for zooming
	drawn        = 400    // intervals of a curve that is drawn without script
	mostEnds     = 8      // labels at the curves' ends; a plot with more shows them only below
	leastLevel   = 150    // points that a curve keeps at a level of smoothing that is not shown at first
	mostMarks    = 50     // marks of values that are not finite
)

// plotView is a plot in the form that page.html shows.
type plotView struct {
	Title, XLabel, YLabel, Label string
	Log                          bool
	YTicks, XTicks               []tickView
	Curves                       []curveView
	Bad                          string // path of the marks of values that are not finite
	EndsWidth                    int
	Notes                        []string
	Levels, Formula, LevelName   string // attributes of the slider; Levels "" = no slider
	Level, LastLevel             int
	Data                         []byte // JSON that only has numbers
}

type tickView struct{ At, Label string }

// curveView is a series: paths over a square of 1000 by 1000.
type curveView struct {
	Name, Short, Class string
	Of                 int // index of the series
	Line, Dots, Band   string
	Last, At           string // last value and its x
	// Position of its label: the height, and, if the curve ends early, its x too; "" = no label.
	End, EndX string
	end, endX float64
}

// view lays a plot out. points is the number of points that it may keep, share the number that each series may keep.
func (p Plot) view(points, share int) plotView {
	v := plotView{Title: plain(p.Title), XLabel: plain(p.XLabel), YLabel: plain(p.YLabel), Log: p.YLog}
	xa, ya := p.axes()
	for _, t := range xa.ticks(4, p.wholeX()) {
		v.XTicks = append(v.XTicks, tickView{percent(t.at), t.label})
	}
	for _, t := range ya.ticks(5, false) {
		v.YTicks = append(v.YTicks, tickView{percent(1 - t.at), t.label})
	}
	var bad []float64
	free, some := 0, false
	for i, s := range p.Series {
		colour := s.Colour
		if colour < 1 {
			free++
			colour = free
		}
		c := s.curve(xa, ya)
		c.Of = i
		c.Class = fmt.Sprintf("c%d", (colour-1)%colours+1)
		if s.Style != Line {
			c.Class += " " + string(s.Style)
		} else if turn := (colour - 1) / colours; turn > 0 {
			c.Class += fmt.Sprintf(" turn%d", min(turn, 3))
		}
		v.Curves = append(v.Curves, c)
		some = some || c.Line != ""
		x, y := s.points()
		for i := range y {
			if !finite(y[i]) && finite(x[i]) && len(bad) < mostMarks {
				bad = append(bad, x[i])
			}
		}
	}
	for _, x := range bad {
		v.Bad += fmt.Sprintf("M%s 0V60", place(xa.place(x)))
	}
	if !some {
		v.Curves = nil
	}
	v.labelEnds(p)
	for _, n := range p.notes() {
		v.Notes = append(v.Notes, plain(n))
	}
	if v.Formula = plain(p.Formula); len(p.Levels) > 1 {
		names := make([]string, len(p.Levels))
		for i, l := range p.Levels {
			names[i] = levelName(l)
		}
		v.Levels, v.Level, v.LastLevel = strings.Join(names, " "), p.Level, len(p.Levels)-1
		v.LevelName = names[min(max(p.Level, 0), v.LastLevel)]
	}
	if share == 0 {
		share = min(seriesPoints, max(100, points/max(1, len(p.Series))))
	}
	v.Data = p.data(share)
	v.Label = strings.TrimSpace(v.Title + ", a plot of " + count(len(p.Series), "curve", "curves"))
	return v
}

// levelName returns the name of a level of smoothing for a reader.
func levelName(share float64) string {
	if share <= 0 {
		return "none"
	}
	return Percent(share)
}

// axes returns axes that span all points of the plot.
func (p Plot) axes() (x, y axis) {
	var xs, ys [][]float64
	for _, s := range p.Series {
		px, py := s.points()
		xs, ys = append(xs, px), append(ys, py)
		_, lower, upper := s.band()
		ys = append(ys, lower, upper)
	}
	return newAxis(false, false, xs...), newAxis(p.YLog, true, ys...)
}

func (p Plot) wholeX() bool {
	for _, s := range p.Series {
		for _, x := range s.X {
			if x != math.Trunc(x) {
				return false
			}
		}
	}
	return true
}

// curve draws a series.
func (s Series) curve(xa, ya axis) curveView {
	c := s.labels(xa, ya)
	x, y := s.points()
	at := envelope(y, drawn)
	x, y = pick(x, at), pick(y, at)
	var line, dots strings.Builder
	in := false
	for i := range y {
		if !ya.drawable(y[i]) || !finite(x[i]) {
			in = false
			continue
		}
		px, py := place(xa.place(x[i])), place(1-ya.place(y[i]))
		if in {
			fmt.Fprintf(&line, "L%s %s", px, py)
		} else {
			fmt.Fprintf(&line, "M%s %sh0", px, py)
		}
		in = true
		fmt.Fprintf(&dots, "M%s %sh0", px, py)
	}
	c.Line = line.String()
	if s.dotted(len(y)) {
		c.Dots = dots.String()
	}
	if bx, lower, upper := bandEnvelope3(s); len(bx) > 0 {
		var band strings.Builder
		for i := range bx {
			fmt.Fprintf(&band, "%s%s %s", cmd(i), place(xa.place(bx[i])), place(1-ya.place(upper[i])))
		}
		for i := len(bx) - 1; i >= 0; i-- {
			fmt.Fprintf(&band, "L%s %s", place(xa.place(bx[i])), place(1-ya.place(lower[i])))
		}
		c.Band = band.String() + "Z"
	}
	return c
}

// labels returns a series' name and the end of its curve.
func (s Series) labels(xa, ya axis) curveView {
	c := curveView{Name: plain(s.Name), Short: short(plain(s.Name), 18)}
	if lx, ly, ok := s.last(); ok {
		c.Last, c.At = Number(ly), Number(lx)
		if ya.drawable(ly) {
			c.end = 1 - ya.place(ly)
		} else {
			c.end = 1
		}
		c.endX = xa.place(lx)
	}
	return c
}

func bandEnvelope3(s Series) (x, lower, upper []float64) {
	bx, l, u := s.band()
	return bandEnvelope(bx, l, u, drawn)
}

func cmd(i int) string {
	if i == 0 {
		return "M"
	}
	return "L"
}

// dotted reports whether a series of n points shows each of them.
func (s Series) dotted(n int) bool {
	return s.Style == Points && n <= 200 || s.Style == Line && n <= 12
}

// labelEnds places the labels beside the curves' last points without overlap.
func (v *plotView) labelEnds(p Plot) {
	if len(v.Curves) > mostEnds {
		return
	}
	var order []*curveView
	for i := range v.Curves {
		if v.Curves[i].Last != "" && p.Series[i].Style != Faint {
			order = append(order, &v.Curves[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *curveView) int {
		switch {
		case a.end < b.end:
			return -1
		case a.end > b.end:
			return 1
		}
		return 0
	})
	const gap = 15.0 / plotHeight
	at := make([]float64, len(order))
	for i, c := range order {
		at[i] = max(c.end, 0.5*gap)
		if i > 0 {
			at[i] = max(at[i], at[i-1]+gap)
		}
	}
	limit := 1 - 0.25*gap
	longest := 0
	for i := len(order) - 1; i >= 0; i-- {
		at[i] = min(at[i], limit)
		limit = at[i] - gap
		c := order[i]
		if len(order) == 1 {
			c.Short = c.Last
		}
		c.End = percent(at[i])
		if c.endX < 0.9 {
			c.EndX = percent(c.endX)
			continue
		}
		longest = max(longest, len([]rune(c.Short)))
	}
	if longest > 0 {
		v.EndsWidth = 18 + 15*longest/2
	}
}

// data returns the numbers that the script redraws when a reader zooms: {"whole":bool,"log":bool,
// "s":[{"x":[…],"y":[…],"l":[…]}],"level":3}, where l has the series at each level of smoothing. Each series has about
// share points.
func (p Plot) data(share int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"whole":%v,"log":%v,"s":[`, p.wholeX(), p.YLog)
	for i, s := range p.Series {
		if i > 0 {
			b.WriteByte(',')
		}
		s.write(&b, share)
	}
	fmt.Fprintf(&b, `],"level":%d}`, p.Level)
	return b.Bytes()
}

// write writes the points of a series, and those at other levels of smoothing, as JSON.
func (s Series) write(b *bytes.Buffer, share int) {
	x, y := s.points()
	at := envelope(y, share/3)
	b.WriteString(`{"x":`)
	writeNumbers(b, pick(x, at))
	b.WriteString(`,"y":`)
	writeNumbers(b, pick(y, at))
	if bx, lower, upper := s.band(); len(bx) > 0 {
		bx, lower, upper = bandEnvelope(bx, lower, upper, share/3)
		for _, n := range []struct {
			name string
			v    []float64
		}{{"bx", bx}, {"lo", lower}, {"hi", upper}} {
			fmt.Fprintf(b, `,"%s":`, n.name)
			writeNumbers(b, n.v)
		}
	}
	if len(s.Levels) > 0 {
		b.WriteString(`,"l":[`)
		for i, l := range s.Levels {
			if i > 0 {
				b.WriteByte(',')
			}
			l.write(b, max(leastLevel, share/8))
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
}

// writeNumbers writes a JSON array with six significant digits of each number, whole numbers exactly, and null for
// values that are not finite.
func writeNumbers(b *bytes.Buffer, v []float64) {
	b.WriteByte('[')
	for i, x := range v {
		if i > 0 {
			b.WriteByte(',')
		}
		switch {
		case !finite(x):
			b.WriteString("null")
		case x == math.Trunc(x) && math.Abs(x) < 1e15:
			b.WriteString(strconv.FormatFloat(x, 'f', -1, 64))
		default:
			b.WriteString(strconv.FormatFloat(x, 'g', 6, 64))
		}
	}
	b.WriteByte(']')
}

// place formats a coordinate of the square of 1000 by 1000. Adding 0 turns -0 into 0.
func place(v float64) string {
	return strconv.FormatFloat(math.Round(10_000*min(2, max(-1, v)))/10+0, 'f', -1, 64)
}

func percent(v float64) string {
	return strconv.FormatFloat(math.Round(10_000*min(2, max(-1, v)))/100+0, 'f', -1, 64) + "%"
}
