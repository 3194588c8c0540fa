//go:build unix

package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/browsertest"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
)

const planText = `{"steps":%d,"device":"cpu","precision":"fp32","total_bytes":5476083302,"limit_bytes":8589934592,"categories":[{"name":"frozen weights","bytes":3476083302},` +
	`{"name":"activations","bytes":1500000000},{"name":"adapter","bytes":100000000},{"name":"gradients","bytes":100000000},{"name":"adam m","bytes":150000000},{"name":"adam v","bytes":150000000}]}`

// running is the lock of a process that lives: this one.
func running() string {
	host, _ := os.Hostname()
	return fmt.Sprintf(`{"pid":%d,"host":%q}`, os.Getpid(), host)
}

// seen tells whether an element is on the first screen.
func seen(selector string) string {
	return fmt.Sprintf(`((r) => r.width > 0 && r.top >= 0 && r.top + Math.min(r.height, 60) <= innerHeight)(document.querySelector(%q).getBoundingClientRect())`, selector)
}

// TestBrowser shows runs as a browser lays them out, at three widths, light and dark: state, loss and memory are on the
// first screen, nothing is wider than it, and nothing is reported as an error. REPORT_SCREENSHOTS=DIR keeps what is
// seen.
func TestBrowser(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, func(o *Options) { o.Settings = func([]byte) ([]runs.Setting, error) { return nil, nil } })
	long := `<img src=x onerror="document.title='run'"> & ` + strings.Repeat("x", 152)
	for name, text := range map[string]string{
		"points-0": "", "points-1": steps(1, 1), "points-10": steps(1, 10), "points-100000": steps(1, 100_000),
		"nan": steps(1, 40) + step(41, "null") + steps(42, 60) + `{"step":60,"eval_loss":2.2}` + "\n", long: steps(1, 50),
	} {
		write(t, root, name, train.MetricsFile, text)
		write(t, root, name, train.PlanReportFile, fmt.Sprintf(planText, 200_000))
	}
	write(t, root, "points-100000", checkpoint.LockFile, running())
	url := "http://" + serve(t, s) + "/"
	shown := 0 // another address each time: one that differs behind # alone is not loaded again
	look := func(name string, width, height int, dark bool) {
		t.Helper()
		start := time.Now()
		shown++
		b.Open(fmt.Sprintf("%s?%d#show=", url, shown)+idOf(filepath.Join(root, name)), width, height, dark, true)
		b.Wait(`document.querySelector("#page h1") && document.querySelector("#page figure.bar")`)
		t.Logf("%s, %d wide: %v", name[:min(len(name), 20)], width, time.Since(start).Round(time.Millisecond))
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("%s: the page is %d wide, not %d", name, wide, width)
		}
		var first []bool
		b.Eval("["+seen("#page .verdict")+","+seen("#page figure")+","+seen("#page figure.bar figcaption")+"]", &first)
		if !first[0] || !first[1] || width > 500 && !first[2] {
			t.Errorf("%s, %d wide: state, loss, memory on the first screen: %v", name, width, first)
		}
		if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
			b.Shoot(filepath.Join(dir, fmt.Sprintf("live-%.20s-%d-%v.png", strings.Trim(name, "<"), width, dark)))
		}
	}
	for i, name := range []string{"points-0", "points-1", "points-10", "points-100000", "nan", long} {
		look(name, 1440, 900, i%2 == 1)
	}
	for i, name := range []string{"points-0", "points-100000", "nan", long} {
		look(name, 360, 780, i%2 == 0)
	}
	look("nan", 1024, 800, true)
	var title string
	if b.Eval(`document.title`, &title); strings.Contains(title, "<img") || title == "run" {
		t.Errorf("the title is %q", title)
	}

	b.Open(url, 1440, 900, false, true) // as it is printed: the newest run is shown
	b.Wait(`document.querySelector("#page h1")?.textContent === document.querySelector("#runs .current b")?.textContent`)
	b.Open(url+"?again#show="+idOf(filepath.Join(root, "points-100000")), 1440, 900, false, true)
	b.Wait(`document.querySelector("#page .line")`)
	const lastLoss = `[...document.querySelectorAll("#page .piece")].find((p) => p.querySelector("figcaption")?.textContent.startsWith("Loss")).querySelector("output").textContent`
	for i := range 3 { // grows while it is looked at
		write(t, root, "points-100000", train.MetricsFile, step(100_001+i, fmt.Sprintf("1.%d5", i+1)))
		b.Wait(fmt.Sprintf(`%s === "1.%d5"`, lastLoss, i+1))
	}
	var kept int // points of the raw losses: of 100,000 the lowest and the highest of each pixel
	b.Eval(`document.querySelector("#page .line.faint").getAttribute("d").split("L").length`, &kept)
	if kept < 1000 || kept > 3*4000 {
		t.Errorf("%d points are drawn", kept)
	}
	var frame float64 // how long a drawing of a plot takes
	b.Eval(`(() => { const f = document.querySelector("figure.plot"), t = performance.now(); for (let i = 0; i < 10; i++) f.dispatchEvent(new KeyboardEvent("keydown", { key: "l" })); return (performance.now() - t) / 10; })()`, &frame)
	t.Logf("a drawing of the losses takes %.1f ms in the browser", frame)
	b.Eval(`document.querySelector("figure.plot").focus() || 0`, new(any))
	for range 8 {
		b.Key("+")
	}
	b.Wait(`(document.querySelector("#page .line.faint").getAttribute("d").match(/[ML]/g) || []).length > 300 && document.querySelector("figure.plot").classList.contains("zoomed")`) // each step, as the server has it
	b.Key("0")
	b.Eval(`document.activeElement.blur() || 0`, new(any))

	b.Key("/")
	b.Wait(`document.activeElement.id === "search"`)
	b.Eval(`(() => { const s = document.getElementById("search"); s.value = "points"; s.dispatchEvent(new Event("input")); s.blur(); return 0; })()`, new(any))
	b.Wait(`document.getElementById("runs").children.length === 4`)
	b.Key("j")
	b.Wait(`document.querySelector("#runs .current b").textContent !== "points-100000"`)
	b.Key("c")
	b.Key("j")
	b.Wait(`document.querySelector("#page h1")?.textContent === "2 runs compared"`)
	b.Wait(`document.querySelectorAll("#runs :checked").length === 1 && !document.getElementById("alone").hidden`)
	b.Key("Escape")
	b.Wait(`document.querySelector("#page h1").textContent.startsWith("points")`)
	b.Key("k")
	b.Key("k")
	b.Key("k")
	b.Wait(`document.querySelector("#page h1").textContent === "points-100000"`)
	b.Key("?")
	b.Wait(`document.getElementById("help").open && document.getElementById("rights").textContent.includes("only reads") && document.getElementById("new").hidden`)
	var unnamed int // every control has a name for who does not see it
	b.Eval(`[...document.querySelectorAll("button, input, select, textarea, progress, figure, nav, dialog")].filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || (e.labels && e.labels.length))).length`, &unnamed)
	if unnamed > 0 {
		t.Errorf("%d controls have no name", unnamed)
	}
	const list = `document.getElementById("fold").open`
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.Wait("!" + list)
	b.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.Wait(list) // a window that was made wide
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}
