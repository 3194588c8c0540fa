// Package queue keeps training runs that wait for their turn, in a folder that outlives the program that added them.
// One process works it off: as many runs at a time as the machine's graphics cards hold, and one on the processor. A
// run is a process of its own, which continues when the worker ends.
//
// waiting/ID and started/ID hold an entry each: its configuration, what it is, its log and how it ended. An entry is
// started, or taken back, by renaming its folder, so that of two who try one does.
package queue

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train/checkpoint"
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
	Wants     Wants     `json:"wants,omitzero"`
	Cards     []string  `json:"cards,omitempty"` // that it got; empty = the processor, or not known

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
	clockSkew   = 5 * time.Second  // by which a start may lie in the future
	addingTime  = 10 * time.Second // for others that add at the same time
)

// Names of files of an entry.
const (
	configFile = "config.yaml"
	entryFile  = "entry.json"
	logFile    = "log.txt"
	orderFile  = "order.json" // of the queue: names of waiting runs, where they were moved
	addingDir  = "adding"     // of the queue: locked while a run is added
)

// ErrGone is the error of an entry that no longer waits, or that never existed.
var ErrGone = errors.New("no run of this name waits")

// Open opens the queue in a folder, and makes the folder, readable by its owner alone, where there is none.
func Open(dir string) (*Queue, error) {
	q := &Queue{dir: dir}
	for _, d := range []string{q.in(Waiting), q.in(Running), filepath.Join(dir, addingDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the queue's folder: %w", err)
		}
	}
	return q, nil
}

// in returns the folder of the entries of a state.
func (q *Queue) in(s State) string {
	if s == Waiting {
		return filepath.Join(q.dir, "waiting")
	}
	return filepath.Join(q.dir, "started")
}

// Add appends a run: trainer train --config FILE and e.Args, in e.Dir, where FILE holds config. Of several that add a
// run into one folder at the same time, also from several processes, one does.
func (q *Queue) Add(e Entry, config []byte) (_ Entry, err error) {
	q.moving.Lock()
	defer q.moving.Unlock()
	lock, err := q.lock(filepath.Join(q.dir, addingDir), addingTime)
	if err != nil {
		return e, fmt.Errorf("add to the queue: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
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
		if sameFolder(o.OutputDir, e.OutputDir) {
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

// lock takes the lock of a folder, and waits while another process has it.
func (q *Queue) lock(dir string, most time.Duration) (*checkpoint.Lock, error) {
	for end := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		lock, err := checkpoint.Acquire(dir)
		if held := (*checkpoint.HeldError)(nil); !errors.As(err, &held) || time.Now().After(end) {
			return lock, err
		}
	}
}

// sameFolder tells whether two paths name one folder, which need not be there yet: links above it are followed.
func sameFolder(a, b string) bool { return a == b || resolved(a) == resolved(b) }

func resolved(path string) string {
	rest := ""
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// write keeps an entry. Its file has room for what is written when the run has ended: see overwrite.
func (e Entry) write(dir string) error {
	text, err := e.text()
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, entryFile), text)
}

// text is the entry as its file has it: blanks follow it up to a multiple of entryRoom bytes.
func (e Entry) text() ([]byte, error) {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, err
	}
	room := entryRoom - (len(text)+entryGrowth)%entryRoom + entryGrowth
	return append(append(text, bytes.Repeat([]byte{' '}, room-1)...), '\n'), nil
}

// entryGrowth is what an entry may grow by from its start to its end; entryRoom is the step of its file's size.
const (
	entryGrowth = 256
	entryRoom   = 512
)

// overwrite writes an entry into the bytes that its file has: it needs no room on a disk that has filled up since.
func (e Entry) overwrite(dir string) error {
	path := filepath.Join(dir, entryFile)
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	f, err := atomicfile.Open(path, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if int64(len(text)) > info.Size() || info.Size() > mostEntry {
		return fmt.Errorf("%s has %d bytes, and %d are needed", path, info.Size(), len(text))
	}
	text = append(text, bytes.Repeat([]byte{' '}, int(info.Size())-len(text))...)
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Sync()
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

// List returns all entries: those that were started, the oldest first, then those that wait, in the order of their
// turns.
func (q *Queue) List() ([]Entry, error) {
	var all []Entry
	for _, s := range []State{Running, Waiting} {
		folders, err := os.ReadDir(q.in(s))
		if err != nil {
			return nil, fmt.Errorf("read the queue: %w", err)
		}
		for _, d := range folders {
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
	began := time.Since(e.Started)
	if began < -clockSkew { // a start in the future says nothing: the file was edited, or the clock was set back
		began = math.MaxInt64
	}
	if e.PID == 0 {
		return began < 10*time.Second // about to start
	}
	if !runs.Alive(e.PID) {
		return false
	}
	pid, held := runs.HeldBy(e.OutputDir)
	return held && pid == e.PID || began < 2*time.Minute
}

// Clear forgets the runs that have ended, with the queue's copies of their configurations and logs, and returns how
// many there were. What they wrote into their own folders stays.
func (q *Queue) Clear() (n int, err error) {
	all, err := q.List()
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		if e.State != Ended && e.State != Lost {
			continue
		}
		if err := os.RemoveAll(filepath.Join(q.in(Ended), e.ID)); err != nil {
			return n, fmt.Errorf("clear the queue: %w", err)
		}
		n++
	}
	return n, nil
}

// Remove takes a waiting run out of the queue.
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

// names has the form of an entry's name, which Add makes: "." or any other name of a folder is none.
var names = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}\.[0-9]{6}-[0-9a-f]{8}$`)

// valid tells whether a text may be an entry's name.
func valid(id string) bool { return names.MatchString(id) }

// Log returns the end of a started run's log, at most so many bytes.
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

// LogSize returns the size in bytes of a started run's log.
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

// Dir returns the queue's folder.
func (q *Queue) Dir() string { return q.dir }
