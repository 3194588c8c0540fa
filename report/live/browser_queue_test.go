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
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// TestBrowserMovesTheQueue: by keyboard alone a run gets an earlier turn; the focus stays with it, also where the list
// is drawn anew, and ends nowhere. Without the token nothing can be moved.
func TestBrowserMovesTheQueue(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, nil)
	for _, name := range []string{"first", `<img src=x onerror="document.title='queue'">`, "third"} {
		if _, err := s.o.Queue.Add(queue.Entry{Name: name, OutputDir: filepath.Join(root, name[:1]), Dir: root}, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	address := "http://" + serve(t, s) + "/"
	const names = `[...document.querySelectorAll("#queue b")].map((e) => e.textContent[0]).join("")`
	b.Open(address, 1024, 800, false, true)
	b.Wait(names + ` === "f<t"`)
	b.Wait(`document.querySelectorAll("#queue .move").length === 0`)
	for i, width := range []int{1440, 360} {
		b.Open("about:blank", width, 800, i == 1, true)
		b.Open(address+"#token="+url.QueryEscape(token), width, 800, i == 1, true)
		b.Eval(`(document.getElementById("fold").open = true) && 0`, new(any))
		b.Wait(`document.querySelectorAll("#queue .move").length === 6`)
		b.Wait(`document.querySelectorAll("#queue .move:disabled").length === 2`)
		third := 2 - i // where it is
		b.Eval(fmt.Sprintf(`document.querySelectorAll("#queue li")[%d].querySelector("[data-way=%s]").focus() || 0`, third, []string{"up", "down"}[i]), new(any))
		b.Key(" ")
		want := []string{"ft<", "f<t"}[i]
		b.Wait(names + fmt.Sprintf(` === %q`, want))
		b.Wait(`document.activeElement.classList.contains("move") && document.activeElement.closest("li").querySelector("b").textContent === "third"`)
		b.Wait(`document.getElementById("announce").textContent.startsWith("third moved ")`)
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("the page is %d wide, not %d", wide, width)
		}
		if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
			b.Shoot(filepath.Join(dir, fmt.Sprintf("queue-%d.png", width)))
		}
		if i == 1 {
			break
		}
	}
	all, err := s.o.Queue.List()
	if err != nil || len(all) != 3 || all[0].Name != "first" || all[2].Name != "third" {
		t.Errorf("%v: the queue is %+v", err, all)
	}
	var title string
	if b.Eval(`document.title`, &title); title == "queue" {
		t.Error("the name of a run was executed")
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}

// TestBrowserClearsTheQueue: what has ended is cleared by a button, what waits stays, and a run that was started in a
// terminal is among what the queue waits for.
func TestBrowserClearsTheQueue(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, nil) // whose program does not start
	add := func(name string) {
		t.Helper()
		if _, err := s.o.Queue.Add(queue.Entry{Name: name, OutputDir: filepath.Join(root, name), Dir: root}, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	add("broken")
	if err := s.o.Queue.Work(t.Context(), s.o.Program, queue.Machine{}); err != nil {
		t.Fatal(err)
	}
	add("later")
	write(t, root, "manual", train.MetricsFile, steps(1, 10))
	write(t, root, "manual", checkpoint.LockFile, running())
	address := "http://" + serve(t, s) + "/"
	for i, width := range []int{1280, 390} {
		b.Open("about:blank", width, 800, i == 1, true)
		b.Open(address+"#token="+url.QueryEscape(token), width, 800, i == 1, true)
		b.Eval(`(document.getElementById("fold").open = true) && 0`, new(any))
		b.Wait(`document.getElementById("queue").innerText.includes("running, started in a terminal")`)
		b.Wait(`document.getElementById("queue").innerText.includes("queued (#1)")`)
		if i == 0 {
			b.Wait(`document.getElementById("queue").innerText.includes("broken")`)
			shoot(b, "queue-clear")
			b.Eval(`document.getElementById("clear").focus() || 0`, new(any))
			b.Key(" ")
		}
		b.Wait(`!document.getElementById("queue").innerText.includes("broken") && document.getElementById("clear").hidden`)
	}
	if all, err := s.o.Queue.List(); err != nil || len(all) != 1 || all[0].Name != "later" {
		t.Errorf("%v: the queue is %+v", err, all)
	}
}

// TestBrowserShowsSamples: what the model said is a table by step, as text, in both schemes and on a phone; what it
// says while the page is looked at appears.
func TestBrowserShowsSamples(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, nil)
	line := func(step int, text string) string {
		return fmt.Sprintf(`{"step":%d,"prompt":"Once <b>upon","text":%q}`+"\n", step, text)
	}
	write(t, root, "said", train.MetricsFile, `{"step":0,"epoch":0,"task":"gsm8k","metric":"exact","value":0.25,"stderr":0.125,"questions":8}`+"\n"+steps(1, 5))
	write(t, root, "said", train.SamplesFile, line(0, `</td><script>document.title="run"</script><img src=x onerror="document.title='run'">`)+line(2, strings.Repeat("x", 600)))
	address := "http://" + serve(t, s) + "/"
	cells := `[...document.querySelectorAll("#page table")].find((e) => e.caption && e.caption.textContent.startsWith("Samples"))`
	for i, width := range []int{1440, 360} {
		b.Open(fmt.Sprintf("%s?%d", address, i), width, 800, i == 1, true)
		b.Wait(cells)
		var got []string
		b.Eval(`[...`+cells+`.querySelectorAll("tbody td")].slice(0, 3).map((e) => e.textContent)`, &got)
		if want := []string{"0", "Once <b>upon", `</td><script>document.title="run"</script><img src=x onerror="document.title='run'">`}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the first row is %q", got)
		}
		var wide int
		if b.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
			t.Errorf("the page is %d wide, not %d", wide, width)
		}
		var plain bool // text and background differ in this scheme
		if b.Eval(`getComputedStyle(`+cells+`.querySelector("td")).color !== getComputedStyle(document.body).backgroundColor`, &plain); !plain {
			t.Error("the text cannot be seen")
		}
		if dir := os.Getenv("REPORT_SCREENSHOTS"); dir != "" {
			b.Eval(cells+`.scrollIntoView() || 0`, new(any))
			b.Shoot(filepath.Join(dir, fmt.Sprintf("samples-%d.png", width)))
		}
	}
	write(t, root, "said", train.SamplesFile, line(4, "new"))
	b.Wait(cells + `.querySelector("tr:last-child td:last-child").textContent === "new"`)
	b.Wait(`document.getElementById("page").innerText.includes("0.25 ± 0.125")`)
	var title string
	if b.Eval(`document.title`, &title); title == "run" {
		t.Error("a text of a run was executed")
	}
	if b.Console != nil {
		t.Errorf("the page reports %s", strings.Join(b.Console, "\n"))
	}
}
