//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/browsertest"
	"github.com/tierlora/tierlora/report/runs"
)

// servedUI is a trainer ui that runs.
type servedUI struct {
	t          *testing.T
	cmd        *exec.Cmd
	url, token string
}

func startUI(t *testing.T, dir string, args ...string) *servedUI {
	t.Helper()
	cmd := program(dir, append([]string{"ui", "--port", "0", "--queue", "queue", "--json"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &servedUI{t: t, cmd: cmd}
	t.Cleanup(s.end)
	var said struct{ URL, Token string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&said); err != nil {
		t.Fatalf("%v: %s", err, errOut.String())
	}
	s.url, s.token = said.URL, said.Token
	return s
}

// end ends it as Ctrl-C does.
func (s *servedUI) end() {
	if s.cmd.ProcessState != nil {
		return
	}
	s.cmd.Process.Signal(syscall.SIGINT) //nolint:errcheck // Wait tells
	late := time.AfterFunc(10*time.Second, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("trainer ui ends with %v", err)
	}
}

func (s *servedUI) post(path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest("POST", s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Trainer-Token", s.token)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	var answer bytes.Buffer
	answer.ReadFrom(a.Body) //nolint:errcheck // what is missing is told by the test
	return a.StatusCode, answer.String()
}

// fill sets fields of the form as a person does.
func fill(b *browsertest.Browser, keys ...string) {
	for i := 0; i < len(keys); i += 2 {
		b.Eval(fmt.Sprintf(`((i, v) => { i.focus(); i.value = v; i.dispatchEvent(new Event("change")); return 0; `+
			`})(document.getElementById("field-%s"), %q)`, keys[i], keys[i+1]), new(any))
		b.Wait(fmt.Sprintf(`document.getElementById("text").value.includes(%q)`, keys[i+1]))
	}
}

func click(b *browsertest.Browser, id string) {
	b.Wait(fmt.Sprintf(`!document.getElementById(%q).disabled && !document.getElementById(%q).hidden`, id, id))
	b.Eval(fmt.Sprintf(`document.getElementById(%q).click() || 0`, id), new(any))
}

// lastStep is how far a run has come.
func lastStep(t *testing.T, dir string) int {
	t.Helper()
	r, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r.LastStep()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// TestUI starts, stops and resumes a real run through the page; a second one waits for its turn, and the first goes on
// when the page's program ends.
func TestUI(t *testing.T) {
	t.Parallel()
	b := browsertest.Start(t)
	dir := t.TempDir()
	ui := startUI(t, dir)
	one := filepath.Join(dir, "runs", "one")
	t.Cleanup(func() { // what may be left of a test that failed
		if pid, held := runs.HeldBy(one); held {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
	})
	b.Do("Page.addScriptToEvaluateOnNewDocument",
		map[string]any{"source": `const text = (s) => (document.querySelector(s) || {}).textContent || "";`}, nil)
	b.Open("about:blank", 1024, 800, false, true)
	b.Open(ui.url+"#token="+ui.token, 1024, 800, false, true)
	b.Wait(`!document.getElementById("empty").hidden && location.hash === "" && ` +
		`document.getElementById("link").textContent === "live"`)
	b.Key("n")
	b.Wait(`document.getElementById("form").open && document.getElementById("field-base_model").value === ` +
		`"embedded:stories260K"`)
	fill(b, "training.learning_rate", "fast")
	b.Wait(`document.getElementById("field-training.learning_rate-wrong").textContent.includes("training.learning_rate") && document.getElementById("make-plan").disabled`)
	fill(b, "training.learning_rate", "1e-3", "output_dir", "/elsewhere")
	b.Wait(`document.getElementById("problems").textContent.includes("is not inside what this page shows")`)
	fill(b, "output_dir", "runs/one", "training.max_steps", "1000000", "training.batch_size", "1", "dataset.max_length",
		"48", "training.logging_steps", "3", "training.save_steps", "500000",
		"expect.loss_decrease", "0")
	b.Wait(`document.getElementById("text").value.startsWith("#")`) // comments stay
	click(b, "make-plan")
	b.Wait(`/^fits: .* of /.test(text(".foot .fits"))`)
	click(b, "start")
	b.Wait(`text("#page h1") === "one" && /^Running: step \d/.test(text("#page .verdict"))`)
	b.Wait(`document.querySelectorAll("#page figure.plot .line").length > 3`)
	grown := `text("#page .figures dd")`
	var before string
	b.Eval(grown, &before)
	b.Wait(fmt.Sprintf(`%s !== %q`, grown, before))

	config, err := os.ReadFile(filepath.Join(one, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]string{"config": strings.ReplaceAll(string(config), "runs/one", "runs/two")})
	if code, answer := ui.post("api/start", string(body)); code != 200 {
		t.Fatalf("a second run: %d %s", code, answer)
	}
	if code, answer := ui.post("api/start", string(body)); code != 409 ||
		!strings.Contains(answer, "is in the queue already (waiting)") {
		t.Errorf("it once more: %d %s", code, answer)
	}
	b.Wait(`document.querySelector("#queue .take") && document.getElementById("queue").innerText.includes("queued ` +
		`(#1)")`)

	ui.end() // with a page open
	b.Wait(`document.getElementById("link").className === "off"`)
	b.Console = nil // a connection was refused
	was := lastStep(t, one)
	eventually(t, "the run continues without the page", func() bool { return lastStep(t, one) > was+3 })
	ui = startUI(t, dir)
	b.Open("about:blank", 1024, 800, false, true)
	b.Open(ui.url+"#token="+ui.token, 1024, 800, false, true)
	b.Wait(`text("#page h1") === "one" && document.querySelector("#queue .take")`)
	b.Eval(`document.querySelector("#queue .take").click() || 0`, new(any))
	b.Wait(`!document.querySelector("#queue .take")`)
	click(b, "stop")
	b.Wait(`text("#page .verdict").startsWith("Stopped")`)
	b.Wait(`document.getElementById("queue").innerText.includes("stopped after")`)
	stopped := lastStep(t, one)
	click(b, "resume")
	b.Wait(`text("#page .verdict").startsWith("Running")`)
	eventually(t, "the run goes on from its checkpoint", func() bool { return lastStep(t, one) > stopped })
	if _, err := os.Stat(filepath.Join(dir, "runs", "two")); err == nil {
		t.Error("the run that was taken out of the queue was started")
	}
	click(b, "stop")
	b.Wait(`text("#page .verdict").startsWith("Stopped")`)
	b.Wait(`[...document.querySelectorAll("#page summary")].some((s) => s.textContent === "Log")`)
	tab := func(name string) {
		b.Wait(fmt.Sprintf(`[...document.querySelectorAll("#tabs button")].some((e) => e.textContent === %q)`, name))
		b.Eval(fmt.Sprintf(
			`[...document.querySelectorAll("#tabs button")].find((e) => e.textContent === %q).click() || 0`,
			name), new(any))
	}
	tab("Data")
	click(b, "rows-show")
	b.Wait(`document.querySelectorAll("#rows article").length === 1 && document.querySelector("#rows .trained") && ` +
		`document.querySelector("#rows .masked") && text("#rows-said") === "rows 1 to 1"`)
	for _, size := range [][2]int{{1280, 800}, {390, 844}} {
		b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": size[0], "height": size[1],
			"deviceScaleFactor": 1, "mobile": false}, nil)
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > size[0] {
			t.Errorf("rows: the page is %d wide, not %d", wide, size[0])
		}
	}
	tab("Chat")
	click(b, "chat-load")
	b.Wait(`!document.getElementById("chat-root").hidden && text("#chat-said").includes("continues each message as ` +
		`text")`)
	b.Wait(`document.activeElement.getAttribute("aria-label") === "message"`)
	for _, c := range "Once" {
		b.Key(string(c))
	}
	b.Key("Enter")
	b.Wait(`document.querySelectorAll("#chat-root .messages li").length === 2 && / s(;|$)/.test(text("#chat-root ` +
		`.said")) && text("#chat-root li:last-child span") !== ""`)
	click(b, "chat-unload")
	b.Wait(`text("#chat-said") === "the model is unloaded" && document.getElementById("chat-root").hidden`)
	b.Key("Escape")
	b.Key("n") // the form shows rows too
	b.Eval(`document.activeElement.blur() || 0`, new(any))
	b.Key("n")
	b.Wait(`document.getElementById("form").open`)
	click(b, "form-rows")
	b.Wait(`document.querySelectorAll("#plan article").length === 3`)
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}
