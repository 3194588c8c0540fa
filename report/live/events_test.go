package live

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/train"
)

// listenTo reads events.
func listenTo(t *testing.T, address, show string) func() (name, data string) {
	t.Helper()
	r, err := http.Get("http://" + address + "/api/events?width=400&show=" + show)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	if kind := r.Header.Get("Content-Type"); r.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("status %d, %s", r.StatusCode, kind)
	}
	in := bufio.NewReader(r.Body)
	late := time.AfterFunc(30*time.Second, func() { r.Body.Close() })
	t.Cleanup(func() { late.Stop() })
	return func() (name, data string) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("the events end: %v", err)
			}
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "event: "):
				name = line[7:]
			case strings.HasPrefix(line, "data: "):
				data = line[6:]
			case line == "" && name != "":
				return name, data
			}
		}
	}
}

// TestEvents: a page comes whole, then what its plots gain, and pieces that differ; and whole again where it has other
// sections.
func TestEvents(t *testing.T) {
	s, root := fixture(t, nil)
	name := "<img src=x onerror=alert(1)>"
	write(t, root, name, train.MetricsFile, steps(1, 30))
	address := serve(t, s)
	events := listenTo(t, address, idOf(filepath.Join(root, name)))
	until := func(want string) (data string) {
		t.Helper()
		for range 50 {
			got, data := events()
			if got == want {
				return data
			}
			if want == "grow" && got == "page" {
				t.Fatal("the whole page again for a line more")
			}
		}
		t.Fatalf("no %s in 50 events", want)
		return ""
	}
	if list := until("list"); strings.Contains(list, "<img") || !strings.Contains(list, `"steps":"30"`) {
		t.Errorf("the list: %s", list)
	}
	page := until("page")
	if strings.Contains(page, "<img") || !strings.Contains(page, `\u0026lt;img src=x onerror=alert(1)\u0026gt;`) {
		t.Errorf("the name is not escaped: %s", page[:min(len(page), 500)])
	}
	write(t, root, name, train.MetricsFile, step(31, "1.25"))
	// smoothed to both sides, it changes before its end.
	for loss := ""; !strings.Contains(loss, `"id":"p0-`) || !strings.Contains(loss, "mean around each"); {
		loss = until("piece")
	}
	grown := until("grow")
	if !strings.Contains(grown, `{"x":[31],"y":[0.001]}`) || len(grown) > 400 {
		t.Errorf("what has grown: %s", grown)
	}
	write(t, root, name, train.MetricsFile, `{"step":31,"eval_loss":2}`+"\n"+step(32, "null"))
	if piece := until("piece"); !strings.Contains(piece, "head") && !strings.Contains(piece, "p0-") {
		t.Error(piece)
	}
	write(t, root, name, train.DataReportFile, `{"rows":3,"source":"<script>alert(1)</script>"}`)
	if page := until("page"); strings.Contains(page, "<script>alert") || !strings.Contains(page, "Data") {
		t.Errorf("the page with its data: %s", page[:min(len(page), 500)])
	}
	if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
	if page := until("page"); page != `{"html":""}` {
		t.Errorf("of a run that is gone: %s", page)
	}
}

// TestQueueEntries: a run of the queue that never came to a folder of its own is a page with what it said.
func TestQueueEntries(t *testing.T) {
	s, root := fixture(t, nil)
	e, err := s.o.Queue.Add(queue.Entry{Name: "<b>new</b>", OutputDir: filepath.Join(root, "new"), Dir: root}, []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	view := func() string {
		t.Helper()
		s.hub.scanned = time.Time{}
		s.hub.refresh(nil)
		p, ok := s.hub.view([]string{e.ID})
		if !ok {
			t.Fatal("the run of the queue has no page")
		}
		html, err := p.Fragment(100)
		if err != nil {
			t.Fatal(err)
		}
		return html
	}
	if html := view(); !strings.Contains(html, "queued") || strings.Contains(html, "<b>new") {
		t.Errorf("while it waits: %s", html)
	}
	if err := s.o.Queue.Work(t.Context(), s.o.Program, queue.Machine{}); err != nil {
		t.Fatal(err)
	}
	if html := view(); !strings.Contains(html, "did not start, or was ended by a signal") || !strings.Contains(html, "trainer: the run does not start: ") {
		t.Errorf("after it failed: %s", html)
	}
}
