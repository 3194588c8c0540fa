package runs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/hardware"
	"github.com/tierlora/tierlora/train/journal"
	"github.com/tierlora/tierlora/train/replay"
)

// Follower reads a run's folder repeatedly: only the new lines of files that grow by lines, and the other files if they
// have changed. It only opens files for reading, so that the run is not disturbed. A Follower is not safe for
// concurrent use, but the runs that it returns are.
type Follower struct {
	dir    string
	run    *Run // run returned last; never modified
	files  map[string]stamp
	growth map[string]*followed
	told   bool // run is up to date with the folder
}

// stamp identifies one state of a file.
type stamp struct {
	info os.FileInfo // nil = the file does not exist
}

func (s stamp) same(o stamp) bool {
	if s.info == nil || o.info == nil {
		return s.info == nil && o.info == nil
	}
	return os.SameFile(s.info, o.info) && s.info.Size() == o.info.Size() && s.info.ModTime().Equal(o.info.ModTime())
}

// followed is a file of lines, with the state of its reading.
type followed struct {
	lines
	was  stamp
	see  func(text []byte) bool
	run  *Run // run that collects the lines
	more bool // the file has more lines than the last Read took in
}

// mostRead is the largest number of bytes of a file of lines that one Read takes in; the next Read continues there. A
// large file therefore delays no page.
const mostRead = 8 << 20

// Follow returns a follower of a run's folder.
func Follow(dir string) *Follower { return &Follower{dir: dir} }

// steady lists the files that a run writes once or replaces as a whole.
var steady = []string{".", train.ConfigFile, train.PlanReportFile, replay.ManifestFile, train.DataReportFile, train.ReferenceCurveFile, checkpoint.LockFile,
	journal.StatusFile, journal.LogFile, AboutFile}

// lineFiles lists the files of a run that grow by lines.
var lineFiles = []string{train.MetricsFile, train.GradNormsFile, train.SamplesFile, train.CompletionsFile,
	hardware.File}

// Read returns the run as its folder has it now, and reports whether anything is new. The settings of the last run are
// kept as long as its configuration is unchanged.
func (f *Follower) Read() (r *Run, changed bool, err error) {
	info, err := os.Stat(f.dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is %s", f.dir, regular.Kind(info))
	}
	if err != nil {
		f.run, f.told = nil, false
		return nil, true, fmt.Errorf("%w: %w", ErrNoRun, err)
	}
	files := map[string]stamp{}
	changed = !f.told
	for _, name := range steady {
		files[name] = stat(filepath.Join(f.dir, name))
		changed = changed || !files[name].same(f.files[name])
	}
	grown, wrong := false, []error{}
	for _, name := range lineFiles {
		more, err := f.more(name)
		if grown = grown || more; err != nil {
			wrong = append(wrong, err)
		}
	}
	if !changed && !grown && (f.run == nil || !f.run.Held || f.heldStill()) {
		return f.run, false, nil
	}
	r = &Run{Name: filepath.Base(abs(f.dir)), Dir: f.dir}
	for _, err := range wrong {
		r.problem("%v; it is left out", err)
	}
	f.gather(r)
	r.readFiles()
	for _, name := range lineFiles {
		if g := f.growth[name]; g.was.info != nil {
			r.Files = append(r.Files, name)
			g.tell(r)
			switch {
			case g.more:
				r.problem("%s is still being read: %d%% so far", name, 100*g.at/max(g.was.info.Size(), 1))
			case len(g.tail) > 0 && !r.Held:
				r.problem("%s: its last line, %d, is not whole: the run was cut off while it wrote it", name, g.n+1)
			}
		}
	}
	f.files = files
	if err := r.finish(); err != nil {
		f.run, f.told = nil, true
		return nil, true, err
	}
	f.run, f.told = r, true
	return r, true, nil
}

// heldStill reports whether the process that holds the folder is alive or gone as it was before.
func (f *Follower) heldStill() bool {
	now := &Run{Dir: f.dir}
	now.readLock()
	now.readJournal()
	return now.Held
}

func stat(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info}
}

// gather copies the content of the files of lines into a run.
func (f *Follower) gather(r *Run) {
	m, n, s := f.growth[train.MetricsFile].run, f.growth[train.GradNormsFile].run, f.growth[train.SamplesFile].run
	h, a := f.growth[hardware.File].run, f.growth[train.CompletionsFile].run
	r.Hardware, r.Numbers = slices.Clone(h.Hardware), cloneNumbers(m.Numbers)
	r.Steps, r.Evals, r.End = slices.Clone(m.Steps), slices.Clone(m.Evals), m.End
	r.Norms, r.Samples, r.Tasks = slices.Clone(n.Norms), slices.Clone(s.Samples), slices.Clone(m.Tasks)
	r.Answers = slices.Clone(a.Answers)
	r.Problems = slices.Concat(m.Problems, n.Problems, s.Problems, a.Problems, h.Problems)
}

// more reads the lines that a file has gained, and reports whether it has changed. A file that was replaced or became
// shorter is read from its start.
func (f *Follower) more(name string) (changed bool, err error) {
	if f.growth == nil {
		f.growth = map[string]*followed{}
	}
	now := stat(filepath.Join(f.dir, name))
	g := f.growth[name]
	if g != nil && now.same(g.was) && !g.more {
		return false, nil
	}
	if g == nil || now.info == nil || g.was.info == nil || !os.SameFile(now.info, g.was.info) || now.info.Size() < g.at {
		g = f.anew(name)
	}
	g.was = now
	if now.info == nil {
		return true, nil
	}
	file, err := regular.Open(filepath.Join(f.dir, name))
	if err != nil {
		return true, err
	}
	defer file.Close()
	if _, err := file.Seek(g.at, io.SeekStart); err != nil {
		return true, err
	}
	part := &io.LimitedReader{R: file, N: mostRead}
	g.read(g.run, part, g.see)
	g.more = part.N == 0 && g.n < mostLines
	g.run.setSeconds()
	return true, nil
}

func (f *Follower) anew(name string) *followed {
	g := &followed{lines: lines{name: name}, run: &Run{Dir: f.dir}}
	switch name {
	case train.MetricsFile:
		g.see = g.run.takeMetrics
	case train.SamplesFile:
		g.see = g.run.takeSample
	case train.CompletionsFile:
		g.see = g.run.takeAnswers
	case hardware.File:
		g.see = newReadings(g.run).take
	default:
		g.see = newNorms(g.run).take
	}
	f.growth[name] = g
	return g
}

// Written returns when the run last wrote a line; the zero time if it wrote none.
func (f *Follower) Written() time.Time {
	if g := f.growth[train.MetricsFile]; g != nil && g.was.info != nil {
		return g.was.info.ModTime()
	}
	return time.Time{}
}
