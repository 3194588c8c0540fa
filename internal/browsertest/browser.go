//go:build unix

// Package browsertest drives a headless Chromium in tests, over a pipe, in the DevTools protocol.
package browsertest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Browser is a headless Chromium that is told what to do over a pipe, in the DevTools protocol.
type Browser struct {
	T       *testing.T // that it reports to
	in      io.Writer
	out     *bufio.Reader
	session string
	next    int
	Console []string // errors that a page reported
}

// Start starts one, and skips the test where there is no Chromium.
func Start(t *testing.T) *Browser {
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
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{toR, fromW} // file descriptors 3 and 4
	cmd.Env = append(os.Environ(), "TMPDIR="+profile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Skipf("%s does not start: %v", path, err)
	}
	toR.Close()
	fromW.Close()
	b := &Browser{T: t, in: toW, out: bufio.NewReader(fromR)}
	t.Cleanup(func() {
		toW.Close()
		fromR.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its own children, which write into the profile
		_ = cmd.Wait()
		for range 200 {
			err = os.RemoveAll(profile)
			if _, gone := os.Stat(profile); err == nil && os.IsNotExist(gone) {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("the browser's profile stays: %v", err)
	})
	if err := fromR.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var made struct {
		TargetID string `json:"targetId"`
	}
	b.Do("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.Do("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable"} {
		b.Do(domain, nil, nil)
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

func (b *Browser) read() message {
	b.T.Helper()
	text, err := b.out.ReadBytes(0)
	if err != nil {
		b.T.Fatalf("the browser went away: %v", err)
	}
	var m message
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.T.Fatal(err)
	}
	if m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" {
		b.Console = append(b.Console, string(m.Params))
	}
	return m
}

// Do sends a command and waits for its answer.
func (b *Browser) Do(method string, params map[string]any, result any) {
	b.T.Helper()
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
		b.T.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.T.Fatalf("%s: the browser went away: %v", method, err)
	}
	for {
		m := b.read()
		if m.ID != b.next {
			continue
		}
		if m.Error != nil {
			b.T.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.T.Fatal(err)
			}
		}
		return
	}
}

// Open shows a page and waits until it is laid out.
func (b *Browser) Open(url string, width, height int, dark, script bool) {
	b.T.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": width < 500}, nil)
	b.Do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme",
		"value": scheme}}}, nil)
	b.Do("Emulation.setScriptExecutionDisabled", map[string]any{"value": !script}, nil)
	b.Do("Page.navigate", map[string]any{"url": url}, nil)
	for b.read().Method != "Page.loadEventFired" {
	}
}

// Wait waits until an expression in the page is true.
func (b *Browser) Wait(expression string) {
	b.T.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if b.Eval("!!("+expression+")", &ok); ok {
			return
		}
	}
	var body string
	b.Eval("document.body.innerText", &body)
	b.T.Fatalf("never true: %s\nthe page says\n%s\n%s", expression, body, strings.Join(b.Console, "\n"))
}

// Eval is the value of an expression in the page.
func (b *Browser) Eval(expression string, v any) {
	b.T.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.Do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true},
		&answer)
	if answer.ExceptionDetails != nil {
		b.T.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, v); err != nil {
		b.T.Fatalf("%s: %v", expression, err)
	}
}

// Key presses a key.
func (b *Browser) Key(key string) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key}
		if kind == "keyDown" && len(key) == 1 {
			params["text"] = key
		}
		b.Do("Input.dispatchKeyEvent", params, nil)
	}
}

// Mouse moves, presses or releases the left button at a place.
func (b *Browser) Mouse(kind string, x, y float64, down bool) {
	buttons := 0
	if down {
		buttons = 1
	}
	b.Do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons,
		"clickCount": 1}, nil)
}

// Shoot saves what the browser shows as a PNG.
func (b *Browser) Shoot(file string) {
	b.T.Helper()
	var shot struct{ Data string }
	b.Do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.T.Fatal(err)
	}
}
