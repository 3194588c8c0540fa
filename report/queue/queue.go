// Package queue keeps training runs that wait for their turn, in a folder that outlives the program that added them. One
// process works it off, a run at a time; a run is a process of its own, which goes on when that one ends.
//
// waiting/ID and started/ID hold an entry each: its configuration, what it is, its log and how it ended. An entry is
// started, or taken back, by renaming its folder, so that of two who try one does.
package queue

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/report/runs"
)

// State is how far an entry is.
type State string

// The states. Lost is a run whose end nobody saw: what its own folder says counts.
const (
	Waiting State = "waiting"
	Running State = "running"
	Ended   State = "ended"
	Lost    State = "lost"
)

// Entry is a run of the queue.
type Entry struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	OutputDir string    `json:"output_dir"` // absolute
	Dir       string    `json:"dir"`        // the working folder, absolute
	Args      []string  `json:"args,omitempty"`
	Added     time.Time `json:"added"`

	PID      int       `json:"pid,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode *int      `json:"exit_code,omitempty"`

	State State `json:"-"`
}

// Queue is the folder.
type Queue struct {
	dir    string
	moving sync.Mutex
}

// Bounds.
const (
	mostWaiting = 100
	mostStarted = 200 // whose logs are kept
	mostEntry   = 1 << 20
)

// Names of files of an entry.
const (
	configFile = "config.yaml"
	entryFile  = "entry.json"
	logFile    = "log.txt"
	orderFile  = "order.json" // of the queue: names of waiting runs, where they were moved
)

// ErrGone is the error of an entry that waits no longer, or was never there.
var ErrGone = errors.New("no run of this name waits")

// Open uses a folder as a queue; it is made where there is none, for its owner alone.
func Open(dir string) (*Queue, error) {
	q := &Queue{dir: dir}
	for _, d := range []string{q.in(Waiting), q.in(Running)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the queue's folder: %w", err)
		}
	}
	return q, nil
}

// in is where entries of a state are.
func (q *Queue) in(s State) string {
	if s == Waiting {
		return filepath.Join(q.dir, "waiting")
	}
	return filepath.Join(q.dir, "started")
}

// Add appends a run: trainer train --config FILE and e.Args, in e.Dir, where FILE holds config.
func (q *Queue) Add(e Entry, config []byte) (Entry, error) {
	all, err := q.List()
	if err != nil {
		return e, err
	}
	waiting := 0
	for _, o := range all {
		if o.State != Waiting && o.State != Running {
			continue
		}
		waiting++
		if o.OutputDir == e.OutputDir {
			return e, fmt.Errorf("a run into %s is in the queue already (%s): wait for it, or choose another output_dir", e.OutputDir, o.State)
		}
	}
	if waiting >= mostWaiting {
		return e, fmt.Errorf("%d runs wait already, which is the most", waiting)
	}
	mark := make([]byte, 4)
	rand.Read(mark) //nolint:errcheck // it never fails
	e.Added = time.Now().UTC()
	e.ID = e.Added.Format("20060102-150405.000000") + "-" + hex.EncodeToString(mark)
	e.State = Waiting
	making, err := os.MkdirTemp(q.dir, "new-")
	if err != nil {
		return e, fmt.Errorf("add to the queue: %w", err)
	}
	if err = errors.Join(atomicfile.WritePrivate(filepath.Join(making, configFile), config, 0o600), e.write(making)); err == nil {
		err = atomicfile.Rename(making, filepath.Join(q.in(Waiting), e.ID))
	}
	if err != nil {
		os.RemoveAll(making) //nolint:errcheck // the first error is what matters
		return e, fmt.Errorf("add to the queue: %w", err)
	}
	q.prune(all)
	return e, nil
}

func (e Entry) write(dir string) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, entryFile), append(text, '\n'))
}

// prune forgets the oldest runs that have ended.
func (q *Queue) prune(all []Entry) {
	n := 0
	for _, e := range slices.Backward(all) {
		if e.State == Ended || e.State == Lost {
			if n++; n > mostStarted {
				os.RemoveAll(filepath.Join(q.in(Ended), e.ID)) //nolint:errcheck // the next one may succeed
			}
		}
	}
}

// List is all entries: those that were started, the oldest first, then those that wait, in the order of their turns.
func (q *Queue) List() ([]Entry, error) {
	var all []Entry
	for _, s := range []State{Running, Waiting} {
		names, err := os.ReadDir(q.in(s))
		if err != nil {
			return nil, fmt.Errorf("read the queue: %w", err)
		}
		for _, d := range names {
			if e, ok := q.read(s, d.Name()); ok {
				all = append(all, e)
			}
		}
	}
	q.sortWaiting(all)
	return all, nil
}

// read reads an entry; what is damaged or on its way elsewhere is passed over.
func (q *Queue) read(s State, id string) (Entry, bool) {
	var e Entry
	text, err := regular.ReadFile(filepath.Join(q.in(s), id, entryFile))
	if err != nil || len(text) > mostEntry || json.Unmarshal(text, &e) != nil || e.ID != id {
		return e, false
	}
	switch {
	case s == Waiting:
		e.State = Waiting
	case e.ExitCode != nil:
		e.State = Ended
	case e.runs():
		e.State = Running
	default:
		e.State = Lost
	}
	return e, true
}

// runs tells whether the process of a started entry is there still. It has the run's folder but for a moment at its
// start; without that its number may be another process's by now.
func (e Entry) runs() bool {
	if e.PID == 0 {
		return time.Since(e.Started) < 10*time.Second // about to start
	}
	if !runs.Alive(e.PID) {
		return false
	}
	pid, held := runs.HeldBy(e.OutputDir)
	return held && pid == e.PID || time.Since(e.Started) < 2*time.Minute
}

// Remove takes a run back that waits.
func (q *Queue) Remove(id string) error {
	if !valid(id) {
		return ErrGone
	}
	gone := filepath.Join(q.dir, "gone-"+id)
	if err := atomicfile.Rename(filepath.Join(q.in(Waiting), id), gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return ErrGone
		}
		return fmt.Errorf("take a run out of the queue: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("take a run out of the queue: %w", err)
	}
	return nil
}

// valid tells whether a text may be an entry's name: no way out of the folder.
func valid(id string) bool {
	return id != "" && len(id) < 64 && strings.Trim(id, "0123456789abcdef-.") == "" && !strings.Contains(id, "..")
}

// Log is the end of what a started run has said, at most so many bytes.
func (q *Queue) Log(id string, most int64) string {
	if !valid(id) {
		return ""
	}
	f, err := regular.Open(filepath.Join(q.in(Running), id, logFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	cut := info.Size() > most
	if cut {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, _ := io.ReadAll(io.LimitReader(f, most))
	if _, rest, ok := strings.Cut(string(text), "\n"); cut && ok {
		return rest
	}
	return string(text)
}

// LogSize is how many bytes a started run has said.
func (q *Queue) LogSize(id string) int64 {
	if !valid(id) {
		return 0
	}
	info, err := os.Stat(filepath.Join(q.in(Running), id, logFile))
	if err != nil {
		return 0
	}
	return info.Size()
}

// Dir is the queue's folder.
func (q *Queue) Dir() string { return q.dir }
