//go:build unix

package report

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is a headless Chromium that is told what to do over a pipe, in the DevTools protocol.
type browser struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	session string
	next    int
	console []string // errors that a page reported
}

// startBrowser skips the test where there is no Chromium.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium found (chromium, chromium-browser, google-chrome)")
	}
	toR, toW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromR, fromW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "report-browser-") // not t.TempDir: what the browser leaves may still be written
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW} // file descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Skipf("%s does not start: %v", path, err)
	}
	toR.Close()
	fromW.Close()
	b := &browser{t: t, in: toW, out: bufio.NewReader(fromR)}
	t.Cleanup(func() {
		toW.Close()
		fromR.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for range 20 {
			if os.RemoveAll(profile) == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	if err := fromR.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var made struct {
		TargetID string `json:"targetId"`
	}
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.do("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable"} {
		b.do(domain, nil, nil)
	}
	return b
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct{ Message string }
}

func (b *browser) read() message {
	b.t.Helper()
	text, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser went away: %v", err)
	}
	var m message
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatal(err)
	}
	if m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" {
		b.console = append(b.console, string(m.Params))
	}
	return m
}

// do sends a command and waits for its answer.
func (b *browser) do(method string, params map[string]any, result any) {
	b.t.Helper()
	b.next++
	if params == nil {
		params = map[string]any{}
	}
	send := map[string]any{"id": b.next, "method": method, "params": params}
	if b.session != "" {
		send["sessionId"] = b.session
	}
	text, err := json.Marshal(send)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: the browser went away: %v", method, err)
	}
	for {
		m := b.read()
		if m.ID != b.next {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatal(err)
			}
		}
		return
	}
}

// open shows a page and waits until it is laid out.
func (b *browser) open(p Page, width, height int, dark, script bool) {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "page.html")
	f, err := os.Create(file)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := p.HTML(f); err != nil {
		b.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.t.Fatal(err)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": !script}, nil)
	b.do("Page.navigate", map[string]any{"url": "file://" + file}, nil)
	for b.read().Method != "Page.loadEventFired" {
	}
}

// eval is the value of an expression in the page.
func (b *browser) eval(expression string, v any) {
	b.t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, v); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

func (b *browser) key(key string) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key}
		if kind == "keyDown" && len(key) == 1 {
			params["text"] = key
		}
		b.do("Input.dispatchKeyEvent", params, nil)
	}
}

func (b *browser) mouse(kind string, x, y float64, down bool) {
	buttons := 0
	if down {
		buttons = 1
	}
	b.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1}, nil)
}

// shoot saves what the browser shows as a PNG.
func (b *browser) shoot(file string) {
	b.t.Helper()
	var shot struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// axes are the labels and curves that a page shows.
const axes = `[...document.querySelectorAll("figure.plot")].map(f => [...f.querySelectorAll("svg.y text, svg.x text")].map(t => t.textContent + "@" + (t.getAttribute("y") + " " + t.getAttribute("x"))))`

// TestBrowser shows pages as a browser lays them out: nothing is reported as an error, nothing is wider than the screen,
// and the script's axes are those of the page without script. REPORT_SCREENSHOTS=DIR keeps what is seen.
func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	for _, n := range []int{0, 1, 10, 1000, 100_000} {
		for _, width := range []int{1440, 1024, 360} {
			if n != 1000 && width == 1024 || n < 10 && width == 360 {
				continue
			}
			t.Run(fmt.Sprintf("%d points, %d wide", n, width), func(t *testing.T) {
				b.t = t
				p := sample(n)
				var still, drawn [][]string
				b.open(p, width, 900, n%20 == 0, false)
				b.eval(axes, &still)
				b.open(p, width, 900, n%20 == 0, true)
				b.eval(axes, &drawn)
				if fmt.Sprint(still) != fmt.Sprint(drawn) || len(still) == 0 {
					t.Errorf("axes without script %v, with it %v", still, drawn)
				}
				var wide int
				b.eval(`document.documentElement.scrollWidth`, &wide)
				if wide > width {
					t.Errorf("the page is %d wide", wide)
				}
				if b.console != nil {
					t.Errorf("the page reports %s", strings.Join(b.console, "\n"))
				}
				b.console = nil
				if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
					b.shoot(filepath.Join(dir, fmt.Sprintf("%d-points-%d-wide.png", n, width)))
				}
			})
		}
	}
}

// TestBrowserLooksCloser zooms with the mouse and the keyboard and reads values.
func TestBrowserLooksCloser(t *testing.T) {
	b := startBrowser(t)
	p := Page{Title: "zoom"}
	s := Series{Name: "loss"}
	for i := range 1000 {
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, float64(1000-i))
	}
	p.Add("", Plot{Title: "Loss", XLabel: "step", Series: []Series{s}})
	b.open(p, 1200, 800, false, true)
	var area struct{ X, Y, Width, Height float64 }
	b.eval(`(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector(".area").getBoundingClientRect())`, &area)
	x := func(part float64) float64 { return area.X + part*area.Width }
	y := area.Y + area.Height/2
	state := func() (at, value, ticks string) {
		var v []string
		b.eval(`[document.querySelector(".at").textContent, document.querySelector(".key output").textContent, [...document.querySelectorAll("svg.x text")].map(t => t.textContent).join(" ")]`, &v)
		return v[0], v[1], v[2]
	}
	if at, value, ticks := state(); at != "last value" || value != "1" || ticks != "0 200 400 600 800" {
		t.Errorf("at first: %q %q %q", at, value, ticks)
	}
	b.mouse("mouseMoved", x(0.5), y, false)
	if at, value, _ := state(); at != "step 500" || value != "500" {
		t.Errorf("the pointer in the middle: %q %q", at, value)
	}
	b.mouse("mouseMoved", x(0.2), y, false)
	b.mouse("mousePressed", x(0.2), y, true)
	b.mouse("mouseMoved", x(0.3), y, true)
	b.mouse("mouseReleased", x(0.3), y, false)
	if _, _, ticks := state(); ticks != "200 220 240 260 280" && ticks != "200 220 240 260 280 300" {
		t.Errorf("zoomed to 200 to 300: %q", ticks)
	}
	b.eval(`document.querySelector("figure.plot").focus() || 0`, new(any))
	b.key("0")
	if _, _, ticks := state(); ticks != "0 200 400 600 800" {
		t.Errorf("after 0: %q", ticks)
	}
	b.key("End")
	b.key("ArrowLeft")
	if at, value, _ := state(); at != "step 998" || value != "2" {
		t.Errorf("End and ArrowLeft: %q %q", at, value)
	}
	b.key("Home")
	b.key("+")
	if _, _, ticks := state(); ticks != "0 50 100 150 200" {
		t.Errorf("Home and +: %q", ticks)
	}
	b.key("0")
	b.key("l")
	var labels string
	b.eval(`[...document.querySelectorAll("svg.y text")].map(t => t.textContent).join(" ")`, &labels)
	if labels != "1 10 100 1000" {
		t.Errorf("logarithmic: %q", labels)
	}
	if b.console != nil {
		t.Errorf("the page reports %s", strings.Join(b.console, "\n"))
	}
}
