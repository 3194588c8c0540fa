package live

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/journal"
)

// Limits of searching and reading folders.
const (
	mostRuns   = 500
	scanEvery  = 2 * time.Second
	oldEvery   = 5 * time.Second        // time between two readings of runs that are neither shown nor training
	firstReads = 300 * time.Millisecond // time spent on new folders at once, so that the page appears soon
	logBytes   = 32 << 10
)

// newsEvery is the time between two readings of the files of a run that trains or is shown.
var newsEvery = time.Second

// hub holds the runs below the roots. It reads files only when a request needs them.
type hub struct {
	o       Options
	reading chan struct{} // holds one value while a goroutine reads folders of runs
	mu      sync.Mutex
	items   map[string]*item
	scanned time.Time
	queue   []queue.Entry
}

// item is a run's folder.
type item struct {
	id, dir string
	under   string         // folder that contains dir, relative to its root
	follow  *runs.Follower // used by the goroutine that holds reading
	run     *runs.Run      // nil = not read yet, or no run
	read    time.Time      // time of the last reading
	written time.Time      // time of the run's last line
	touched time.Time      // modification time of its files when it was found
	row     row
	version int
}

func newHub(o Options) *hub {
	return &hub{o: o, reading: make(chan struct{}, 1), items: map[string]*item{}}
}

// idOf returns the id of a folder.
func idOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6])
}

// refresh reads new content. It reads runs in want as often as runs that train. Only one caller at a time reads files,
// without h.mu, so that a page of known runs never waits for a disk. A caller that finds another one reading waits for
// firstReads at most.
func (h *hub) refresh(want []string) {
	select {
	case h.reading <- struct{}{}:
	case <-time.After(firstReads):
		return
	}
	defer func() { <-h.reading }()
	h.mu.Lock()
	now := time.Now()
	if now.Sub(h.scanned) >= scanEvery {
		h.scan()
		h.scanned = time.Now()
	}
	var due []*item
	for _, it := range h.byAge() {
		every := oldEvery
		if it.run != nil && it.run.Held || slices.Contains(want, it.id) {
			every = newsEvery * 9 / 10 // less than newsEvery, so that a request every newsEvery always reads
		}
		if now.Sub(it.read) >= every {
			due = append(due, it)
		}
	}
	h.mu.Unlock()
	changed, spent := false, time.Duration(0)
	for _, it := range due {
		first := it.read.IsZero()
		if first && spent > firstReads && !slices.Contains(want, it.id) {
			continue
		}
		start := time.Now()
		changed = h.look(it) || changed
		if first {
			spent += time.Since(start)
		}
	}
	if changed {
		h.mu.Lock()
		h.name()
		h.mu.Unlock()
	}
}

// byAge returns all items, the most recently changed first.
func (h *hub) byAge() []*item {
	return slices.SortedFunc(maps.Values(h.items), func(a, b *item) int {
		if c := b.touched.Compare(a.touched); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
}

// look reads a run's folder again; the caller holds h.reading and not h.mu.
func (h *hub) look(it *item) bool {
	r, changed, _ := it.follow.Read()
	written := it.follow.Written()
	if changed && r != nil && h.o.Settings != nil {
		if old := it.run; old != nil && string(old.Config) == string(r.Config) {
			r.Settings = old.Settings
		} else if s, err := h.o.Settings(r.Config); err == nil {
			r.Settings = s
		} else {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %v; it is shown as it is", train.ConfigFile, err))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	it.read = time.Now()
	if changed {
		it.run, it.written = r, written
		it.version++
	}
	return changed
}

// name names all runs and makes their rows of the list.
func (h *hub) name() {
	var all []*runs.Run
	for _, it := range h.shown() {
		all = append(all, it.run)
	}
	runs.SetNames(all)
	for _, it := range h.items {
		if it.run != nil {
			it.row = rowOf(it)
		}
	}
}

// shown returns the items that are runs: training runs first, then the newest.
func (h *hub) shown() []*item {
	var all []*item
	for _, it := range h.items {
		if it.run != nil {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b *item) int {
		if a.run.Held != b.run.Held {
			return map[bool]int{true: -1, false: 1}[a.run.Held]
		}
		if !a.run.Held {
			if c := a.written.Compare(b.written); c != 0 {
				return -c
			}
		}
		return strings.Compare(a.dir, b.dir)
	})
	return all
}

// scan finds folders of runs below the roots, without following links, and removes those that no longer exist.
func (h *hub) scan() {
	var roots []string
	for _, root := range h.o.Roots {
		if abs, err := filepath.Abs(root); err == nil {
			roots = append(roots, abs)
		}
	}
	found := map[string]bool{}
	for _, dir := range runs.Find(roots, mostRuns) {
		found[dir] = true
	}
	for dir := range found {
		if id := idOf(dir); h.items[id] == nil {
			h.items[id] = &item{id: id, dir: dir, under: under(roots, dir), follow: runs.Follow(dir), touched: runs.Changed(dir)}
		}
	}
	for id, it := range h.items {
		if !found[it.dir] {
			delete(h.items, id)
		}
	}
	h.queue = nil
	if h.o.Queue != nil {
		h.queue, _ = h.o.Queue.List()
	}
}

// under returns the folder that contains a run's folder, relative to the root that it was found in; "" is the root
// itself.
func under(roots []string, dir string) string {
	for _, root := range roots {
		if rel, err := filepath.Rel(root, filepath.Dir(dir)); err == nil && filepath.IsLocal(rel) {
			if rel == "." {
				return ""
			}
			return filepath.ToSlash(rel)
		}
	}
	return ""
}

// within reports whether a folder is inside one of the roots, and not a root itself.
func (h *hub) within(dir string) bool {
	for _, root := range h.o.Roots {
		abs, err := filepath.Abs(root)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(abs, dir); err == nil && filepath.IsLocal(rel) && (rel != "." || runs.IsRun(abs)) {
			return true
		}
	}
	return false
}

// leaves reports whether a folder of a run, which may not exist yet, is outside the roots after links are resolved.
func (h *hub) leaves(dir string) bool {
	real, err := realPath(dir)
	if err != nil {
		return true
	}
	for _, root := range h.o.Roots {
		abs, err := filepath.Abs(root)
		if err != nil {
			continue
		}
		if abs, err = realPath(abs); err != nil {
			continue
		}
		if rel, err := filepath.Rel(abs, real); err == nil && filepath.IsLocal(rel) {
			return false
		}
	}
	return true
}

// realPath returns a path without links. The part that does not exist yet has no links.
func realPath(path string) (string, error) {
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
			rest = filepath.Join(filepath.Base(at), rest)
			continue
		}
		real, err := filepath.EvalSymlinks(at)
		return filepath.Join(real, rest), err
	}
}

// view returns the page of one run or of several compared; ok is false if none of the ids is known.
func (h *hub) view(ids []string) (report.Page, bool) {
	var all []*runs.Run
	for _, id := range ids {
		if it := h.items[id]; it != nil && it.run != nil {
			all = append(all, it.run)
		}
	}
	if len(all) == 0 {
		return h.entry(ids)
	}
	p := runs.Page(all, "")
	if len(all) == 1 && all[0].Log == "" {
		if e, ok := h.started(all[0].Dir); ok {
			if text := h.o.Queue.Log(e.ID, logBytes); text != "" {
				p.Sections = append(p.Sections, report.Section{Title: "Log", Blocks: []report.Block{report.Code{Text: text}}, Folded: true})
			}
		}
	}
	return p, true
}

// started returns the newest entry of the queue that trained into a folder.
func (h *hub) started(dir string) (queue.Entry, bool) {
	for _, e := range slices.Backward(h.queue) {
		if e.OutputDir == dir && e.State != queue.Waiting {
			return e, true
		}
	}
	return queue.Entry{}, false
}

// entry returns the page of an entry of the queue.
func (h *hub) entry(ids []string) (report.Page, bool) {
	for _, e := range h.queue {
		if !slices.Contains(ids, e.ID) {
			continue
		}
		text, bad := h.entryText(e, mostWhy)
		p := report.Page{Title: e.Name, Subtitle: "into " + e.OutputDir, Verdict: report.Verdict{State: report.Note, Text: text}}
		if bad {
			p.Verdict.State = report.Fail
		}
		if text := h.o.Queue.Log(e.ID, logBytes); text != "" {
			p.Add("Log", report.Code{Text: text})
		}
		return p, true
	}
	return report.Page{}, false
}

// Limits of the characters of an error on a page and in a line of the list.
const (
	mostWhy     = 600
	mostWhyLine = 160
)

// entryText describes the progress of a run of the queue, and why it ended if that says more; bad reports that it
// failed.
func (h *hub) entryText(e queue.Entry, most int) (text string, bad bool) {
	text = stateText(e)
	if e.State != queue.Ended && e.State != queue.Lost {
		return text, false
	}
	s, err := journal.Read(filepath.Join(e.OutputDir, journal.StatusFile))
	own := err == nil && e.PID != 0 && s.PID == e.PID && !s.Began.Before(e.Started.Add(-time.Minute))
	if e.State == queue.Lost && own && s.ExitCode != nil { // no worker saw how it ended, but the run recorded it
		e.State, e.ExitCode, e.Ended = queue.Ended, s.ExitCode, s.Ended
		text = stateText(e)
	}
	if e.State == queue.Ended && (*e.ExitCode == 0 || *e.ExitCode > 128) {
		return text, false
	}
	why := h.lastWords(e, most)
	if own && s.Error != "" {
		why = safetext.Line(s.Error, most)
	}
	if why != "" {
		text += ": " + why
	}
	return text, true
}

// lastWords returns the last message of a run of the queue that failed: its error, or the line of a crash.
func (h *hub) lastWords(e queue.Entry, most int) string {
	if h.o.Queue == nil {
		return ""
	}
	log := h.o.Queue.Log(e.ID, 8<<10)
	for _, line := range slices.Backward(strings.Split(log, "\n")) {
		if why, ok := strings.CutPrefix(line, "trainer: "); ok {
			return safetext.Line(why, most)
		}
	}
	return safetext.Line(journal.Crash(log), most)
}

// stateText describes the progress of a run of the queue.
func stateText(e queue.Entry) string {
	switch e.State {
	case queue.Waiting:
		return "queued"
	case queue.Running:
		return "running for " + report.Duration(time.Since(e.Started).Truncate(time.Second))
	case queue.Lost:
		return "ended; nobody saw how"
	}
	took := report.Duration(e.Ended.Sub(e.Started))
	switch code := *e.ExitCode; code {
	case 0:
		return "done in " + took
	case 2:
		return "refused: its configuration is not right"
	case 3:
		return "refused: this machine lacks something"
	case 4:
		return "refused: it does not fit in memory"
	case 129, 130, 143:
		return "stopped after " + took
	case -1:
		return "did not start, or was ended by a signal"
	default:
		return fmt.Sprintf("failed after %s, exit code %d", took, code)
	}
}
