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
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/journal"
)

// TestBrowserList: runs stand in groups and are sorted; a run gets a name, a group and a note, which are shown as text;
// a run is deleted after a question, and what must not be deleted says why. Without the token nothing of it is there.
func TestBrowserList(t *testing.T) {
	b := browsertest.Start(t)
	s, root := fixture(t, nil)
	for i, name := range []string{"c-one", "a-two", "sweep/lr-1", "sweep/lr-2", "b-kept"} {
		write(t, root, name, train.MetricsFile, steps(1, 5+i)+fmt.Sprintf(`{"step":%d,"eval_loss":%d}`+"\n", 5+i, 9-i))
		write(t, root, name, journal.StatusFile, fmt.Sprintf(`{"format":1,"state":"finished","began":"2026-01-0%dT03:04:05Z","pid":1,"host":"x"}`, 1+i))
	}
	write(t, root, "b-kept", "thesis.txt", "years of work")
	address := "http://" + serve(t, s) + "/"
	const names = `[...document.querySelectorAll("#runs li")].map((e) => e.classList.contains("group") ? "[" + e.textContent + "]" : e.querySelector("b").textContent).join(" ")`
	sort := func(by string) {
		b.Eval(fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event("change")); return 0; })(document.getElementById("sort"))`, by), new(any))
	}
	choose := func(name string) {
		b.Eval(fmt.Sprintf(`[...document.querySelectorAll("#runs .run")].find((e) => e.querySelector("b").textContent === %q).click() || 0`, name), new(any))
		b.Wait(fmt.Sprintf(`document.querySelector("#page h1")?.textContent === %q`, name))
	}
	set := func(id, value string) {
		b.Eval(fmt.Sprintf(`((e) => { e.value = %q; return 0; })(document.getElementById(%q))`, value, id), new(any))
	}
	click := func(id string) { b.Eval(fmt.Sprintf(`document.getElementById(%q).click() || 0`, id), new(any)) }
	b.Open(address, 1280, 800, false, true)
	b.Wait(`document.querySelectorAll("#runs .run").length === 5`)
	b.Wait(`document.getElementById("about").hidden && document.getElementById("delete").hidden`)
	for i, width := range []int{1280, 390} {
		b.Open("about:blank", width, 844, i == 1, true)
		b.Open(address+"#token="+url.QueryEscape(token), width, 844, i == 1, true)
		b.Wait(`document.querySelectorAll("#runs .run").length === ` + fmt.Sprint(5-i))
		b.Eval(`(document.getElementById("fold").open = true) && 0`, new(any))
		sort("name")
		if i == 0 {
			b.Wait(names + ` === "a-two b-kept c-one [sweep] lr-1 lr-2"`)
			sort("eval")
			b.Wait(names + ` === "b-kept a-two c-one [sweep] lr-2 lr-1"`)
			b.Wait(`/eval 6 · \d+ Jan|eval 6 · Jan \d+/.test(document.querySelectorAll("#runs .run small")[3].textContent)`)
			shoot(b, "list-1280")
			choose("c-one")
			click("about")
			b.Wait(`document.getElementById("about-form").open && document.activeElement.id === "about-name"`)
			set("about-name", `<img src=x onerror="document.title='about'">`)
			set("about-group", "sweep")
			set("about-note", "a <b>note</b>\nof two lines")
			shoot(b, "about-1280")
			click("about-save")
			b.Wait(`!document.getElementById("about-form").open`)
			b.Wait(`document.querySelector("#page h1").textContent.startsWith("<img src=x") && document.querySelector("#page .about").textContent === "a <b>note</b>\nof two lines"`)
			sort("name")
			b.Wait(names + `.startsWith("a-two b-kept [sweep] <img")`)
			choose("b-kept")
			click("delete")
			b.Wait(`document.getElementById("delete-said").textContent.includes("holds thesis.txt, which no run writes") && document.getElementById("delete-now").disabled`)
			click("delete-cancel")
			choose("a-two")
			click("delete")
			b.Wait(`!document.getElementById("delete-now").disabled && document.activeElement.id === "delete-cancel"`)
			click("delete-cancel") // nothing happens without a yes
			click("delete")
			b.Wait(`!document.getElementById("delete-now").disabled && document.getElementById("delete-what").textContent.includes("0 checkpoints")`)
			shoot(b, "delete-1280")
			click("delete-now")
			b.Wait(`!document.getElementById("delete-form").open && document.querySelectorAll("#runs .run").length === 4`)
		} else {
			b.Wait(names + `.startsWith("b-kept [sweep] <img")`)
			shoot(b, "list-390")
			click("about")
			b.Wait(`document.getElementById("about-form").open`)
			shoot(b, "about-390")
		}
		fits(t, b, "list", width)
	}
	if _, err := os.Lstat(filepath.Join(root, "a-two")); !os.IsNotExist(err) {
		t.Error("the run that was deleted is there")
	}
	for _, name := range []string{"b-kept/thesis.txt", "c-one", "sweep/lr-1"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	var title string
	if b.Eval(`document.title`, &title); title == "about" {
		t.Error("a name was executed")
	}
	b.Console = nil // the refusal is reported as a failed request
}

// TestDeletesNothingElse: a run that waits in the queue, one under a link that leads out, and a root itself stay.
func TestDeletesNothingElse(t *testing.T) {
	s, root := fixture(t, nil)
	write(t, root, "queued", train.MetricsFile, steps(1, 3))
	if _, err := s.o.Queue.Add(queue.Entry{Name: "queued", OutputDir: filepath.Join(root, "queued"), Dir: root}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	write(t, outside, "run", train.MetricsFile, steps(1, 3))
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Skip(err)
	}
	s.hub.refresh(nil)
	if _, err := s.delete(nil, request{ID: idOf(filepath.Join(root, "queued")), Value: "queued"}); err == nil || !strings.Contains(err.Error(), "is in the queue (waiting)") {
		t.Error(err)
	}
	// as a hand-made request cannot name it, the folder of a known run becomes a link.
	dir := filepath.Join(root, "link", "run")
	s.hub.items["000000000000"] = &item{id: "000000000000", dir: dir, follow: runs.Follow(dir), run: &runs.Run{Dir: dir, Name: "run"}, row: row{}}
	s.hub.items["000000000000"].read = s.hub.scanned.AddDate(1, 0, 0)
	if _, err := s.delete(nil, request{ID: "000000000000", Value: "run"}); err == nil {
		t.Error("a run under a link was deleted")
	}
	if _, err := os.Stat(filepath.Join(outside, "run", train.MetricsFile)); err != nil {
		t.Error(err)
	}
}
