// Package runs reads the folders that training runs write, and lays them out as pages for people.
//
// A folder is untrusted input: missing, damaged or too large files are reported and left out, and all texts are escaped
// in pages.
package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/hardware"
	"github.com/tierlora/tierlora/train/journal"
	"github.com/tierlora/tierlora/train/replay"
)

// Run is the content of a run's folder.
type Run struct {
	Name string // name for people: as much of the folder's path as distinguishes it from the others
	Dir  string

	Steps []Step
	Evals []Eval
	End   *End // nil = the run has not reached its last step

	Losses   []float64 // loss of every step, if a checkpoint of the last step has them
	Plan     *train.PlanReport
	Data     *dataset.Report
	Manifest *replay.Manifest
	Curve    *train.ReferenceCurve // nil = the run was not compared with a reference
	Settings []Setting             // the configuration in its order; the caller of Read sets it
	Config   []byte                // config.yaml; nil if it is missing

	Numbers     []NamedNumber // numbers that the objective reports beside the loss
	Norms       []TensorNorms
	Samples     []train.SampleLine     // samples of the first step and the newest ones
	Answers     []train.CompletionLine // sampled answers of the first step and the newest ones
	Tasks       []Task
	Total       int   // steps of the whole run; 0 = not known
	Checkpoints []int // steps of the checkpoints, ascending
	Best        string
	Held        bool              // a process holds the folder
	Holder      checkpoint.Holder // content of the folder's lock
	Crashed     bool              // a process held the folder and ended without releasing it
	Journal     *journal.Status   // the newest start's own record of how it ended; nil = none
	Log         string            // end of the run's log; "" = there is none

	Hardware []HardwareSeries // readings of the machine, each over the seconds of the run's processes
	About    About            // what a person wrote about the run
	Files    []string         // names of the files that were read
	Problems []string         // descriptions of what could not be read
}

// Setting is a key of the configuration.
type Setting struct {
	Key, Value, Default string
	Changed             bool // the value differs from the default
}

// TensorNorms are the norms of a tensor's gradient over the lines of grad_norms.jsonl.
type TensorNorms struct {
	Name                string
	Lowest, Mean, Last  float64
	Highest, HighestAt  float64 // highest norm and its step
	lines, sum, unknown float64
}

// ErrNoRun is the error for a folder that holds no run.
var ErrNoRun = errors.New("no run")

// Read reads a run's folder. The error concerns the folder itself; Problems describes damaged files in it.
func Read(dir string) (*Run, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; a run is named by its output folder (output_dir)", ErrNoRun, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is %s; a run is named by its output folder (output_dir)", ErrNoRun, dir, regular.Kind(info))
	}
	r := &Run{Name: filepath.Base(abs(dir)), Dir: dir}
	r.readMetrics()
	r.readFiles()
	r.eachLine(train.GradNormsFile, newNorms(r).take)
	r.eachLine(train.SamplesFile, r.takeSample)
	r.eachLine(train.CompletionsFile, r.takeAnswers)
	r.eachLine(hardware.File, newReadings(r).take)
	if err := r.finish(); err != nil {
		return nil, err
	}
	return r, nil
}

// readFiles reads the files that do not grow by lines.
func (r *Run) readFiles() {
	r.Config, _ = r.read(train.ConfigFile)
	r.Plan = readAs[train.PlanReport](r, train.PlanReportFile)
	r.Manifest = readAs[replay.Manifest](r, replay.ManifestFile)
	r.Data = cleaned(readAs[dataset.Report](r, train.DataReportFile), 0)
	if c := readAs[train.ReferenceCurve](r, train.ReferenceCurveFile); c != nil {
		if err := c.Validate(); err != nil {
			r.problem("%s: %v; it is left out", train.ReferenceCurveFile, err)
		} else {
			r.Curve = c
		}
	}
	r.readCheckpoints()
	r.readLock()
	r.readJournal()
	r.About, _ = readAbout(r.Dir)
}

// finish returns an error if the folder holds no run.
func (r *Run) finish() error {
	if len(r.Files) == 0 {
		return fmt.Errorf("%w: %s holds none of the files that a run writes (%s, %s, %s); a run is named by its output folder (output_dir)",
			ErrNoRun, r.Dir, train.MetricsFile, train.ConfigFile, replay.ManifestFile)
	}
	if r.Plan != nil {
		r.Plan.Flat = r.Plan.Flat && len(r.Plan.Budgets) > 0 // the report names the longest budget
		if r.Plan.Steps > 0 {
			r.Total = r.Plan.Steps
		}
	}
	return nil
}

func abs(dir string) string {
	if a, err := filepath.Abs(dir); err == nil {
		return a
	}
	return dir
}

func readAs[T any](r *Run, name string) *T {
	v := new(T)
	if !r.readJSON(name, v) {
		return nil
	}
	return v
}

// cleaned returns a report without nil entries, which a damaged file may have.
func cleaned(d *dataset.Report, depth int) *dataset.Report {
	if d == nil || depth > 3 {
		return nil
	}
	var parts []*dataset.Report
	for _, p := range d.Parts {
		if p = cleaned(p, depth+1); p != nil && len(parts) < 100 {
			parts = append(parts, p)
		}
	}
	d.Parts, d.Val = parts, cleaned(d.Val, depth+1)
	return d
}

func (r *Run) problem(format string, args ...any) {
	if len(r.Problems) < 50 {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// missing records the problem of a file that does not open. Most files may be absent.
func (r *Run) missing(name string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		r.problem("%s: %v; it is left out", name, err)
	}
}

// readCheckpoints finds the checkpoints, and reads the losses of every step from the newest.
func (r *Run) readCheckpoints() {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		r.problem("%v", err)
		return
	}
	for _, e := range entries {
		if step, ok := strings.CutPrefix(e.Name(), strings.TrimSuffix(checkpoint.Name(0), "0")); ok && e.IsDir() {
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && checkpoint.Name(n) == e.Name() {
				r.Checkpoints = append(r.Checkpoints, n)
			}
		}
	}
	if len(r.Checkpoints) == 0 {
		return
	}
	slices.Sort(r.Checkpoints)
	newest := r.Checkpoints[len(r.Checkpoints)-1]
	var state struct {
		MaxSteps int    `json:"max_steps"`
		Best     string `json:"best_model_checkpoint"`
		Cursor   struct {
			Losses []number `json:"losses"`
		} `json:"data_cursor"`
	}
	if !r.readJSON(filepath.Join(checkpoint.Name(newest), checkpoint.StateFile), &state) {
		return
	}
	r.Total, r.Best = max(0, state.MaxSteps), state.Best
	if n := len(r.Steps); n > 0 && len(state.Cursor.Losses) == newest && r.Steps[n-1].Step == newest {
		for _, l := range state.Cursor.Losses {
			r.Losses = append(r.Losses, l.value())
		}
	}
}

// readLock finds out whether a process holds the folder.
func (r *Run) readLock() {
	info, err := os.Stat(filepath.Join(r.Dir, checkpoint.LockFile))
	if err != nil || !r.readJSON(checkpoint.LockFile, &r.Holder) {
		return
	}
	host, _ := os.Hostname()
	if r.Holder.Host == host {
		r.Held = Alive(r.Holder.PID)
	} else {
		r.Held = time.Since(r.lastWrite(info.ModTime())) < 10*time.Minute
	}
	r.Crashed = !r.Held
}

// shownLog is the number of bytes at the end of a log that a page shows.
const shownLog = 16 << 10

// readJournal reads how the newest start of the run went, as that process recorded it. A process that recorded itself
// as running and is gone has crashed, even if its lock was not copied with the folder.
func (r *Run) readJournal() {
	text, ok := r.read(journal.StatusFile)
	if !ok {
		return
	}
	s, err := journal.Parse(text)
	if err != nil { // another program's file does not make a folder a run
		r.Files = slices.DeleteFunc(r.Files, func(name string) bool { return name == journal.StatusFile })
		r.problem("%s: %v; it is left out", journal.StatusFile, err)
		return
	}
	r.Journal, r.Log = s, safetext.Plain(journal.Tail(r.Dir, shownLog))
	if s.State != journal.Running || r.Held || r.Crashed {
		return
	}
	if host, _ := os.Hostname(); s.Host == host {
		r.Held = Alive(s.PID) // the process has just released its lock
	} else if info, err := os.Stat(filepath.Join(r.Dir, journal.StatusFile)); err == nil {
		r.Held = time.Since(r.lastWrite(info.ModTime())) < 10*time.Minute
	}
	r.Crashed = !r.Held
}

// HeldBy reports whether a process of this machine holds a run's folder, and which.
func HeldBy(dir string) (pid int, held bool) {
	r := &Run{Dir: dir}
	r.readLock()
	host, _ := os.Hostname()
	return r.Holder.PID, r.Held && r.Holder.Host == host
}

// lastWrite returns when the run last wrote a line, or its lock.
func (r *Run) lastWrite(lock time.Time) time.Time {
	if info, err := os.Stat(filepath.Join(r.Dir, train.MetricsFile)); err == nil && info.ModTime().After(lock) {
		return info.ModTime()
	}
	return lock
}
