//go:build unix

package live

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/browsertest"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/journal"
)

// contrast is a function of the page: the contrast ratio of an element's text against the first opaque background under
// it, as WCAG defines it.
const contrast = `((e) => {
	const rgb = (c) => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	let under = e;
	while (under && (rgb(getComputedStyle(under).backgroundColor)[3] === 0)) under = under.parentElement;
	const a = light(rgb(getComputedStyle(e).color)), b = light(rgb(getComputedStyle(under || document.body).backgroundColor));
	return +getComputedStyle(e).opacity * (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
})`

// shoot keeps what the browser shows where REPORT_SCREENSHOTS names a folder.
func shoot(b *browsertest.Browser, name string) {
	if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
		b.Shoot(filepath.Join(dir, name+".png"))
	}
}

// fits reports pages that are wider than the window.
func fits(t *testing.T, b *browsertest.Browser, what string, width int) {
	t.Helper()
	var wide int
	if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
		t.Errorf("%s: the page is %d wide, not %d", what, wide, width)
	}
	var inner []string // boxes that scroll sideways
	b.Eval(`[...document.querySelectorAll("#page .scroll")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.slice(0, 60))`, &inner)
	if len(inner) > 0 {
		t.Errorf("%s, %d wide: tables wider than the page: %q", what, width, inner)
	}
}

// TestBrowserRunPage: a finished run says so without a green PASS, warnings stand in amber under the title, a failed
// run shows its error and the last line of its log, tabs work by keyboard, skipped checks are on the screen, and
// disabled buttons can be read.
func TestBrowserRunPage(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, func(o *Options) {
		o.Settings = func([]byte) ([]runs.Setting, error) {
			return []runs.Setting{{Key: "expect.loss_decrease", Value: "0.5"}, {Key: "seed", Value: "1"}}, nil
		}
	})
	end := `{"step":40,"train_loss":1,"train_runtime":8}` + "\n"
	write(t, root, "done", train.MetricsFile, steps(1, 40)+end)
	write(t, root, "done", train.DataReportFile, `{"source":"x","leaked":2,"val_rows":14}`)
	write(t, root, "broken", train.MetricsFile, steps(1, 40))
	write(t, root, "broken", journal.StatusFile, `{"format":1,"state":"failed","exit_code":1,"error":"open <b>rows</b>: no such file","pid":1,"host":"x","reached_steps":true,"began":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:05:05Z"}`)
	write(t, root, "broken", journal.LogFile, strings.Repeat("a line of the log\n", 400)+"trainer: the last line\n")
	address := "http://" + serve(t, s) + "/"
	const seenLine = `((e) => { const r = document.createRange(); r.setStart(e.firstChild, e.firstChild.length - 5); r.setEnd(e.firstChild, e.firstChild.length - 1);
		const box = r.getBoundingClientRect(), pre = e.parentNode.getBoundingClientRect(); return box.height > 0 && box.top >= pre.top - 1 && box.bottom <= pre.bottom + 1; })`
	for i, width := range []int{1280, 390} {
		dark := i == 1
		visit := func(name string) {
			b.Open("about:blank", width, 900, dark, true)
			b.Open(address+"#show="+idOf(filepath.Join(root, name)), width, 900, dark, true)
			b.Wait(`document.querySelector("#page h1")`)
		}
		visit("done")
		var got []string
		b.Eval(`[".verdict b", ".verdict", ".warnings li"].map((q) => document.querySelector("#page " + q).textContent)`, &got)
		if got[0] != "Finished" || got[1] != "Finished: 40 steps in 20 s" || !strings.HasPrefix(got[2], "warning leak: 2 of the 14 validation rows") {
			t.Errorf("under the title stands %q", got)
		}
		var colours []string
		b.Eval(`[".verdict b", ".warnings b"].map((q) => getComputedStyle(document.querySelector("#page " + q)).color)`, &colours)
		if want := []string{"rgb(27, 31, 36)", "rgb(230, 232, 234)"}[i]; colours[0] != want {
			t.Errorf("Finished is %s, not the colour of text %s", colours[0], want)
		}
		if want := []string{"rgb(138, 90, 0)", "rgb(227, 179, 65)"}[i]; colours[1] != want {
			t.Errorf("the warning is %s, not amber %s", colours[1], want)
		}
		var onScreen bool // a check that was skipped
		if b.Eval(`((r) => r.left >= 0 && r.width > 0)(document.querySelector("#page .checks .skip").getBoundingClientRect())`, &onScreen); !onScreen {
			t.Error("the check that was skipped is not on the screen")
		}
		fits(t, b, "done", width)
		shoot(b, fmt.Sprintf("page-done-%d", width))

		const d = `document.querySelector("#page .smooth input").closest("figure").querySelector(".area .line:not(.faint)").getAttribute("d")`
		const value = `[...document.querySelector("#page .smooth input").closest("figure").querySelectorAll(".key output")][1].textContent`
		var before, after, was, is string
		b.Eval(d, &before)
		b.Eval(value, &was)
		b.Eval(`document.querySelector("#page .smooth input").focus() || 0`, new(any))
		b.Eval(`((e) => { e.value = 0; e.dispatchEvent(new Event("input", { bubbles: true })); return 0; })(document.querySelector("#page .smooth input"))`, new(any))
		b.Eval(d, &after)
		b.Eval(value, &is)
		if before == after || was == is || is != "2.075" {
			t.Errorf("without smoothing the curve ends at %s, with it at %s; its path changed: %v", is, was, before != after)
		}
		var tip string
		b.Eval(`document.querySelector("#page .smooth").title`, &tip)
		if !strings.Contains(tip, "β = 2^(−1/h)") {
			t.Errorf("the slider's tooltip is %q", tip)
		}
		b.Eval(`((e) => { e.value = 5; e.dispatchEvent(new Event("input", { bubbles: true })); return 0; })(document.querySelector("#page .smooth input"))`, new(any))
		b.Wait(`document.querySelector("#page .smooth .level").textContent === "10%"`)

		visit("broken")
		b.Wait(`document.querySelector("#page .verdict").textContent.startsWith("Failed, step 40: open <b>rows</b>: no such file.")`)
		b.Wait(seenLine + `(document.querySelector("#page pre code"))`)
		shoot(b, fmt.Sprintf("page-broken-%d", width))
		b.Key("2")
		b.Wait(`document.activeElement.textContent === "Log" && document.activeElement.getAttribute("aria-selected") === "true"`)
		b.Wait(`document.querySelector("#page .figures").getBoundingClientRect().height === 0`)
		b.Wait(seenLine + `([...document.querySelectorAll("#page pre code")].at(-1))`)
		shoot(b, fmt.Sprintf("page-log-%d", width))
		fits(t, b, "broken", width)
		b.Key("ArrowRight")
		b.Wait(`document.activeElement.textContent === "Configuration" && !document.getElementById("page").innerText.includes("a line of the log")`)
		b.Key("1")
		b.Wait(`document.querySelector("#page .figures").getBoundingClientRect().height > 0`)
		var low float64
		b.Eval(`Math.min(...[...document.querySelectorAll("button:disabled")].filter((e) => e.offsetWidth).map(`+contrast+`))`, &low)
		if low < 4.5 {
			t.Errorf("a disabled button has contrast %.2f, at least 4.5 is readable", low)
		}
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}

// TestBrowserCompares: runs with long names stand beside each other without a table that is wider than the window, at
// 1280 and 390 pixels, two and eight of them.
func TestBrowserCompares(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, func(o *Options) {
		o.Settings = func(config []byte) ([]runs.Setting, error) {
			return []runs.Setting{{Key: "dataset.path", Value: "/a/long/path/of/a/folder/of/data/" + string(config) + ".jsonl"}, {Key: "seed", Value: "1"}}, nil
		}
	})
	var ids []string
	for i := range 8 {
		name := fmt.Sprintf("experiment-with-a-long-name-lr-%d-of-qwen3-8b-on-support-tickets", i)
		write(t, root, name, train.MetricsFile, steps(1, 40)+fmt.Sprintf(`{"step":40,"eval_loss":2.%d}`+"\n", i)+`{"step":40,"train_loss":1,"train_runtime":8}`+"\n")
		write(t, root, name, train.ConfigFile, fmt.Sprint("rows-", i))
		write(t, root, name, train.PlanReportFile, fmt.Sprintf(planText, 40))
		ids = append(ids, idOf(filepath.Join(root, name)))
	}
	address := "http://" + serve(t, s) + "/"
	for _, n := range []int{2, 8} {
		for i, width := range []int{1280, 390} {
			b.Open("about:blank", width, 900, i == 1, true)
			b.Open(address+"#show="+strings.Join(ids[:n], ","), width, 900, i == 1, true)
			b.Wait(fmt.Sprintf(`document.querySelector("#page h1")?.textContent === "%d runs compared"`, n))
			fits(t, b, fmt.Sprint(n, " runs"), width)
			shoot(b, fmt.Sprintf("compare-%d-%d", n, width))
		}
	}
	var text string
	b.Eval(`document.getElementById("page").innerText`, &text)
	if !strings.Contains(text, "…lr-3-…") || !strings.Contains(text, "…3.jsonl") || strings.Contains(text, "seed") {
		t.Errorf("names are not cut to what differs, or an equal key is shown:\n%s", text)
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}

// TestBrowserKeepsStartInView: Start stays on the screen while the form is scrolled, also on a phone.
func TestBrowserKeepsStartInView(t *testing.T) {
	b := browsertest.Start(t)
	s, _ := fixture(t, func(o *Options) {
		for i := range 60 {
			o.Fields = append(o.Fields, Field{Key: fmt.Sprint("training.key", i), Kind: "text", About: "what it does"})
		}
		o.Fields = append(o.Fields, Field{Key: "base_model", Kind: "text", About: "the model"})
		o.Templates = []Template{{Name: "one", About: "a configuration", Text: "right"}}
	})
	address := "http://" + serve(t, s) + "/"
	for i, width := range []int{1280, 390} {
		b.Open("about:blank", width, 700, i == 1, true)
		b.Open(address+"#token="+url.QueryEscape(token), width, 700, i == 1, true)
		b.Wait(`document.getElementById("link").className === "on"`)
		b.Key("n")
		b.Wait(`document.getElementById("form").open && document.getElementById("field-base_model")`)
		b.Eval(`document.querySelectorAll("#fields details").forEach((d) => { d.open = true; }) || 0`, new(any))
		for _, at := range []string{"0", "300", "1e6"} {
			b.Eval(`(document.getElementById("form").scrollTop = `+at+`) && 0`, new(any))
			var inView bool
			b.Eval(`((r) => r.top >= 0 && r.bottom <= innerHeight)(document.getElementById("start").getBoundingClientRect())`, &inView)
			if !inView {
				t.Errorf("%d wide, scrolled by %s: Start is out of view", width, at)
			}
		}
		var low float64
		if b.Eval(contrast+`(document.getElementById("start"))`, &low); low < 4.5 {
			t.Errorf("Start, which is disabled, has contrast %.2f", low)
		}
		shoot(b, fmt.Sprintf("form-%d", width))
	}
}
