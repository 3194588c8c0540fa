//go:build unix

package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/browsertest"
)

// open shows a page.
func open(b *browsertest.Browser, p Page, width, height int, dark, script bool) {
	b.T.Helper()
	file := filepath.Join(b.T.TempDir(), "page.html")
	f, err := os.Create(file)
	if err != nil {
		b.T.Fatal(err)
	}
	if err := p.HTML(f); err != nil {
		b.T.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.T.Fatal(err)
	}
	b.Open("file://"+file, width, height, dark, script)
}

// axes are the labels and curves that a page shows.
const axes = `[...document.querySelectorAll("figure.plot")].map(f => [...f.querySelectorAll("svg.y text, svg.x text")].map(t => t.textContent + "@" + (t.getAttribute("y") + " " + t.getAttribute("x"))))`

// TestBrowser shows pages as a browser lays them out: nothing is reported as an error, nothing is wider than the
// screen, and the script's axes are those of the page without script. REPORT_SCREENSHOTS=DIR keeps what is seen.
func TestBrowser(t *testing.T) {
	b := browsertest.Start(t)
	for _, n := range []int{0, 1, 10, 1000, 100_000} {
		for _, width := range []int{1440, 1024, 360} {
			if n != 1000 && width == 1024 || n < 10 && width == 360 {
				continue
			}
			t.Run(fmt.Sprintf("%d points, %d wide", n, width), func(t *testing.T) {
				b.T = t
				p := sample(n)
				var still, drawn [][]string
				open(b, p, width, 900, n%20 == 0, false)
				b.Eval(axes, &still)
				open(b, p, width, 900, n%20 == 0, true)
				b.Eval(axes, &drawn)
				if fmt.Sprint(still) != fmt.Sprint(drawn) || len(still) == 0 {
					t.Errorf("axes without script %v, with it %v", still, drawn)
				}
				var wide int
				b.Eval(`document.documentElement.scrollWidth`, &wide)
				if wide > width {
					t.Errorf("the page is %d wide", wide)
				}
				if b.Console != nil {
					t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
				}
				b.Console = nil
				if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
					b.Shoot(filepath.Join(dir, fmt.Sprintf("%d-points-%d-wide.png", n, width)))
				}
			})
		}
	}
}

// TestBrowserLooksCloser zooms with the mouse and the keyboard and reads values.
func TestBrowserLooksCloser(t *testing.T) {
	b := browsertest.Start(t)
	p := Page{Title: "zoom"}
	s := Series{Name: "loss"}
	for i := range 1000 {
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, float64(1000-i))
	}
	p.Add("", Plot{Title: "Loss", XLabel: "step", Series: []Series{s}})
	open(b, p, 1200, 800, false, true)
	var area struct{ X, Y, Width, Height float64 }
	b.Eval(`(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector(".area").getBoundingClientRect())`, &area)
	x := func(part float64) float64 { return area.X + part*area.Width }
	y := area.Y + area.Height/2
	state := func() (at, value, ticks string) {
		var v []string
		b.Eval(`[document.querySelector(".at").textContent, document.querySelector(".key output").textContent, [...document.querySelectorAll("svg.x text")].map(t => t.textContent).join(" ")]`, &v)
		return v[0], v[1], v[2]
	}
	if at, value, ticks := state(); at != "last value" || value != "1" || ticks != "0 200 400 600 800" {
		t.Errorf("at first: %q %q %q", at, value, ticks)
	}
	b.Mouse("mouseMoved", x(0.5), y, false)
	if at, value, _ := state(); at != "step 500" || value != "500" {
		t.Errorf("the pointer in the middle: %q %q", at, value)
	}
	b.Mouse("mouseMoved", x(0.2), y, false)
	b.Mouse("mousePressed", x(0.2), y, true)
	b.Mouse("mouseMoved", x(0.3), y, true)
	b.Mouse("mouseReleased", x(0.3), y, false)
	if _, _, ticks := state(); ticks != "200 220 240 260 280" && ticks != "200 220 240 260 280 300" {
		t.Errorf("zoomed to 200 to 300: %q", ticks)
	}
	b.Eval(`document.querySelector("figure.plot").focus() || 0`, new(any))
	b.Key("0")
	if _, _, ticks := state(); ticks != "0 200 400 600 800" {
		t.Errorf("after 0: %q", ticks)
	}
	b.Key("End")
	b.Key("ArrowLeft")
	if at, value, _ := state(); at != "step 998" || value != "2" {
		t.Errorf("End and ArrowLeft: %q %q", at, value)
	}
	b.Key("Home")
	b.Key("+")
	if _, _, ticks := state(); ticks != "0 50 100 150 200" {
		t.Errorf("Home and +: %q", ticks)
	}
	b.Key("0")
	b.Key("l")
	var labels string
	b.Eval(`[...document.querySelectorAll("svg.y text")].map(t => t.textContent).join(" ")`, &labels)
	if labels != "1 10 100 1,000" {
		t.Errorf("logarithmic: %q", labels)
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}
