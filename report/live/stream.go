package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
)

// row is a run in the list.
type row struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	Dir      string      `json:"dir"`
	Status   runs.Status `json:"status"`
	Error    string      `json:"error"` // what it failed with; "" = it did not
	Steps    string      `json:"steps"`
	Part     float64     `json:"part"` // share of the steps that are done, 0 to 1
	Loss     string      `json:"loss"`
	Spark    string      `json:"spark"` // the smoothed loss over a square of 100 by 100
	CanStop  bool        `json:"can_stop"`
	CanGoOn  bool        `json:"can_resume"`
	Snapshot bool        `json:"has_config"`

	CanChat bool `json:"can_chat"` // the run has saved an adapter

	Title string `json:"title"` // written by a person: see runs.About
	Group string `json:"group"`
	Note  string `json:"note"`
	Under string `json:"under"` // the folder that holds the run's, below the root; "" = the root itself
	// Unix time in seconds of the newest start, or of the last line if no start is known; 0 = not known.
	Began int64   `json:"began"`
	Last  float64 `json:"last"`    // smoothed loss, for sorting; 0 = not known
	Eval  float64 `json:"eval"`    // best evaluation loss, for sorting; 0 = not known
	EvalT string  `json:"eval_is"` // and to read; "" = not evaluated
}

func rowOf(it *item) row {
	s := it.run.Summary()
	r := row{ID: it.id, Name: s.Name, Dir: it.dir, Status: s.Status, Error: it.run.Error(mostWhyLine), Steps: report.Whole(int64(s.Step)), Loss: "–", Spark: spark(it.run.Smoothed()),
		CanStop: it.run.Held, CanGoOn: !it.run.Held && s.Status != runs.Finished && len(it.run.Checkpoints) > 0 && it.run.Config != nil, Snapshot: it.run.Config != nil}
	if s.Total > 0 {
		r.Steps += " / " + report.Whole(int64(s.Total))
		r.Part = min(1, float64(s.Step)/float64(s.Total))
	}
	if v, ok := it.run.Loss(); ok {
		r.Loss, r.Last = report.Number(v), v
	}
	if e := it.run.BestEval(); e != nil {
		r.Eval, r.EvalT = e.Loss, report.Number(e.Loss)
	}
	r.Title, r.Group, r.Note = it.run.About.Title, it.run.About.Group, it.run.About.Note
	if j := it.run.Journal; j != nil && j.Began.Year() > 1970 && j.Began.Year() < 9999 {
		r.Began = j.Began.Unix()
	} else if !it.written.IsZero() {
		r.Began = it.written.Unix()
	}
	r.Under = it.under
	r.CanChat = it.run.End != nil || len(it.run.Checkpoints) > 0
	return r
}

// spark returns a curve of at most 60 points as an SVG path.
func spark(y []float64) string {
	const n = 60
	lo, hi := math.Inf(1), math.Inf(-1)
	var v []float64
	for k := range min(n, len(y)) {
		if x := y[(k+1)*len(y)/min(n, len(y))-1]; math.Abs(x) <= 1e300 {
			v, lo, hi = append(v, x), min(lo, x), max(hi, x)
		}
	}
	if len(v) < 2 {
		return ""
	}
	var b strings.Builder
	for i, x := range v {
		at := 50.0
		if hi > lo {
			at = 95 - 90*(x-lo)/(hi-lo)
		}
		fmt.Fprintf(&b, "%s%.0f %.0f", map[bool]string{true: "M", false: "L"}[i == 0], 100*float64(i)/float64(len(v)-1), at)
	}
	return b.String()
}

// waiting is a run of the queue in the list.
type waiting struct {
	ID    string      `json:"id"`
	Name  string      `json:"name"`
	State queue.State `json:"state"`
	Text  string      `json:"text"`
	Bad   bool        `json:"bad"`
	Run   string      `json:"run"` // id of its folder, if that is shown
}

// elsewhere is the state of a run in progress that no queue started.
const elsewhere queue.State = "elsewhere"

// list returns all runs, and the queue: the waiting and running entries, and the last few that have ended.
func (h *hub) list() (rows []row, entries []waiting) {
	rows, entries = []row{}, []waiting{}
	for _, it := range h.shown() {
		rows = append(rows, it.row)
	}
	ended, turn, started := 0, map[string]int{}, map[string]bool{}
	for _, e := range h.queue {
		if e.State == queue.Waiting {
			turn[e.ID] = len(turn) + 1
		}
		started[e.OutputDir] = started[e.OutputDir] || e.State == queue.Running
	}
	for _, it := range h.shown() { // runs that the queue waits for but did not start
		if len(turn) > 0 && it.run.Held && !started[it.dir] {
			entries = append(entries, waiting{ID: it.id, Name: it.run.Name, State: elsewhere, Text: "running, started in a terminal", Run: it.id})
		}
	}
	for _, e := range slices.Backward(h.queue) {
		if e.State == queue.Ended || e.State == queue.Lost {
			if ended++; ended > 5 {
				continue
			}
		}
		w := waiting{ID: e.ID, Name: e.Name, State: e.State}
		w.Text, w.Bad = h.entryText(e, mostWhyLine)
		if e.State == queue.Waiting {
			w.Text += fmt.Sprintf(" (#%d)", turn[e.ID])
		}
		if it := h.items[idOf(e.OutputDir)]; it != nil && it.run != nil {
			w.Run = it.id
		}
		entries = append(entries, w)
	}
	slices.Reverse(entries)
	return rows, entries
}

// listener is an open event stream, with a record of what it has been sent.
type listener struct {
	w      http.ResponseWriter
	ids    []string
	points int    // number of points that each series of a plot keeps
	list   uint64 // hash of the order and the queue
	rows   map[string]row
	shape  uint64
	html   map[string]uint64
	plots  map[string]report.Plot
	grown  map[string]int
	seen   string
}

// events sends changes, at most once a second: the list, and the pieces of the page of the runs named by show.
func (s *Server) events(w http.ResponseWriter, r *http.Request) (any, error) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return nil, refuse(http.StatusServiceUnavailable, "%d pages are open already, which is the most", mostStreams)
	}
	ids, points, err := asked(r)
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	l := &listener{w: w, ids: ids, points: points}
	every := time.NewTicker(newsEvery)
	defer every.Stop()
	silent := 0
	for {
		sent, err := l.news(s)
		if silent++; sent {
			silent = 0
		} else if err == nil && silent >= 10 {
			silent, err = 0, l.send("", []byte("still here"))
		}
		if err != nil {
			return nil, nil // nobody listens
		}
		select {
		case <-r.Context().Done():
			return nil, nil
		case <-s.done.Done():
			return nil, nil
		case <-every.C:
		}
	}
}

// asked parses which runs a request names, and how many points a plot can show.
func asked(r *http.Request) (ids []string, points int, err error) {
	for _, id := range strings.Split(r.FormValue("show"), ",") {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 100 {
		return nil, 0, refuse(http.StatusBadRequest, "at most 100 runs stand beside each other")
	}
	width, err := strconv.Atoi(r.FormValue("width"))
	if err != nil || width < 1 || width > 10_000 {
		return nil, 0, refuse(http.StatusBadRequest, "width is a plot's in pixels, from 1 to 10000")
	}
	return ids, 3 * min(max(width, 100), 4000), nil // the lowest, the highest and one that is not finite for each pixel
}

// news sends what has changed since the last call.
func (l *listener) news(s *Server) (sent bool, err error) {
	h := s.hub
	h.refresh(l.ids)
	s.work(h)
	h.mu.Lock()
	rows, entries := h.list()
	versions := ""
	for _, id := range l.ids {
		if it := h.items[id]; it != nil {
			versions += fmt.Sprint(id, it.version, " ")
		}
	}
	for _, e := range h.queue { // the log of the entry
		versions += fmt.Sprint(e.ID, e.State, s.o.Queue.LogSize(e.ID), " ")
	}
	var page report.Page
	known, changed := true, versions != l.seen
	if changed {
		page, known = h.view(l.ids)
		l.seen = versions
	}
	h.mu.Unlock()
	if sent, err = l.sendList(rows, entries); err != nil {
		return sent, err
	}
	if !changed {
		return sent, nil
	}
	if !known {
		page = report.Page{}
	}
	return true, l.page(page)
}

// sendList sends the order of the runs, the rows that have changed, and the queue, if any of it has changed.
func (l *listener) sendList(rows []row, entries []waiting) (sent bool, err error) {
	order, changed, known := make([]string, len(rows)), []row{}, map[string]row{}
	for i, r := range rows {
		order[i], known[r.ID] = r.ID, r
		if l.rows[r.ID] != r {
			changed = append(changed, r)
		}
	}
	frame, err := json.Marshal(struct {
		Order []string  `json:"order"`
		Queue []waiting `json:"queue"`
	}{order, entries})
	if err != nil {
		return false, err
	}
	sum := sumOf(frame)
	if sum == l.list && len(changed) == 0 {
		return false, nil
	}
	l.list, l.rows = sum, known
	return true, l.sendValue("list", struct {
		Order []string  `json:"order"`
		Runs  []row     `json:"runs"`
		Queue []waiting `json:"queue"`
	}{order, changed, entries})
}

func sumOf(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text) //nolint:errcheck // it never fails
	return h.Sum64()
}

// page sends a page: the pieces that differ, or the whole page if its sections have changed.
func (l *listener) page(p report.Page) error {
	shape := ""
	for i, s := range p.Sections {
		shape += fmt.Sprintf("%q %v %d %d\n", s.Title, s.Folded, len(s.Blocks), i)
	}
	if sum := sumOf([]byte(shape)); sum != l.shape || l.html == nil {
		l.shape, l.html, l.plots, l.grown = sum, map[string]uint64{}, map[string]report.Plot{}, map[string]int{}
		html := ""
		if p.Title != "" {
			var err error
			if html, err = p.Fragment(l.points); err != nil {
				return err
			}
		}
		for _, piece := range p.Pieces() {
			if piece.Plot != nil {
				l.plots[piece.ID] = *piece.Plot
			} else if text, err := piece.HTML(0); err == nil {
				l.html[piece.ID] = sumOf([]byte(text))
			}
		}
		return l.sendValue("page", map[string]string{"html": html})
	}
	for _, piece := range p.Pieces() {
		if piece.Plot != nil {
			was := l.plots[piece.ID]
			data, n, ok := piece.Plot.Grown(was)
			if ok && n == 0 {
				continue
			}
			l.plots[piece.ID] = *piece.Plot
			if l.grown[piece.ID] += n; ok && l.grown[piece.ID] <= l.points {
				if err := l.send("grow", append(fmt.Appendf(nil, `{"id":%q,`, piece.ID), bytes.TrimPrefix(data, []byte("{"))...)); err != nil {
					return err
				}
				continue
			}
			l.grown[piece.ID] = 0
		}
		text, err := piece.HTML(l.points)
		if err != nil {
			return err
		}
		if piece.Plot == nil {
			sum := sumOf([]byte(text))
			if sum == l.html[piece.ID] {
				continue
			}
			l.html[piece.ID] = sum
		}
		if err := l.sendValue("piece", map[string]string{"id": piece.ID, "html": text}); err != nil {
			return err
		}
	}
	return nil
}

func (l *listener) sendValue(event string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.send(event, text)
}

// send writes an event. It disconnects a reader that receives nothing for ten seconds.
func (l *listener) send(event string, data []byte) error {
	c := http.NewResponseController(l.w)
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second)) // not known to a recorder of a test
	var err error
	if event == "" {
		_, err = fmt.Fprintf(l.w, ": %s\n\n", data)
	} else {
		_, err = fmt.Fprintf(l.w, "event: %s\ndata: %s\n\n", event, data) // JSON has no line breaks
	}
	if err != nil {
		return err
	}
	return c.Flush()
}

// points returns the points of the part of a plot that a reader zoomed into.
func (s *Server) points(w http.ResponseWriter, r *http.Request) (any, error) {
	ids, n, err := asked(r)
	if err != nil {
		return nil, err
	}
	lo, err1 := strconv.ParseFloat(r.FormValue("from"), 64)
	hi, err2 := strconv.ParseFloat(r.FormValue("to"), 64)
	if err1 != nil || err2 != nil || !(lo <= hi) {
		return nil, refuse(http.StatusBadRequest, "from and to are the ends of a range")
	}
	s.hub.mu.Lock()
	page, ok := s.hub.view(ids)
	s.hub.mu.Unlock()
	if ok {
		for _, piece := range page.Pieces() {
			if piece.ID == r.FormValue("piece") && piece.Plot != nil {
				return json.RawMessage(piece.Plot.Between(lo, hi, n)), nil
			}
		}
	}
	return nil, refuse(http.StatusNotFound, "there is no such plot")
}
