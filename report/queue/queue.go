// Package queue keeps training runs that wait for their turn, in a folder that outlives the program that added them.
// One worker process starts them: as many runs at a time as fit on the machine's graphics cards, and one on the CPU. A
// run is a process of its own, which continues when the worker ends.
//
// waiting/ID and started/ID hold one entry each: its configuration, its description, its log and how it ended. Renaming
// its folder starts an entry or takes it back, so only one of two processes that try succeeds.
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

// State is the progress of an entry.
type State string

// The states. Lost is a run whose end no worker saw; its own folder says how it ended.
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
	OutputDir string    `json:"output_dir"` // absolute path
	Dir       string    `json:"dir"`        // working folder, an absolute path
	Args      []string  `json:"args,omitempty"`
	Added     time.Time `json:"added"`
	Wants     Wants     `json:"wants,omitzero"`
	Cards     []string  `json:"cards,omitempty"` // cards assigned to it; empty = the CPU, or not known

	PID      int       `json:"pid,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode *int      `json:"exit_code,omitempty"`

	State State `json:"-"`
}

// Queue is a queue of runs in a folder.
type Queue struct {
	dir    string
	moving sync.Mutex
}

// Limits.
const (
	mostWaiting = 100
	mostStarted = 200 // started entries whose logs are kept
	mostEntry   = 1 << 20
	clockSkew   = 5 * time.Second  // how far in the future a start may lie
	addingTime  = 10 * time.Second // time to wait for other processes that add a run
)

// Names of the files of an entry and of the queue.
const (
	configFile = "config.yaml"
	entryFile  = "entry.json"
	logFile    = "log.txt"
	orderFile  = "order.json" // in the queue's folder: names of waiting runs, if they were moved
	addingDir  = "adding"     // in the queue's folder: locked while a run is added
)

// ErrGone is the error for an entry that no longer waits, or that never existed.
var ErrGone = errors.New("no run of this name waits")

// Open opens the queue in a folder. If the folder does not exist, Open creates it, readable by its owner alone.
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

// Add appends a run: trainer train --config FILE and e.Args, in e.Dir, where FILE has config. If several callers, also
// in several processes, add a run into one folder at the same time, only one of them succeeds.
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

// lock acquires the lock of a folder, and waits at most most while another process has it.
func (q *Queue) lock(dir string, most time.Duration) (*checkpoint.Lock, error) {
	for end := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		lock, err := checkpoint.Acquire(dir)
		if held := (*checkpoint.HeldError)(nil); !errors.As(err, &held) || time.Now().After(end) {
			return lock, err
		}
	}
}

// sameFolder reports whether two paths name one folder, which need not exist yet; links above it are resolved.
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

// write saves an entry. Its file reserves space for what is written when the run has ended: see overwrite.
func (e Entry) write(dir string) error {
	text, err := e.text()
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, entryFile), text)
}

// text returns the entry as its file has it: padded with blanks to a multiple of entryRoom bytes.
func (e Entry) text() ([]byte, error) {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, err
	}
	room := entryRoom - (len(text)+entryGrowth)%entryRoom + entryGrowth
	return append(append(text, bytes.Repeat([]byte{' '}, room-1)...), '\n'), nil
}

// entryGrowth is how many bytes an entry may grow from its start to its end; the size of its file is a multiple of
// entryRoom.
const (
	entryGrowth = 256
	entryRoom   = 512
)

// overwrite writes an entry into the existing bytes of its file, so that it also succeeds on a disk that has become
// full.
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

// prune removes the oldest runs that have ended.
func (q *Queue) prune(all []Entry) {
	n := 0
	for _, e := range slices.Backward(all) {
		if e.State == Ended || e.State == Lost {
			if n++; n > mostStarted {
				os.RemoveAll(filepath.Join(q.in(Ended), e.ID)) //nolint:errcheck // the next call may succeed
			}
		}
	}
}

// List returns all entries: first the started ones, the oldest first, then the waiting ones, in the order of their
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

// read reads an entry; ok is false if it is damaged or was moved meanwhile.
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

// runs reports whether the process of a started entry still exists. The process holds the run's folder except for a
// moment at its start; otherwise its process id may belong to another process by now.
func (e Entry) runs() bool {
	began := time.Since(e.Started)
	if began < -clockSkew { // a start in the future proves nothing: the file was edited, or the clock was set back
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

// Clear removes the runs that have ended, with the queue's copies of their configurations and logs, and returns their
// number. The runs' own folders stay.
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

// Remove removes a waiting run from the queue.
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

// names matches the names that Add gives to entries; "." or any other name of a folder does not match.
var names = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}\.[0-9]{6}-[0-9a-f]{8}$`)

// valid reports whether a text has the form of an entry's name.
func valid(id string) bool { return names.MatchString(id) }

// Log returns the end of a started run's log, at most most bytes.
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
