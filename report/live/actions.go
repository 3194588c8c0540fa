package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/report/queue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// Limits of a plan, which a process of its own makes.
const (
	planTime  = 2 * time.Minute
	planBytes = 4 << 20
)

// form returns the keys and templates that the form for a new run shows.
func (s *Server) form(http.ResponseWriter, *http.Request) (any, error) {
	templates := make([]Template, len(s.o.Templates))
	for i, t := range s.o.Templates {
		t.Text = s.fresh(t.Text)
		templates[i] = t
	}
	return struct {
		Fields    []Field    `json:"fields"`
		Templates []Template `json:"templates"`
		Data      string     `json:"data,omitempty"` // folder that takes uploaded files
		MostData  int64      `json:"most_data,omitempty"`
	}{s.o.Fields, templates, s.o.Data, s.o.MostData}, nil
}

// fresh returns a configuration whose output_dir is a new folder inside the roots of this page.
func (s *Server) fresh(text string) string {
	dir := s.o.Check([]byte(text)).OutputDir
	abs, err := filepath.Abs(dir)
	if err != nil || dir == "" {
		return text
	}
	parent, name := filepath.Dir(dir), filepath.Base(dir)
	for _, root := range s.o.Roots {
		if a, err := filepath.Abs(root); err == nil && !s.hub.within(abs) && !runs.IsRun(a) {
			parent = root
			break
		}
	}
	if i := strings.LastIndexByte(name, '-'); i > 0 && len(name)-i <= 4 && strings.Trim(name[i+1:], "0123456789") == "" {
		name = name[:i]
	}
	into := filepath.Join(parent, name)
	for n := 2; n < 1000; n++ {
		if _, err := os.Lstat(into); err != nil {
			break
		}
		into = filepath.Join(parent, fmt.Sprintf("%s-%d", name, n))
	}
	if into == filepath.Clean(dir) {
		return text
	}
	if edited, err := s.o.Edit([]byte(text), "output_dir", into); err == nil {
		return string(edited)
	}
	return text
}

// config returns the configuration of a run, to start another run with.
func (s *Server) config(_ http.ResponseWriter, r *http.Request) (any, error) {
	run, err := s.run(r.FormValue("id"))
	if err != nil {
		return nil, err
	}
	if run.Config == nil || len(run.Config) > mostBody/2 {
		return nil, refuse(http.StatusNotFound, "%s has no %s that can be read", run.Name, train.ConfigFile)
	}
	return struct {
		Text string `json:"text"`
	}{s.fresh(string(run.Config))}, nil
}

// run returns the run that a request names by its id.
func (s *Server) run(id string) (*runs.Run, error) {
	s.hub.refresh([]string{id})
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if it := s.hub.items[id]; it != nil && it.run != nil {
		return it.run, nil
	}
	return nil, refuse(http.StatusNotFound, "there is no run %q here", short(id))
}

// edit sets a key of a configuration, or removes it if the value is empty.
func (s *Server) edit(_ *http.Request, q request) (any, error) {
	text, err := s.o.Edit([]byte(q.Config), q.Key, q.Value)
	if err != nil {
		return nil, failure{http.StatusUnprocessableEntity, err.Error()}
	}
	return struct {
		Config string `json:"config"`
	}{string(text)}, nil
}

// check returns the problems of a configuration and of its output folder.
func (s *Server) check(_ *http.Request, q request) (any, error) {
	c := s.o.Check([]byte(q.Config))
	if len(c.Problems) == 0 {
		if text := s.refusedDir(c.OutputDir); text != "" {
			c.Problems = append(c.Problems, Problem{Key: "output_dir", Message: text})
		}
	}
	if c.Problems == nil {
		c.Problems = []Problem{}
	}
	return c, nil
}

// refusedDir returns why no new run may write into a folder; "" = it may.
func (s *Server) refusedDir(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "output_dir: " + err.Error()
	}
	if !s.hub.within(abs) {
		return "output_dir: " + dir + " is not inside what this page shows (" + strings.Join(s.o.Roots, ", ") + "): choose a folder there"
	}
	if s.hub.leaves(abs) {
		return "output_dir: " + dir + " is under a link that leads out of what this page shows (" + strings.Join(s.o.Roots, ", ") + "): choose a folder there"
	}
	if runs.IsTaken(abs) {
		return "output_dir: " + dir + " holds a run already: choose another folder, or resume that run"
	}
	return ""
}

// checked returns the check of a configuration, and an error if it has problems.
func (s *Server) checked(config string) (Checked, error) {
	answer, err := s.check(nil, request{Config: config})
	c, _ := answer.(Checked)
	if err == nil && len(c.Problems) > 0 {
		var texts []string
		for _, p := range c.Problems {
			texts = append(texts, p.Message)
		}
		err = refuse(http.StatusUnprocessableEntity, "%s", strings.Join(texts, "\n"))
	}
	return c, err
}

// planned is the planned memory of a run.
type planned struct {
	Fits bool   `json:"fits"`
	Text string `json:"text"` // "fits: 5.1 GiB of 8.0 GiB"
	More string `json:"more"` // the plan as a table
	HTML string `json:"html"` // the plan as HTML
}

// plan makes the program plan the memory of a configuration, in a process of its own.
func (s *Server) plan(r *http.Request, q request) (any, error) {
	if _, err := s.checked(q.Config); err != nil {
		return nil, err
	}
	if !s.planning.TryLock() {
		return nil, refuse(http.StatusTooManyRequests, "another plan is being made: try again when it is there")
	}
	defer s.planning.Unlock()
	file, err := os.CreateTemp("", "plan-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(q.Config)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTime)
	defer cancel()
	var out, said tail
	cmd := exec.CommandContext(ctx, s.o.Program, "plan", "--config", file.Name(), "--json")
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil && r.Context().Err() == nil:
		return nil, refuse(http.StatusGatewayTimeout, "the plan was not there after %s", planTime)
	case errors.As(err, &exit):
		text := strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(said.String()), "trainer: "), file.Name(), "the configuration")
		if exit.ExitCode() == 4 {
			return planned{Text: "does not fit", More: text}, nil
		}
		return nil, refuse(http.StatusUnprocessableEntity, "%s", text)
	case err != nil:
		return nil, err
	}
	var p train.PlanReport
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		return nil, err
	}
	answer := planned{Fits: true, Text: "fits: " + session.FormatBytes(p.TotalBytes), More: p.String()}
	if p.Limit > 0 {
		answer.Text += " of " + session.FormatBytes(p.Limit)
		answer.Fits = p.TotalBytes <= p.Limit
	}
	if !answer.Fits {
		answer.Text = "does not fit: " + strings.TrimPrefix(answer.Text, "fits: ")
	}
	bar := report.Page{}
	bar.Add("", runs.MemoryBar(&p))
	if answer.HTML, err = bar.Pieces()[1].HTML(0); err != nil {
		return nil, err
	}
	return answer, nil
}

// tail keeps the first planBytes bytes that a process writes.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	if room := planBytes - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// start adds a new run to the queue.
func (s *Server) start(_ *http.Request, q request) (any, error) {
	c, err := s.checked(q.Config)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(c.OutputDir)
	if err != nil {
		return nil, err
	}
	return s.add(queue.Entry{Name: filepath.Base(dir), OutputDir: dir, Wants: c.Wants}, []byte(q.Config))
}

// resume adds an interrupted run to the queue, which resumes it from its newest checkpoint.
func (s *Server) resume(_ *http.Request, q request) (any, error) {
	r, err := s.run(q.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Held:
		return nil, refuse(http.StatusConflict, "%s is running: there is nothing to resume", r.Name)
	case r.Status() == runs.Finished:
		return nil, refuse(http.StatusConflict, "%s has finished: start a new run to train further (lora.init_from)", r.Name)
	case s.hub.leaves(r.Dir):
		return nil, refuse(http.StatusForbidden, "%s is under a link that leads out of what this page shows: resume it by trainer train", r.Name)
	case len(r.Checkpoints) == 0:
		return nil, refuse(http.StatusConflict, "%s saved no checkpoint to resume from", r.Name)
	case r.Config == nil:
		return nil, refuse(http.StatusConflict, "%s has no %s to resume by", r.Name, train.ConfigFile)
	}
	if text, err := regular.ReadFile(filepath.Join(r.Dir, train.ConfigFile)); err != nil || len(text) > mostBody {
		return nil, refuse(http.StatusConflict, "%s of %s can't be read, or has more than %d bytes", train.ConfigFile, r.Name, mostBody)
	}
	return s.add(queue.Entry{Name: filepath.Base(r.Dir), OutputDir: r.Dir, Wants: s.o.Check(r.Config).Wants, Args: []string{"--resume", "auto", "--set", "output_dir=" + r.Dir}}, r.Config)
}

func (s *Server) add(e queue.Entry, config []byte) (any, error) {
	if s.o.Queue == nil {
		return nil, refuse(http.StatusConflict, "this server starts no runs")
	}
	var err error
	if e.Dir, err = os.Getwd(); err != nil {
		return nil, err
	}
	if e, err = s.o.Queue.Add(e, config); err != nil {
		return nil, failure{http.StatusConflict, err.Error()}
	}
	s.kick.Lock()
	s.kicked = time.Time{}
	s.kick.Unlock()
	s.hub.rescan()
	s.work(s.hub)
	return struct {
		ID string `json:"id"`
	}{e.ID}, nil
}

// rescan searches for new folders now and does not wait for the next scan.
func (h *hub) rescan() {
	h.mu.Lock()
	h.scanned = time.Time{}
	h.mu.Unlock()
	h.refresh(nil)
}

// work starts a worker of the queue if runs wait and no worker runs.
func (s *Server) work(h *hub) {
	h.mu.Lock()
	waits := false
	for _, e := range h.queue {
		waits = waits || e.State == queue.Waiting
	}
	h.mu.Unlock()
	s.kick.Lock()
	defer s.kick.Unlock()
	if !waits || time.Since(s.kicked) < 2*time.Second {
		return
	}
	s.kicked = time.Now()
	if !s.o.Queue.Working() {
		_ = queue.Spawn(s.o.Program, s.o.Worker...) // the next call tries again
	}
}

// stop asks a run to finish its step, save and end.
func (s *Server) stop(_ *http.Request, q request) (any, error) {
	r, err := s.run(q.ID)
	if err != nil {
		return nil, err
	}
	if s.o.Queue == nil {
		return nil, refuse(http.StatusConflict, "this server stops no runs")
	}
	if err := s.o.Queue.Stop(r.Dir); err != nil {
		return nil, failure{http.StatusConflict, err.Error()}
	}
	return struct{}{}, nil
}

// remove takes a waiting run out of the queue.
func (s *Server) remove(_ *http.Request, q request) (any, error) {
	if s.o.Queue == nil {
		return nil, refuse(http.StatusConflict, "this server has no queue")
	}
	if err := s.o.Queue.Remove(q.ID); err != nil {
		if errors.Is(err, queue.ErrGone) {
			return nil, failure{http.StatusNotFound, "it waits no longer: " + err.Error()}
		}
		return nil, err
	}
	s.hub.rescan()
	return struct{}{}, nil
}

// clear removes the runs of the queue that have ended.
func (s *Server) clear(*http.Request, request) (any, error) {
	if s.o.Queue == nil {
		return nil, refuse(http.StatusConflict, "this server has no queue")
	}
	n, err := s.o.Queue.Clear()
	if err != nil {
		return nil, err
	}
	s.hub.rescan()
	return struct {
		Cleared int `json:"cleared"`
	}{n}, nil
}

// move changes the position of a waiting run.
func (s *Server) move(_ *http.Request, q request) (any, error) {
	by, ok := map[string]int{"up": -1, "down": 1}[q.Value]
	switch {
	case !ok:
		return nil, refuse(http.StatusBadRequest, "a run of the queue is moved up or down, not %q", short(q.Value))
	case s.o.Queue == nil:
		return nil, refuse(http.StatusConflict, "this server has no queue")
	}
	if err := s.o.Queue.Move(q.ID, by); err != nil {
		if errors.Is(err, queue.ErrGone) {
			return nil, failure{http.StatusNotFound, "it waits no longer: " + err.Error()}
		}
		return nil, err
	}
	s.hub.rescan()
	return struct{}{}, nil
}
