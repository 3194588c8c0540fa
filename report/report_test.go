package report

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is a page with every block, its plots of n points; some of 1000 are not finite.
func sample(n int) Page {
	r := rand.New(rand.NewPCG(1, 2))
	var x, y, z, lower, upper []float64
	mean := 0.0
	for i := range n {
		v := 2 + 6*math.Exp(-5*float64(i)/float64(n)) + 0.3*r.NormFloat64()
		if i == 0 {
			mean = v
		}
		mean = 0.9*mean + 0.1*v
		if n == 1000 && i%137 == 20 {
			v = math.NaN()
		}
		x, y, z, lower, upper = append(x, float64(i+1)), append(y, v), append(z, mean), append(lower, mean-0.3), append(upper, mean+0.3)
	}
	some := min(n, 8)
	p := Page{Title: "A run of " + fmt.Sprint(n), Subtitle: "qlora of a model", Verdict: Verdict{State: Pass, Text: "finished", Named: true}, Warnings: []string{"rows are double"}}
	p.Add("", Figures{{"steps", "100 of 100", "3.1 s"}, {"loss", "3.309", "down 49%"}},
		Plot{Title: "Loss", XLabel: "step", YLabel: "nats a token", Series: []Series{{Name: "each step", X: x, Y: y, Style: Faint, Colour: 1},
			{Name: "training", X: x, Y: z, Colour: 1, Levels: []Series{{X: x, Y: y}, {X: x, Y: z}, {X: x, Y: upper}}}, {Name: "evaluation", X: x[:some], Y: z[:some], Style: Points, Colour: 2}}, Levels: []float64{0, 0.02, 0.1}, Level: 1, Formula: "s(t) = Σ"},
		Bar{Title: "Memory", Parts: []Part{{"frozen weights", 4 << 30}, {"activations", 9 << 30}, {"adapter", 1 << 20}}, Limit: 24 << 30, LimitName: "the limit"})
	p.Add("Curves", Plot{Title: "Learning rate", XLabel: "step", Series: []Series{{Name: "rate", X: x, Y: z}}},
		Plot{Title: "Gradient norm", XLabel: "step", YLog: true, Series: []Series{{Name: "raw", X: x, Y: y}, {Name: "clipped", X: x, Y: z}}},
		Plot{Title: "Seeds", XLabel: "step", Series: []Series{{Name: "mean", X: x, Y: z, Lower: lower, Upper: upper}, {Name: "reference", X: x, Y: upper, Style: Dashed}}})
	p.Add("Checks", Checks{{"loss_decrease", Pass, "50%"}, {"max_vram", Fail, "12 GiB"}, {"resume", Skip, ""}})
	p.Sections = append(p.Sections, Section{Title: "Folded", Folded: true, Blocks: []Block{Code{"log", "a\n```\nb", true}, Text("words")}})
	p.Add("Table", Table{Caption: "runs", Columns: []Column{{"run", false, ""}, {"loss", true, "training loss"}}, Rows: [][]string{{"a", "3.1"}, {"b", "2.9", "too much"}, {}}, Strong: []int{1}},
		Fields{{"lora.r", "8", false}, {"seed", "7", true}})
	return p
}

func html(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.HTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func markdownOf(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var tag = regexp.MustCompile(`<(/?)([a-zA-Z0-9]+)((?:\s+[a-zA-Z0-9-]+(?:="[^"]*")?)*)\s*(/?)>`)

// wellFormed checks that elements are closed in their order and that nothing is loaded, linked or run inline.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	page = regexp.MustCompile(`(?s)<(style|script)([^>]*)>.*?</(style|script)>`).ReplaceAllString(page, "<$1$2></$1>")
	var open []string
	for _, m := range tag.FindAllStringSubmatch(page, -1) {
		name := strings.ToLower(m[2])
		for _, a := range regexp.MustCompile(`\s([a-zA-Z0-9-]+)="[^"]*"`).FindAllStringSubmatch(m[3], -1) {
			if regexp.MustCompile(`(?i)^(style|src|srcset|href|on.*)$`).MatchString(a[1]) {
				t.Fatalf("<%s%s>: an attribute %q", name, m[3], a[1])
			}
		}
		switch {
		case m[1] == "" && (m[4] == "/" || name == "meta"):
		case m[1] == "":
			open = append(open, name)
		case len(open) == 0 || open[len(open)-1] != name:
			t.Fatalf("</%s> closes %v", name, open)
		default:
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
	if rest := tag.ReplaceAllString(strings.TrimPrefix(page, "<!doctype html>"), ""); strings.ContainsAny(rest, "<>") {
		i := strings.IndexAny(rest, "<>")
		t.Errorf("markup that is none: %q", rest[max(0, i-40):min(len(rest), i+40)])
	}
}

func TestPageIsWellFormed(t *testing.T) {
	for _, n := range []int{0, 1, 2, 10, 1000} {
		wellFormed(t, html(t, sample(n)))
	}
	wellFormed(t, html(t, Page{}))
}

// tables have as many cells in each row as in the first.
func TestMarkdownTables(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		cells, code := 0, false
		for i, line := range strings.Split(markdownOf(t, sample(n)), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code || !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			if cells != 0 && n != cells {
				t.Errorf("line %d has %d borders, the first %d: %s", i+1, n, cells, line)
			}
			cells = n
		}
	}
}

// Every text of a page is one that a stranger wrote.
func TestTextsAreEscaped(t *testing.T) {
	bad := "</script></title>\"'><script>alert(1)</script><img src=x onerror=alert(1)>|[a](javascript:b) https://evil.example www.evil.example @someone `x` **b** \u202e\x00\x1b[31m"
	p := Page{Title: bad, Subtitle: bad, Verdict: Verdict{State: Fail, Text: bad}, Note: bad, Warnings: []string{bad}}
	p.Sections = []Section{{Title: bad, Folded: true}, {Title: bad, Blocks: []Block{
		Figures{{bad, bad, bad}}, Fields{{bad, bad, true}, {bad, bad, false}}, Checks{{bad, Pass, bad}}, Text(bad), Code{bad, bad, true},
		Table{Caption: bad, Columns: []Column{{bad, true, bad}}, Rows: [][]string{{bad}}}, Bar{Title: bad, Parts: []Part{{bad, 5}}, Limit: 2, LimitName: bad},
		Plot{Title: bad, XLabel: bad, YLabel: bad, Note: bad, Levels: []float64{0, 1}, Formula: bad, Series: []Series{{Name: bad, X: []float64{1, 2}, Y: []float64{1, math.NaN()}}, {Name: bad}}},
	}}}
	page := html(t, p)
	wellFormed(t, page)
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts, want the plot's data and our own", n)
	}
	if strings.ContainsAny(page, "\u202e\x00\x1b") {
		t.Error("characters that steer a display are in the page")
	}
	text := markdownOf(t, p)
	if strings.ContainsAny(text, "\u202e\x00\x1b") {
		t.Error("characters that steer a display are in the Markdown")
	}
	text = regexp.MustCompile("(?s)```+text\n.*?\n```+").ReplaceAllString(strings.TrimPrefix(text, MarkdownMark), "")
	for _, active := range []string{`(^|[^\\])<`, `(^|[^\\])\[`, `https://`, `www\.e`, `(^|[^\\])@`, "(^|[^\\\\])`", `(^|[^\\*])\*[^*|]`} {
		if m := regexp.MustCompile(active).FindString(text); m != "" && !strings.Contains(m, "**") {
			t.Errorf("the Markdown has %q unescaped, found by %s", m, active)
		}
	}
}

// The policy names the very style and script of the page.
func TestPolicy(t *testing.T) {
	page := html(t, sample(10))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)[1]
	for _, name := range []string{"style", "script"} {
		text := regexp.MustCompile(`(?s)<` + name + `>(.*?)</` + name + `>`).FindStringSubmatch(page)[1]
		if !strings.Contains(policy, name+"-src '"+hash(text)+"'") {
			t.Errorf("%q does not allow the page's %s", policy, name)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
}

// A page of a long run stays below a megabyte.
func TestPageIsSmall(t *testing.T) {
	for _, n := range []int{10_000, 100_000} {
		if size := len(html(t, sample(n))); size > 1_000_000 {
			t.Errorf("%d points take %d bytes", n, size)
		}
	}
	var many Page
	x, y := make([]float64, 10_000), make([]float64, 10_000)
	for i := range x {
		x[i], y[i] = float64(i), math.Sin(float64(i*i))
	}
	for range 6 {
		p := Plot{Title: "Loss"}
		for i := range 6 {
			p.Series = append(p.Series, Series{Name: fmt.Sprint("run ", i), X: x, Y: y})
		}
		many.Add("", p)
	}
	if size := len(html(t, many)); size > 1_000_000 {
		t.Errorf("36 curves of 10,000 points take %d bytes", size)
	}
}

// No spike is lost: of every interval the lowest, the highest and a value that is not finite stay.
func TestEnvelopeKeepsSpikes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		y := make([]float64, r.IntN(3000))
		for i := range y {
			y[i] = r.NormFloat64()
			switch r.IntN(40) {
			case 0:
				y[i] *= 1e6
			case 1:
				y[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
			}
		}
		n := 1 + r.IntN(200)
		at := envelope(y, n)
		if len(at) > 3*n+2 || len(y) > 0 && (at[0] != 0 || at[len(at)-1] != len(y)-1) || !slices.IsSorted(at) {
			t.Fatalf("%d of %d points by %d intervals", len(at), len(y), n)
		}
		for k := range n {
			from, to := k*len(y)/n, (k+1)*len(y)/n
			if want, got := extremes(y[from:to]), extremes(pick(y, inside(at, from, to))); want != got {
				t.Fatalf("interval %d of %d: %v became %v", k, n, want, got)
			}
		}
	}
}

func inside(at []int, from, to int) []int {
	return slices.DeleteFunc(slices.Clone(at), func(i int) bool { return i < from || i >= to })
}

// extremes are the lowest and highest value and whether one is not finite.
func extremes(y []float64) (e struct {
	lo, hi float64
	bad    bool
}) {
	e.lo, e.hi = math.Inf(1), math.Inf(-1)
	for _, v := range y {
		if finite(v) {
			e.lo, e.hi = min(e.lo, v), max(e.hi, v)
		} else {
			e.bad = true
		}
	}
	return e
}

func TestTicks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		lo := r.NormFloat64() * math.Pow(10, float64(r.IntN(24)-12))
		hi := lo + math.Abs(r.NormFloat64())*math.Pow(10, float64(r.IntN(12)))*math.Max(math.Abs(lo), 1e-12)
		log := r.IntN(2) == 0
		if log {
			lo, hi = math.Abs(lo), math.Abs(lo)+hi-lo
		}
		a := newAxis(log, true, []float64{lo, hi})
		ticks := a.ticks(5, false)
		if len(ticks) < 1 || len(ticks) > 12 {
			t.Fatalf("%d ticks from %g to %g, log %v", len(ticks), lo, hi, log)
		}
		labels := map[string]bool{}
		for i, x := range ticks {
			if x.at < -1e-6 || x.at > 1+1e-6 || i > 0 && x.at <= ticks[i-1].at {
				t.Fatalf("tick %v of %v", x, ticks)
			}
			labels[x.label] = true
		}
		if wide := (a.hi-a.lo)/math.Max(math.Abs(a.lo), math.Abs(a.hi)) > 1e-9; wide && len(labels) != len(ticks) {
			t.Fatalf("labels %v from %g to %g", ticks, lo, hi)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{{0, "0"}, {1, "1"}, {3.30877, "3.309"}, {0.001, "0.001"}, {3.0458649e-7, "3.046e-7"}, {2e-5, "2e-5"}, {31365.2, "31,365"},
		{1234.56, "1,235"}, {5419.7, "5,420"}, {999.9, "999.9"}, {1999.96, "2,000"}, {999.96, "1,000"}, {-12.5, "-12.5"}, {1e20, "1e20"}, {math.NaN(), "not finite"}, {math.Inf(-1), "not finite"}, {96595, "96,595"}} {
		if got := Number(c.v); got != c.want {
			t.Errorf("%v is %q, want %q", c.v, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{30 * time.Millisecond: "30 ms", 3110 * time.Millisecond: "3.1 s", 41 * time.Second: "41 s",
		200 * time.Second: "3 min 20 s", 7500 * time.Second: "2 h 05 min", 76 * time.Hour: "3 d 4 h"} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := spark([]float64{1, 2, math.NaN(), 8}); got != "▁▂×█" {
		t.Errorf("sparkline %q", got)
	}
}
