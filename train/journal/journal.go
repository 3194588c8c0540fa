// Package journal keeps what a run leaves of how it went, in the run's output folder: train.log holds the lines that its
// terminal showed, and status.json says whether the run is on its way, how it ended and why. Neither may ever end a run:
// what cannot be written is left out.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
)

// StatusFile is the name of a run's status in its folder.
const StatusFile = "status.json"

// State is how far a run is, or how it ended.
type State string

// The states. A process that was killed leaves Running: whether it lives is told by its lock or its number.
const (
	Running     State = "running"
	Finished    State = "finished"    // all steps are done and the adapter is written
	Missed      State = "missed"      // finished, and a criterion of the configuration's section expect is not met
	Interrupted State = "interrupted" // a signal asked for it
	Failed      State = "failed"
)

// Status is the content of StatusFile.
type Status struct {
	Format       int       `json:"format"`
	State        State     `json:"state"`
	ExitCode     *int      `json:"exit_code,omitempty"` // of the process; nil = it has not ended
	Error        string    `json:"error,omitempty"`
	Step         int       `json:"step"`                // newest optimizer step that is done
	Steps        int       `json:"max_steps,omitempty"` // 0 = not known yet
	Checkpoint   string    `json:"checkpoint,omitempty"`
	ReachedSteps bool      `json:"reached_steps"` // this start came to its steps: the folder's metrics are its own
	Began        time.Time `json:"began"`
	Ended        time.Time `json:"ended,omitzero"`
	PID          int       `json:"pid"`
	Host         string    `json:"host"`
	Program      string    `json:"program,omitempty"` // version and commit
	Ranks        []Rank    `json:"ranks,omitempty"`   // that failed, of a run on several devices
}

// Rank is what one rank of a run on several devices failed with.
type Rank struct {
	Rank  int    `json:"rank"`
	Error string `json:"error"`
}

const (
	format    = 1
	mostError = 4000      // bytes of an error in a status
	mostRanks = 64        // that are listed
	keptBytes = 256 << 10 // of lines that wait for the folder
	mostFile  = 1 << 20   // bytes of a status that are read
)

// Journal writes the two files of one process. Its methods may be called from any goroutine, and on nil, which writes
// nothing.
type Journal struct {
	mu      sync.Mutex
	name    string // of the log
	dir     string // "" = the folder is not this run's yet
	ended   bool
	status  Status
	foreign bool   // the folder's StatusFile is somebody else's: it stays
	waiting []byte // lines from before the folder was known
	lost    int    // lines that waited and were dropped
	log     log
}

// New returns the journal of a process that is about to train. program is its version.
func New(program string) *Journal {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return &Journal{name: LogFile, status: Status{Format: format, State: Running, Began: time.Now().UTC(), PID: os.Getpid(), Host: host, Program: program}}
}

// NewRank returns the journal of a rank that does not lead its run. It has a log of its own, which holds what the rank
// failed with, and no status.
func NewRank(program string, rank int) *Journal {
	j := New(program)
	j.name, j.foreign = fmt.Sprintf("train.rank%d.log", rank), true
	return j
}

// Open begins to write into a folder that is this run's: its lock is held, and it holds no other run. The result says
// what is not kept there, and why.
func (j *Journal) Open(dir string) (notes []string) {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dir != "" || j.ended {
		return nil
	}
	j.dir = dir
	if !j.foreign {
		if err := ours(filepath.Join(dir, StatusFile)); err != nil {
			j.foreign = true
			notes = append(notes, fmt.Sprintf("%v: no status is kept there", err))
		}
	}
	if err := j.log.open(filepath.Join(dir, j.name)); err != nil {
		notes = append(notes, fmt.Sprintf("%v: no log is kept there", err))
	}
	j.log.line(mark("started", j.status.Began, fmt.Sprintf("process %d on %s, %s", j.status.PID, j.status.Host, j.status.Program)))
	if j.lost > 0 {
		j.log.line(fmt.Sprintf("(%d lines are left out here)\n", j.lost))
	}
	j.log.lines(j.waiting)
	j.waiting = nil
	if j.log.file != nil {
		debug.SetCrashOutput(j.log.file, debug.CrashOptions{}) //nolint:errcheck // the trace goes to the terminal too
	}
	j.save()
	return notes
}

// ours is an error where something is there that no run wrote as its status.
func ours(path string) error {
	if err := atomicfile.Check(path); err != nil {
		return err
	}
	if _, err := Read(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not what a run writes", path)
	}
	return nil
}

// Read reads a StatusFile. A file that is none is an error.
func Read(path string) (*Status, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > mostFile {
		return nil, fmt.Errorf("%s: %d bytes are too many for a status", path, info.Size())
	}
	text, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Parse reads the text of a StatusFile.
func Parse(text []byte) (*Status, error) {
	if len(text) > mostFile {
		return nil, fmt.Errorf("%d bytes are too many for a status", len(text))
	}
	s := &Status{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("no status of a run: %w", err)
	}
	if s.Format != format {
		return nil, fmt.Errorf("a status of format %d; this program reads %d", s.Format, format)
	}
	if !slices.Contains([]State{Running, Finished, Missed, Interrupted, Failed}, s.State) {
		return nil, fmt.Errorf("no status of a run: unknown state %s", safetext.Line(fmt.Sprintf("%q", s.State), 40))
	}
	return s, nil
}

// Write takes lines for the log. It never fails.
func (j *Journal) Write(p []byte) (int, error) {
	if j == nil {
		return len(p), nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.ended:
	case j.dir != "":
		j.log.lines(p)
	case len(j.waiting)+len(p) > keptBytes:
		j.lost += bytes.Count(p, []byte("\n"))
	default:
		j.waiting = append(j.waiting, p...)
	}
	return len(p), nil
}

// Line adds a line to the log.
func (j *Journal) Line(line string) { fmt.Fprintln(j, strings.TrimRight(line, "\n")) }

// At notes how many of how many optimizer steps are done. The status on the disk says it when it is next written.
func (j *Journal) At(step, steps int) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Step, j.status.Steps, j.status.ReachedSteps = step, steps, true
}

// Saved notes the newest checkpoint, and writes the status.
func (j *Journal) Saved(checkpoint string) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dir != "" && !j.ended {
		j.status.Checkpoint = checkpoint
		j.save()
	}
}

// Rank notes what a rank of a run on several devices failed with.
func (j *Journal) Rank(rank int, err error) {
	if j == nil || err == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	known := slices.ContainsFunc(j.status.Ranks, func(r Rank) bool { return r.Rank == rank })
	if !known && len(j.status.Ranks) < mostRanks {
		j.status.Ranks = append(j.status.Ranks, Rank{rank, errorText(err.Error())})
	}
}

// Opened reports whether the journal has a folder to write to.
func (j *Journal) Opened() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dir != ""
}

// End writes how the process ended: its last line and its status. The first call counts. A journal without a folder
// writes nothing, and neither does one whose folder another process has taken since.
func (j *Journal) End(state State, exitCode int, err error) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.ended = true
	if j.dir == "" {
		return
	}
	debug.SetCrashOutput(nil, debug.CrashOptions{}) //nolint:errcheck // nothing is left to trace
	defer j.log.close()
	j.status.State, j.status.ExitCode, j.status.Ended = state, &exitCode, time.Now().UTC()
	if err != nil {
		j.status.Error = errorText(err.Error())
	}
	if !j.foreign && !j.mine() {
		return
	}
	j.log.line(mark(string(state), j.status.Ended, fmt.Sprintf("exit code %d", exitCode)))
	j.save()
}

// mine reports whether the status on the disk is of this process. One that cannot be read counts as such.
func (j *Journal) mine() bool {
	s, err := Read(filepath.Join(j.dir, StatusFile))
	return err != nil || s.PID == j.status.PID && s.Host == j.status.Host && s.Began.Equal(j.status.Began)
}

// save writes the status. Where the disk is full it is written in place: the block that the file has holds it.
func (j *Journal) save() {
	if j.foreign {
		return
	}
	s := j.status
	path := filepath.Join(j.dir, StatusFile)
	err := atomicfile.Write(path, s.text())
	if full := (*atomicfile.FullError)(nil); errors.As(err, &full) {
		s.Error = cut(s.Error, 800)
		s.Ranks = nil
		inPlace(path, s.text()) //nolint:errcheck // then the status stays that of before
	}
}

func (s Status) text() []byte {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // our own fields
	}
	return append(text, '\n')
}

// inPlace overwrites a file that is there.
func inPlace(path string, text []byte) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	f, err := atomicfile.Open(path, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(text, 0); err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}

// errorText is an error as a status has it: without secrets and control characters, and not too long.
func errorText(text string) string { return cut(safetext.Plain(safetext.Mask(text)), mostError) }

// cut leaves out the middle of what is longer than most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most*3/4], "") + " ... " + strings.ToValidUTF8(text[len(text)-most/4:], "")
}
