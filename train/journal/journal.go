// Package journal writes two files about a run to its output folder: train.log holds the lines that the terminal
// showed, and status.json the run's state, how it ended and why. A failure to write them never ends a run: what cannot
// be written is left out.
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

// State is the state of a run, or how it ended.
type State string

// The states. A process that was killed leaves Running: its lock or its process number shows whether it is alive.
const (
	Running     State = "running"
	Finished    State = "finished"    // all steps are done and the adapter is written
	Missed      State = "missed"      // finished, but a criterion in the configuration's section expect failed
	Interrupted State = "interrupted" // a signal ended the run
	Failed      State = "failed"
)

// Status is the content of StatusFile.
type Status struct {
	Format     int    `json:"format"`
	State      State  `json:"state"`
	ExitCode   *int   `json:"exit_code,omitempty"` // exit code of the process; nil = it has not ended
	Error      string `json:"error,omitempty"`
	Step       int    `json:"step"`                // newest finished optimizer step
	Steps      int    `json:"max_steps,omitempty"` // 0 = not known yet
	Checkpoint string `json:"checkpoint,omitempty"`
	// the run has started to train, so the metrics in the folder are its own
	ReachedSteps bool      `json:"reached_steps"`
	Began        time.Time `json:"began"`
	Ended        time.Time `json:"ended,omitzero"`
	PID          int       `json:"pid"`
	Host         string    `json:"host"`
	Program      string    `json:"program,omitempty"` // version and commit
	Ranks        []Rank    `json:"ranks,omitempty"`   // ranks that failed, in a run on several devices
}

// Rank is the failure of one rank of a run on several devices.
type Rank struct {
	Rank  int    `json:"rank"`
	Error string `json:"error"`
}

const (
	format    = 1
	mostError = 4000      // bytes of an error in a status
	mostRanks = 64        // ranks that a status lists
	keptBytes = 256 << 10 // bytes of lines that wait for the folder
	mostFile  = 1 << 20   // bytes of a status that are read
)

// Journal writes the two files of one process. It is safe for concurrent use, and a nil Journal writes nothing.
type Journal struct {
	mu      sync.Mutex
	name    string // name of the log
	dir     string // "" = the run does not own the folder yet
	ended   bool
	status  Status
	foreign bool   // another program wrote the folder's StatusFile, which is kept
	waiting []byte // lines from before the folder was known
	lost    int    // number of waiting lines that were dropped
	log     log
}

// New returns the journal of a process that is about to train. program is its version.
func New(program string) *Journal {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return &Journal{name: LogFile, status: Status{Format: format, State: Running, Began: time.Now().UTC(),
		PID: os.Getpid(), Host: host, Program: program}}
}

// NewRank returns the journal of a rank other than rank 0. It has a log of its own, which holds the error of the rank,
// and no status.
func NewRank(program string, rank int) *Journal {
	j := New(program)
	j.name, j.foreign = fmt.Sprintf("train.rank%d.log", rank), true
	return j
}

// Open starts writing to the run's folder, which must be locked and hold no other run. The notes say what cannot be
// written there, and why.
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
	j.log.line(mark("started", j.status.Began, fmt.Sprintf("process %d on %s, %s", j.status.PID, j.status.Host,
		j.status.Program)))
	if j.lost > 0 {
		j.log.line(fmt.Sprintf("(%d lines are left out here)\n", j.lost))
	}
	j.log.lines(j.waiting)
	j.waiting = nil
	if j.log.file != nil {
		debug.SetCrashOutput(j.log.file, debug.CrashOptions{}) // the trace is also printed to the terminal
	}
	j.save()
	return notes
}

// ours returns an error if the file exists and is not the status of a run.
func ours(path string) error {
	if err := atomicfile.Check(path); err != nil {
		return err
	}
	if _, err := Read(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not what a run writes", path)
	}
	return nil
}

// Read reads a StatusFile. It returns an error for any other file.
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

// Parse parses the content of a StatusFile.
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

// Write adds lines to the log. It never fails.
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

// At records how many of how many optimizer steps are done. The file is updated at the next write of the status.
func (j *Journal) At(step, steps int) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Step, j.status.Steps, j.status.ReachedSteps = step, steps, true
}

// Saved records the newest checkpoint and writes the status.
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

// Rank records the error of a rank in a run on several devices.
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

// End writes how the process ended: the last line of the log, and the status. Only the first call counts. It writes
// nothing if the journal has no folder, or if another process has taken the folder since.
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
	debug.SetCrashOutput(nil, debug.CrashOptions{}) // no crash can follow
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

// mine reports whether the status file belongs to this process. It returns true for an unreadable file.
func (j *Journal) mine() bool {
	s, err := Read(filepath.Join(j.dir, StatusFile))
	return err != nil || s.PID == j.status.PID && s.Host == j.status.Host && s.Began.Equal(j.status.Began)
}

// save writes the status. On a full disk it overwrites the file in place, which needs no further block.
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
		inPlace(path, s.text()) // on failure the older status stays
	}
}

func (s Status) text() []byte {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the fields are our own
	}
	return append(text, '\n')
}

// inPlace overwrites an existing file.
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

// errorText returns an error for the status: without secrets and control characters, and of limited length.
func errorText(text string) string { return cut(safetext.Plain(safetext.Mask(text)), mostError) }

// cut removes the middle of a text that is longer than most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most*3/4], "") + " ... " + strings.ToValidUTF8(text[len(text)-most/4:], "")
}
