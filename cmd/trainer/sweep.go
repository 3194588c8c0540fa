package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train"
)

type sweepOptions struct {
	configOptions
	out      string
	seeds    int
	parallel int
	sample   int
	pick     uint64
	json     bool
	dry      bool
}

// maxRuns is the most runs of a sweep.
const maxRuns = 1000

func newSweep(c *console) *cobra.Command {
	o := &sweepOptions{}
	cmd := &cobra.Command{
		Use:   "sweep FILE --set KEY=A,B,...",
		Short: "Train every combination of some values, and compare the runs",
		Long: `Train every combination of the values that --set lists with commas, each in its own folder below --out, and print the
runs sorted by evaluation loss, or by training.metric_for_best_model. --seeds N repeats each combination with N seeds
and prints mean and standard deviation. --sample N runs N combinations at random.

The same command again continues: finished runs are not repeated, a stopped one resumes. Exit code 1 if a run failed.
trainer report shows the folder.`,
		Example: `  trainer sweep run.yaml --set training.learning_rate=1e-4,2e-4 --set lora.r=8,16
  trainer sweep --config run.yaml --set training.learning_rate=1e-4,5e-4,1e-3 --seeds 3 --out runs/rates
  trainer sweep run.yaml --set lora.r=4,8,16,32 --set lora.dropout=0,0.05,0.1 --sample 6 --dry-run`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSweep(cmd.Context(), c, o) },
	}
	o.register(cmd)
	cmd.Flags().Lookup("set").Usage = "`KEY=VALUES` to try, separated by commas, such as lora.r=8,16; may be repeated"
	pathVar(cmd, &o.out, "out", "", "`FOLDER` for the runs; default: the configuration's output_dir")
	cmd.Flags().IntVar(&o.seeds, "seeds", 1, "runs of each combination, with consecutive seeds")
	cmd.Flags().IntVar(&o.parallel, "parallel", 1, "runs at a time")
	cmd.Flags().IntVar(&o.sample, "sample", 0, "number of combinations to run, chosen at random; 0 = all")
	cmd.Flags().Uint64Var(&o.pick, "sample-seed", 1, "seed of the random choice")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "list the runs and start none")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the summary as JSON")
	return cmd
}

func runSweep(ctx context.Context, c *console, o *sweepOptions) error {
	all, err := o.runs()
	if err != nil {
		return err
	}
	if o.dry {
		for _, r := range all {
			fmt.Fprintf(c.out, "%s  %s\n", r.Name, strings.Join(r.Values, " "))
		}
		return nil
	}
	if err := checkDevice(all[0].spec); err != nil {
		return err
	}
	for _, r := range all {
		loaded := config.Loaded{Spec: r.spec, AssumedStorage: r.assumed}
		if _, err := takeStorage(ctx, &loaded, environment(c, 0)); err != nil {
			return err
		}
		r.spec = loaded.Spec
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return usage(fmt.Errorf("sweep: --out: %w", err))
	}
	for _, r := range all {
		if err := r.readState(); err != nil {
			return err
		}
	}
	stop := newSweepStop()
	defer stop.end()
	o.train(c, all, stop)
	s := summarise(o.out, all)
	if err := s.save(); err != nil {
		return err
	}
	if o.json {
		err = writeJSON(c.out, s)
	} else {
		err = s.print(c.out)
	}
	switch sig := stop.signal(); {
	case err != nil:
		return err
	case sig != nil:
		c.say("stopped; the same command goes on")
		code := stopSignal{}
		code.set(sig)
		return &exitError{code: code.exitCode(), err: errors.New("stopped"), silent: true}
	case s.Failed > 0:
		return &exitError{code: exitFailed, err: fmt.Errorf("%d of %d runs failed", s.Failed, len(all))}
	}
	return nil
}

// train starts the unfinished runs in order, several at a time.
func (o *sweepOptions) train(c *console, all []*sweepRun, stop *sweepStop) {
	var next atomic.Int64
	var wait sync.WaitGroup
	var said sync.Mutex
	for range min(o.parallel, len(all)) {
		wait.Go(rescue.Wrap(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) || stop.signal() != nil {
					return
				}
				r := all[i]
				line := "done before"
				if r.Status != string(runs.Finished) {
					began := time.Now()
					r.start(o, stop)
					line = fmt.Sprintf("%s, %.1f s", r.Status, time.Since(began).Seconds())
				}
				said.Lock()
				c.say("%d/%d  %s  %s", i+1, len(all), r.Name, line)
				said.Unlock()
			}
		}))
	}
	wait.Wait()
}

// start trains a run in a process of its own, so that a crash does not end other runs.
func (r *sweepRun) start(o *sweepOptions, stop *sweepStop) {
	r.Status, r.Problem = string(runs.Failed), ""
	err := func() error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		log, err := atomicfile.Truncate(r.dir+".log", 0o644)
		if err != nil {
			return err
		}
		defer log.Close()
		args := []string{"train", "--config", o.config, "--quiet", "--resume", "auto"}
		for _, set := range r.sets {
			args = append(args, "--set", set)
		}
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = log, log
		apart(cmd)
		return stop.run(cmd)
	}()
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) {
		r.Exit = exit.ExitCode()
		err = fmt.Errorf("exit code %d: %s", r.Exit, lastLine(r.dir+".log"))
	}
	if err != nil {
		r.Problem = err.Error()
	}
	if lookErr := r.readState(); lookErr != nil && err == nil {
		r.Problem = lookErr.Error()
	}
	if err != nil && r.Status == string(runs.Finished) { // for example, an expectation was not met
		r.Status = string(runs.Failed)
	}
	if err != nil && stop.signal() != nil {
		r.Status = string(runs.Stopped)
	}
	if err == nil && r.Status != string(runs.Finished) {
		r.Status, r.Problem = string(runs.Failed), "it ended, and its folder does not say that it finished"
	}
}

// lastLine returns the last line of a run's log.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 4096 {
		if _, err := f.Seek(-4096, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, _ := io.ReadAll(io.LimitReader(f, 4096))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return safetext.OneLine(strings.TrimPrefix(lines[len(lines)-1], "trainer: "))
}

// sweepStop forwards a signal to the active runs, which finish their step and save a checkpoint.
type sweepStop struct {
	mu      sync.Mutex
	first   os.Signal
	running map[*exec.Cmd]bool
	signals chan os.Signal
	done    chan struct{}
}

func newSweepStop() *sweepStop {
	s := &sweepStop{running: map[*exec.Cmd]bool{}, signals: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(s.signals, syscall.SIGHUP)
	}
	rescue.Go(func() {
		for {
			select {
			case sig := <-s.signals:
				s.mu.Lock()
				if s.first == nil {
					s.first = sig
				}
				for cmd := range s.running {
					_ = cmd.Process.Signal(sig) // a process that has just ended needs no signal
				}
				s.mu.Unlock()
			case <-s.done:
				return
			}
		}
	})
	return s
}

func (s *sweepStop) end() {
	signal.Stop(s.signals)
	close(s.done)
}

// signal returns the first signal received, or nil.
func (s *sweepStop) signal() os.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// run does what cmd.Run does and forwards signals.
func (s *sweepStop) run(cmd *exec.Cmd) error {
	s.mu.Lock()
	if s.first != nil {
		s.mu.Unlock()
		return errors.New("stopped before it began")
	}
	err := cmd.Start()
	if err == nil {
		s.running[cmd] = true
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	s.mu.Lock()
	delete(s.running, cmd)
	s.mu.Unlock()
	return err
}

// readState reads a run's state from its folder, and returns an error if the folder belongs to another run.
func (r *sweepRun) readState() error {
	if _, err := os.Stat(r.dir); err != nil {
		return nil //nolint:nilerr // it has not begun
	}
	config, err := readBounded(filepath.Join(r.dir, "config.yaml"), config.MaxBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return usage(fmt.Errorf("sweep: %w", err))
	}
	if string(config) != string(savedConfig(r.spec)) {
		return usage(
			fmt.Errorf("sweep: %s holds a run of another configuration; name another folder with --out, or remove it",
				r.dir))
	}
	found, err := runs.Read(r.dir)
	if err == nil {
		found.Settings, err = settingsOf(found.Config)
	}
	if err != nil {
		return usage(fmt.Errorf("sweep: %w", err))
	}
	s := found.Summary()
	r.Status, r.Step, r.EvalLoss, r.TrainLoss, r.Seconds = string(s.Status), s.Step, s.LastEval, s.Loss, s.Seconds
	r.Metric = s.LastMetric
	return nil
}

// sweepRun is one run of a sweep.
type sweepRun struct {
	Name      string   `json:"name"`   // name of the run's folder
	Values    []string `json:"values"` // key=value, as --set takes them
	Seed      uint64   `json:"seed"`
	Status    string   `json:"status"`
	Step      int      `json:"step"`
	EvalLoss  *float64 `json:"eval_loss,omitempty"`
	TrainLoss *float64 `json:"train_loss_smoothed,omitempty"`
	// Metric is the last value of training.metric_for_best_model where that is not eval_loss.
	Metric  *runs.Metric `json:"metric,omitempty"`
	Seconds *float64     `json:"seconds,omitempty"`
	Exit    int          `json:"exit_code,omitempty"`
	Problem string       `json:"problem,omitempty"`

	dir     string
	sets    []string // values of the whole command line
	spec    train.Spec
	assumed bool // see loaded.AssumedStorage
}

// dimension is a key with the values to try.
type dimension struct {
	key    string
	values []string
}

// runs returns the runs of the sweep. It checks every configuration before the first run begins.
func (o *sweepOptions) runs() ([]*sweepRun, error) {
	switch {
	case o.seeds < 1:
		return nil, usage(fmt.Errorf("sweep: --seeds %d: each combination is run at least once", o.seeds))
	case o.parallel < 1:
		return nil, usage(fmt.Errorf("sweep: --parallel %d: at least one run at a time", o.parallel))
	case o.sample < 0:
		return nil, usage(fmt.Errorf("sweep: --sample %d: must be 0, which is all, or more", o.sample))
	}
	if o.vram != "" {
		o.sets = append(o.sets, "vram="+o.vram)
		o.vram = ""
	}
	fixed, grid, err := dimensions(o.sets)
	if err != nil {
		return nil, err
	}
	if len(grid) == 0 && o.seeds == 1 {
		return nil, usage(errors.New("sweep: nothing to vary: give --set KEY=A,B with several values, or --seeds"))
	}
	combinations, err := o.combinations(grid)
	if err != nil {
		return nil, err
	}
	loaded, err := loadConfig(o.config, append(fixed, combinations[0]...))
	if err != nil {
		return nil, err
	}
	if o.out == "" {
		o.out = loaded.Spec.OutputDir
	}
	var all []*sweepRun
	names := map[string]bool{}
	for _, values := range combinations {
		for n := range o.seeds {
			r := &sweepRun{Values: values, sets: append(append([]string{}, fixed...), values...)}
			own, err := loadConfig(o.config, r.sets)
			if err != nil {
				return nil, fmt.Errorf("sweep: %s: %w", strings.Join(values, " "), err)
			}
			r.Seed = own.Spec.Seed + uint64(n)
			r.Name = runName(values, r.Seed, o.seeds > 1)
			if names[strings.ToLower(r.Name)] {
				return nil, usage(fmt.Errorf("sweep: two runs are named %s: a value is listed twice", r.Name))
			}
			names[strings.ToLower(r.Name)] = true
			r.dir = filepath.Join(o.out, r.Name)
			if o.seeds > 1 {
				r.sets = append(r.sets, "seed="+strconv.FormatUint(r.Seed, 10))
			}
			r.sets = append(r.sets, "output_dir="+r.dir)
			if own, err = loadConfig(o.config, r.sets); err != nil {
				return nil, fmt.Errorf("sweep: %s: %w", r.Name, err)
			}
			if own.Spec.Training.Resume != "" {
				return nil,
					usage(errors.New("sweep: training.resume: runs of a sweep resume by themselves; leave it out"))
			}
			r.spec, r.assumed = own.Spec, own.AssumedStorage
			all = append(all, r)
		}
	}
	return all, nil
}

// dimensions separates the values of --set: a key with one value is fixed for all runs, a key with several is a
// dimension of the grid.
func dimensions(sets []string) (fixed []string, grid []dimension, err error) {
	seen := map[string]bool{}
	for _, set := range sets {
		name, text, ok := strings.Cut(set, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return nil, nil, usage(fmt.Errorf("sweep: --set %s: write KEY=VALUE, or KEY=A,B to try several",
				words.ShellQuote(words.Shorten(set))))
		}
		if seen[name] {
			return nil, nil, usage(fmt.Errorf("sweep: --set %s is given twice; list the values with commas", name))
		}
		seen[name] = true
		values := splitValues(text)
		if len(values) < 2 {
			fixed = append(fixed, set)
			continue
		}
		if name == "output_dir" {
			return nil, nil,
				usage(errors.New(
					"sweep: --set output_dir: each run has a folder of its own; --out names the folder of them all"))
		}
		for _, v := range values {
			if v == "" {
				return nil, nil, usage(fmt.Errorf("sweep: --set %s: a value is missing between the commas",
					words.ShellQuote(words.Shorten(set))))
			}
		}
		grid = append(grid, dimension{name, values})
	}
	return fixed, grid, nil
}

// splitValues splits a text at commas outside of brackets and quotes.
func splitValues(text string) []string {
	var values []string
	depth, quote, from := 0, rune(0), 0
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{' || r == '(':
			depth++
		case r == ']' || r == '}' || r == ')':
			depth--
		case r == ',' && depth == 0:
			values = append(values, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(values, strings.TrimSpace(text[from:]))
}

// combinations returns all combinations of the grid, the last key changing fastest, or a random sample in that order.
func (o *sweepOptions) combinations(grid []dimension) ([][]string, error) {
	total := 1
	for _, d := range grid {
		if total *= len(d.values); total > 1<<20 {
			return nil, usage(errors.New("sweep: more than a million combinations; list fewer values"))
		}
	}
	var places []int
	if o.sample > 0 && o.sample < total {
		places = rand.New(rand.NewPCG(o.pick, 0)).Perm(total)[:o.sample]
		sort.Ints(places)
	} else {
		for i := range total {
			places = append(places, i)
		}
	}
	if n := len(places) * min(o.seeds, maxRuns+1); n > maxRuns { // the product of a huge number of seeds overflows
		return nil, usage(fmt.Errorf("sweep: %s with %s each are more than %d runs; list fewer values or seeds, "+
			"or give --sample", words.Counted(len(places), "combination"), words.Counted(o.seeds, "seed"), maxRuns))
	}
	var all [][]string
	for _, at := range places {
		values := make([]string, len(grid))
		for k := len(grid) - 1; k >= 0; k-- {
			d := grid[k]
			values[k] = d.key + "=" + d.values[at%len(d.values)]
			at /= len(d.values)
		}
		all = append(all, values)
	}
	return all, nil
}

// runName returns a folder name that every system accepts: forbidden characters are replaced, and a hash then keeps
// names distinct.
func runName(values []string, seed uint64, seeds bool) string {
	const most = 80
	var parts []string
	for _, v := range values {
		key, value, _ := strings.Cut(v, "=")
		parts = append(parts, key[strings.LastIndexByte(key, '.')+1:]+"="+value)
	}
	if seeds {
		parts = append(parts, "seed="+strconv.FormatUint(seed, 10))
	}
	whole := strings.Join(parts, "_")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("=_-.+", r) {
			return r
		}
		return '-'
	}, whole)
	name = strings.TrimRight(name, ".")
	if name == whole && len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(whole))
	return strings.TrimRight(name[:min(len(name), most)], ".") + "-" + hex.EncodeToString(sum[:4])
}

// sweepFile is the summary in the folder of a sweep.
const sweepFile = "sweep.json"

// sweepSummary is the result of a sweep.
type sweepSummary struct {
	Dir string `json:"dir"`
	// By is the training.metric_for_best_model of all runs, such as eval_loss; train_loss_smoothed if no run has
	// held-out rows.
	By     string       `json:"sorted_by"`
	Failed int          `json:"failed"`
	Groups []sweepGroup `json:"combinations"` // the best first
	Runs   []*sweepRun  `json:"runs"`         // in the order of the grid
}

// sweepGroup is a combination with the runs of all its seeds.
type sweepGroup struct {
	Values []string `json:"values"`
	Runs   []string `json:"runs"`
	Mean   *float64 `json:"mean,omitempty"` // mean of the finished runs
	// standard deviation over seeds, if at least two runs finished
	Spread *float64 `json:"standard_deviation,omitempty"`
	Least  *float64 `json:"min,omitempty"`
	Most   *float64 `json:"max,omitempty"`
}

// summarise sorts the combinations, the best first; those without a value come last.
func summarise(dir string, all []*sweepRun) sweepSummary {
	s := sweepSummary{Dir: dir, Runs: all}
	higher := false
	s.By, higher = sortedBy(all)
	for _, r := range all {
		if r.Status == string(runs.Failed) {
			s.Failed++
		}
	}
	byValues := map[string]int{}
	values := map[int][]float64{}
	for _, r := range all {
		name := strings.Join(r.Values, "\x00")
		i, ok := byValues[name]
		if !ok {
			i = len(s.Groups)
			byValues[name] = i
			s.Groups = append(s.Groups, sweepGroup{Values: r.Values})
		}
		s.Groups[i].Runs = append(s.Groups[i].Runs, r.Name)
		if v := r.value(s.By); v != nil && r.Status == string(runs.Finished) {
			values[i] = append(values[i], *v)
		}
	}
	for i := range s.Groups {
		s.Groups[i].measure(values[i])
	}
	sort.SliceStable(s.Groups, func(a, b int) bool {
		x, y := s.Groups[a].Mean, s.Groups[b].Mean
		if x == nil || y == nil {
			return x != nil
		}
		return *x != *y && (*x > *y) == higher
	})
	return s
}

// smoothedLoss is the number that runs without held-out rows are sorted by.
const smoothedLoss = "train_loss_smoothed"

// sortedBy returns the number by which runs are sorted, and whether higher values are better. Runs that disagree on
// training.metric_for_best_model are sorted by the loss.
func sortedBy(all []*sweepRun) (by string, higher bool) {
	by = smoothedLoss
	for _, r := range all {
		if r.EvalLoss != nil {
			by = train.EvalLoss
		}
	}
	measured := false
	key, objective := all[0].spec.Training.MetricForBestModel, all[0].spec.Training.Objective
	for _, r := range all {
		if r.spec.Training.MetricForBestModel != key {
			return by, false
		}
		measured = measured || r.Metric != nil
	}
	if key == train.EvalLoss || !measured {
		return by, false
	}
	return key, train.HigherIsBetter(objective, key)
}

// value returns the number of the run that a sweep is sorted by; nil = the run has none.
func (r *sweepRun) value(by string) *float64 {
	switch {
	case by == smoothedLoss:
		return r.TrainLoss
	case by == train.EvalLoss:
		return r.EvalLoss
	case r.Metric != nil:
		return &r.Metric.Value
	}
	return nil
}

// measure computes mean, range and sample standard deviation.
func (g *sweepGroup) measure(losses []float64) {
	if len(losses) == 0 {
		return
	}
	least, most, sum := losses[0], losses[0], 0.0
	for _, l := range losses {
		least, most, sum = math.Min(least, l), math.Max(most, l), sum+l
	}
	mean := sum / float64(len(losses))
	g.Mean, g.Least, g.Most = &mean, &least, &most
	if len(losses) > 1 {
		squares := 0.0
		for _, l := range losses {
			squares += (l - mean) * (l - mean)
		}
		spread := math.Sqrt(squares / float64(len(losses)-1))
		g.Spread = &spread
	}
}

func (s *sweepSummary) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(s.Dir, sweepFile), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", sweepFile, err)
	}
	return nil
}

// print writes the combinations as a table, and the runs that failed.
func (s *sweepSummary) print(out io.Writer) error {
	w := bufio.NewWriter(out)
	what := s.By
	switch s.By {
	case train.EvalLoss:
		what = "held-out loss"
	case smoothedLoss:
		what = "training loss (no run has held-out rows: dataset.val_split)"
	}
	fmt.Fprintf(w, "sorted by %s\n", what)
	for i, g := range s.Groups {
		loss := "none finished"
		if g.Mean != nil {
			loss = fmt.Sprintf("%.4f", *g.Mean)
			if g.Spread != nil {
				loss += fmt.Sprintf(" ± %.4f (%.4f to %.4f, %d seeds)", *g.Spread, *g.Least, *g.Most, len(g.Runs))
			}
		}
		fmt.Fprintf(w, "%3d  %s  %s\n", i+1, loss, safetext.OneLine(strings.Join(g.Values, " ")))
	}
	for _, r := range s.Runs {
		if r.Status != string(runs.Finished) {
			fmt.Fprintf(w, "%s  %s: %s\n", r.Status, r.Name, safetext.OneLine(r.Problem))
		}
	}
	fmt.Fprintf(w, "summary  %s\npage     trainer report %s\n", filepath.Join(s.Dir, sweepFile),
		words.ShellQuote(s.Dir))
	return w.Flush()
}

// runFolders returns the runs for folders on the command line: a run's folder stands for itself, a sweep's folder for
// its runs that have begun, any other folder for all runs below it. found marks runs that were searched for rather than
// named.
func runFolders(dirs []string) (all []string, found map[string]bool, err error) {
	found = map[string]bool{}
	add := func(dir string, looked bool) {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
			found[dir] = looked
		}
	}
	for _, dir := range dirs {
		dir = filename.ExpandHome(dir)
		names, err := sweepRuns(dir)
		if err != nil {
			return nil, nil, err
		}
		if names == nil && !runs.IsRun(dir) {
			names = runs.Find([]string{dir}, mostReported+1)
		}
		for _, one := range names {
			add(one, true)
		}
		if len(names) == 0 {
			add(dir, false)
		}
	}
	return all, found, nil
}

// sweepRuns returns the runs of a sweep's folder that have begun, or nil for any other folder.
func sweepRuns(dir string) ([]string, error) {
	path := filepath.Join(dir, sweepFile)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, nil //nolint:nilerr // no sweep's
	}
	text, err := readBounded(path, config.MaxBytes)
	if err != nil {
		return nil, err
	}
	var s struct {
		Runs []struct{ Name string }
	}
	if err := json.Unmarshal(text, &s); err != nil || len(text) > config.MaxBytes {
		return nil, fmt.Errorf("%s is not what trainer sweep writes", path)
	}
	all := []string{}
	for _, r := range s.Runs {
		if !filepath.IsLocal(r.Name) || r.Name != filepath.Base(r.Name) {
			return nil, fmt.Errorf("%s names %q, which is no folder beside it", path, words.Shorten(r.Name))
		}
		if one := filepath.Join(dir, r.Name); runs.IsRun(one) {
			all = append(all, one)
		}
	}
	return all, nil
}
