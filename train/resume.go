package train

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/replay"
	"github.com/tierlora/tierlora/train/track"
)

// resumeFrom returns the checkpoint to resume from, "" for a new run. It never lets a run overwrite files that the run
// to resume has not written; own has the names of the files that the run writes.
func resumeFrom(resume, dir string, own []string, env Env) (string, error) {
	if err := checkOwnFiles(dir, own); err != nil {
		return "", err
	}
	switch resume {
	case "auto":
		path, damaged, err := checkpoint.Latest(dir)
		for _, d := range damaged {
			env.Logf("passed over: %v", d)
		}
		switch {
		case err != nil || path != "":
			return path, err
		case len(damaged) > 0:
			return "", fmt.Errorf("resume %s: no checkpoint is whole", dir)
		case exists(dir, adapter.WeightsFile), exists(dir, MetricsFile) && holdsModel(dir):
			return "", fmt.Errorf("output_dir %s holds a run already (%s) but no checkpoint to resume from: choose "+
				"another output_dir", dir, adapter.WeightsFile)
		case exists(dir, MetricsFile): // a run that has no checkpoint yet
			return "", nil
		}
		return "", refuseForeign(dir, own)
	case "":
		if err := refuseRun(dir); err != nil {
			return "", err
		}
		return "", refuseForeign(dir, own)
	}
	if err := checkResume(resume); err != nil {
		return "", err
	}
	if !sameFolder(filepath.Dir(filepath.Clean(resume)), dir) {
		if err := refuseRun(dir); err != nil {
			return "", err
		}
		return resume, refuseForeign(dir, own)
	}
	return resume, refuseOlder(resume, dir)
}

// checkResume returns an error if a folder to resume from is no checkpoint. The error lists the checkpoints that exist.
func checkResume(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("resume from %s: it is no folder; name a checkpoint folder, or auto for the newest in "+
			"output_dir", path)
	case !os.IsNotExist(err):
		return fmt.Errorf("resume from %s: %w", path, err)
	}
	hint := "name a checkpoint folder, or auto for the newest in output_dir"
	if steps, err := checkpoint.Steps(filepath.Dir(filepath.Clean(path))); err == nil && len(steps) > 0 {
		hint = "beside it is " + checkpoint.Name(steps[len(steps)-1])
	}
	return fmt.Errorf("resume from %s: there is no such folder; %s", path, hint)
}

// refuseOlder returns an error if a folder holds checkpoints newer than the one to resume from, because they would
// count as this run's.
func refuseOlder(resume, dir string) error {
	steps, err := checkpoint.Steps(dir)
	if err != nil || len(steps) == 0 {
		return err
	}
	if newest := checkpoint.Name(steps[len(steps)-1]); newest != filepath.Base(filepath.Clean(resume)) {
		return fmt.Errorf("resume from %s: %s is newer and would be taken for this run's: move it away, or choose "+
			"another output_dir", resume, filepath.Join(dir, newest))
	}
	return nil
}

// take locks the output folder for the run of its first rank, before anything is read. Another process that trains into
// the folder causes an error at once that names it. A process that is killed leaves its lock behind. give unlocks the
// folder.
func take(s Spec, env Env, at *whereabouts) (give func() error, err error) {
	none := func() error { return nil }
	if !env.team.leads() {
		return none, nil
	}
	dir, resume := s.OutputDir, s.Training.Resume
	if info, serr := os.Stat(dir); serr == nil && info.IsDir() && resume == "" {
		err = refuseRun(dir)
	}
	lock, lerr := checkpoint.Acquire(dir)
	if lerr != nil {
		if errors.As(lerr, new(*checkpoint.HeldError)) { // a live run has the folder; this error names it
			return none, lerr
		}
		return none, cmp.Or(err, fmt.Errorf("output_dir: %w", lerr))
	}
	at.holds(lock)
	give = func() error {
		if at.check() != nil { // the watchdog has released the lock
			return nil
		}
		at.holds(nil)
		return lock.Release()
	}
	if err == nil && resume == "" {
		err = refuseRun(dir)
	}
	if err != nil {
		give() //nolint:errcheck // the refusal of the folder says more
		return none, err
	}
	if isRunsOwn(resume, dir) {
		at.taken(dir, env)
	}
	return give, nil
}

// isRunsOwn reports whether a folder belongs to the run as far as that is known before base model and data are read: it
// holds the run to resume, or none of the files that a run may write. resumeFrom makes the full check.
func isRunsOwn(resume, dir string) bool {
	switch {
	case resume == "":
	case resume != "auto":
		if sameFolder(filepath.Dir(filepath.Clean(resume)), dir) {
			return true
		}
		if refuseRun(dir) != nil {
			return false
		}
	default:
		if steps, err := checkpoint.Steps(dir); err == nil && len(steps) > 0 ||
			!exists(dir, adapter.WeightsFile) && exists(dir, MetricsFile) {
			return true
		}
	}
	return refuseForeign(dir, mayWrite) == nil
}

// mayWrite lists the names of all files that runs may write, under any configuration.
var mayWrite = []string{MetricsFile, ConfigFile, replay.ManifestFile, DataReportFile, PlanReportFile,
	ReferenceCurveFile, GradNormsFile, WindowsFile, SamplesFile,
	CSVFile, track.MetricsPromFile, adapter.ConfigFile, adapter.WeightsFile, dataset.PromptFormatFile,
	"tokenizer.json", "tokenizer.model",
	"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
	"chat_template.jinja",
	"additional_chat_templates", "generation_config.json", modelConfig, weights.SingleFile, weights.IndexFile}

// refuseRun returns an error if a folder holds a run.
func refuseRun(dir string) error {
	for _, name := range []string{adapter.WeightsFile, MetricsFile} {
		if exists(dir, name) {
			return fmt.Errorf("output_dir %s holds a run already (%s): set training.resume to auto to resume it, "+
				"or choose another output_dir", dir, name)
		}
	}
	steps, err := checkpoint.Steps(dir)
	if err == nil && len(steps) > 0 {
		err = fmt.Errorf("output_dir %s holds checkpoints of a run: set training.resume to auto to resume it, or "+
			"choose another output_dir", dir)
	}
	return err
}

// checkOwnFiles returns an error if a file of the run has become a link, a device or anything else that a run must not
// write to. It is called before the first step and not when the adapter is saved.
func checkOwnFiles(dir string, own []string) error {
	for _, name := range own {
		if err := atomicfile.Check(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("output_dir: %w", err)
		}
	}
	return nil
}

// refuseForeign returns an error if a folder that holds no run has files that the run would replace.
func refuseForeign(dir string, own []string) error {
	var there []string
	for _, name := range own {
		if exists(dir, name) {
			there = append(there, name)
		}
	}
	if there == nil {
		return nil
	}
	sort.Strings(there)
	return fmt.Errorf("output_dir %s has %s, which no run wrote and this one would replace: choose another output_dir",
		dir, strings.Join(there, ", "))
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// initAdapter initialises the adapter from the seed, or from the folder that init_from names.
func (s *saver) initAdapter() error {
	if s.whole() { // the weights start as the base model has them
		return nil
	}
	params, err := s.step.Trained.Snapshot(s.memory)
	if err != nil {
		return err
	}
	own := s.spec.AdapterConfig()
	dir, key := own.InitFrom, own.Key("init_from")
	if dir == "" {
		if err := s.Net.Start.Fill(s.step.Net, s.Base.Reader(), s.step.Trained, params); err != nil {
			return fmt.Errorf("start the adapter: %w", err)
		}
		if found := s.Net.Start.Correction(); found != "" && s.env.team.leads() {
			s.env.Logf("%s", found)
		}
		return s.step.Trained.Restore(s.memory, params)
	}
	saved, err := adapter.Open(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	defer saved.Close() //nolint:errcheck // read only
	if err := s.sameScale(saved); err != nil {
		return fmt.Errorf("%s: %s: %w", key, dir, err)
	}
	if err := saved.Read(params); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return s.step.Trained.Restore(s.memory, params)
}

// sameScale returns an error if a saved adapter is of another method, or if this run would scale its update
// differently.
func (s *saver) sameScale(saved *adapter.Saved) error {
	own := s.Net.Start.SavedConfig(s.spec.AdapterConfig())
	if was, is := saved.Method.Label(), s.Net.Method.Label(); was != is {
		return fmt.Errorf("the adapter is one of %s, this run trains %s: set adapter as the adapter has it", was, is)
	}
	if err := saved.CheckFrozen(own); err != nil {
		return err
	}
	for _, layer := range s.step.Trained.Updated() {
		if was, is := saved.Config.Scale(layer), own.Scale(layer); was != is {
			return fmt.Errorf("the adapter was trained with scale %v at %s, this run has scale %v; set %s as the "+
				"adapter has them", was, layer, is, own.ScaleKeys())
		}
	}
	return nil
}

// restore loads a checkpoint's state into memory.
func (s *saver) restore(path string) error {
	files, state, err := checkpoint.Load(path)
	if err == nil {
		err = s.restoreFiles(path, files, state)
	}
	if err != nil {
		return fmt.Errorf("resume from %s: %w", path, err)
	}
	s.saved, s.recorder.result.Checkpoint = state.GlobalStep, path
	s.at.saved(path)
	s.at.stepDone(state.GlobalStep, s.total, time.Now())
	s.env.Newsf("resumed from %s after step %d", path, state.GlobalStep)
	return nil
}

func (s *saver) restoreFiles(path string, files map[string][]byte, state checkpoint.State) error {
	if state.GlobalStep > s.total {
		return fmt.Errorf("it is at step %d, the run has %d", state.GlobalStep, s.total)
	}
	var c cursor
	if err := jsonerr.Unmarshal(state.Cursor, &c); err != nil {
		return fmt.Errorf("data cursor: %w", jsonerr.Unplaced(err))
	}
	if c.Base != s.Base.Fingerprint() {
		return fmt.Errorf("it was trained on other base weights than those of %s", s.Base.Name)
	}
	if err := s.compareMeaning(c.Run, state.GlobalStep); err != nil {
		return err
	}
	if err := s.windows.Restore(c.Data); err != nil {
		return err
	}
	if err := samePrecompute(c.Precomputed, s.known != nil); err != nil {
		return err
	}
	if err := s.restoreWeights(files); err != nil {
		return err
	}
	if err := s.restoreOptimizer(path, files[optimizerFile]); err != nil {
		return err
	}
	s.pipeline.Averaged()
	s.forgetOtherBest(&state, cmp.Or(c.BestOf, EvalLoss))
	s.forgetGoneBest(&state, cmp.Or(c.BestOf, EvalLoss))
	s.recorder.state, s.recorder.progress = state, c
	return nil
}

// forgetOtherBest removes the best checkpoint from the state if it was chosen by another metric than this run's, and
// logs it: values of two metrics cannot be compared.
func (s *saver) forgetOtherBest(state *checkpoint.State, by string) {
	now := s.spec.Training.MetricForBestModel
	if state.BestMetric == nil || by == now {
		return
	}
	s.env.Newsf("training.metric_for_best_model was %s and is %s: the best checkpoint so far, %s, is forgotten, "+
		"and the best of the evaluations from here on is kept",
		by, now, state.BestModelCheckpoint)
	state.BestMetric, state.BestModelCheckpoint = nil, ""
}

// forgetGoneBest removes the best checkpoint from the state if its folder is no longer in output_dir, and logs it. The
// next evaluation is then the best one, and its checkpoint is kept. by is the metric that it was chosen by.
func (s *saver) forgetGoneBest(state *checkpoint.State, by string) {
	best := state.BestModelCheckpoint
	if best == "" || exists(s.spec.OutputDir, best) {
		return
	}
	value := "unknown"
	if state.BestMetric != nil {
		value = strconv.FormatFloat(*state.BestMetric, 'g', 6, 64)
	}
	s.env.Newsf("the best checkpoint so far, %s (%s %s), is not in %s: it is forgotten, "+
		"and the best of the evaluations from here on is kept",
		best, by, value, s.spec.OutputDir)
	state.BestMetric, state.BestModelCheckpoint = nil, ""
}

// restoreWeights reads what is trained from a checkpoint's files: the adapter, or the model's weights.
func (s *saver) restoreWeights(files map[string][]byte) error {
	if s.whole() {
		return s.restoreModel(files)
	}
	return s.restoreAdapter(files)
}

func (s *saver) restoreAdapter(files map[string][]byte) error {
	saved, err := adapter.Decode(files[adapter.ConfigFile], files[adapter.WeightsFile])
	if err != nil {
		return err
	}
	if err := s.sameScale(saved); err != nil {
		return err
	}
	params := s.step.Trained.List()
	if err := s.Net.Start.Resume(saved, s.step.Trained, params); err != nil {
		return err
	}
	return s.step.Trained.Restore(s.memory, params)
}

// resumeStart reads from a checkpoint how its adapter was initialised, if the base model has lost that part. The base
// model loses the same part again while it loads.
func (p *prepared) resumeStart(checkpoint string) error {
	if checkpoint == "" || !p.Net.Start.Rebases() {
		return nil
	}
	saved, err := adapter.Open(checkpoint)
	if err != nil {
		return fmt.Errorf("resume from %s: %w", checkpoint, err)
	}
	defer saved.Close() //nolint:errcheck // read only
	trained := p.found.Step.train.Trained
	if err := p.Net.Start.Resume(saved, trained, trained.List()); err != nil {
		return fmt.Errorf("resume from %s: %w", checkpoint, err)
	}
	return nil
}
