package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/journal"
	"github.com/tierlora/tierlora/train/ranks"
)

type trainOptions struct {
	configOptions
	resume  string
	workers int
	quiet   bool
	verbose bool
	tui     bool
	json    bool
}

func (o *trainOptions) register(cmd *cobra.Command, c *console) {
	o.configOptions.register(cmd)
	o.devicesFlag(cmd)
	o.strictFlag(cmd)
	pathVar(cmd, &o.resume, "resume", "",
		"resume from a checkpoint: auto (the newest) or a checkpoint `FOLDER`; short for --set training.resume=")
	workersVar(cmd, &o.workers)
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only warnings and the result")
	cmd.Flags().BoolVar(&o.tui, "tui", false, "terminal dashboard: plots of loss and memory above the log")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
	c.downloadFlag(cmd)
}

const verboseText = "print the data report and the plan in full (train.log always has them)"

func newTrain(c *console) *cobra.Command {
	o := &trainOptions{}
	cmd := &cobra.Command{
		Use:   "train FILE",
		Short: "Train an adapter, a head or a whole model",
		Long: `Train the adapter that a configuration describes. The output folder then holds the adapter in PEFT's format,
metrics.jsonl, the effective configuration (config.yaml) and the checkpoints.

--set wins over the environment (TRAINER_TRAINING_MAX_STEPS=10), which wins over the file.

Ctrl-C, SIGTERM or a closed terminal finishes the step, saves a checkpoint and prints how to resume. A second Ctrl-C or
SIGTERM quits at once.`,
		Example: `  trainer train cpu_stories_quick.yaml
  trainer train run.yaml --vram 8GiB --set training.max_steps=10
  trainer train --config run.yaml --resume auto`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTrain(cmd.Context(), c, o) },
	}
	o.register(cmd, c)
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, verboseText)
	return cmd
}

// training is one start of trainer train in this process, which may be one of several that train together.
type training struct {
	*trainOptions
	c        *console
	place    ranks.Place // this process's rank in the run
	messages *outlet     // below c.err: a slow or closed reader does not stop the run
	journal  *keeper
	memory   groupMemory
	stop     stopSignal
	screen   *tui // with --tui on a terminal; nil = none

	loaded config.Loaded
	spec   train.Spec // spec of the configuration, with the devices of this process
	env    train.Env
	joined bool // the other processes notice by themselves when this one ends
}

// runTrain trains. It reads and checks the configuration, joins the run's other processes and finds the base model
// before it allocates memory. It reports an error to the journal and to the other processes, and returns it.
func runTrain(ctx context.Context, c *console, o *trainOptions) (err error) {
	place, placeErr := ranks.FromEnv(os.Getenv)
	t := newTraining(c, o, place)
	defer t.journal.end(&err)
	if placeErr != nil {
		return usage(placeErr)
	}
	if err := errors.Join(t.memory.holds(0, 1), t.memory.holdsProcesses(place.LocalWorld)); err != nil {
		return err
	}
	defer func() { err = t.tellOthers(ctx, err) }()
	if err := t.configure(); err != nil {
		return err
	}
	if err := t.join(ctx); err != nil {
		return t.stop.exit(err)
	}
	defer func() { leave(t.env.Groups, err) }()
	if err := t.findBase(ctx); err != nil {
		return err
	}
	if err := t.show(); err != nil {
		return err
	}
	defer t.close()
	result, err := train.Start(ctx, t.spec, t.env)
	return t.finish(result, err)
}

// newTraining makes the console of a run. Messages never block the run, and go to its journal too.
func newTraining(c *console, o *trainOptions, place ranks.Place) *training {
	t := &training{trainOptions: o, c: c, place: place, joined: place.World == 1}
	if place.Rank > 0 { // rank 0 prints for all; an error here names the rank
		c.err = &prefixed{to: &lineWriter{w: c.err}, prefix: fmt.Sprintf("rank %d: ", place.Rank)}
	}
	t.messages = newOutlet(raw(c.err))
	c.err = safetext.NewMaskingWriter(t.messages)
	t.journal = keep(c, place)
	ignoreFileLimit()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // makes a closed pipe an error of the write
	t.memory = withinGroup("/", debug.SetMemoryLimit)
	return t
}

// tellOthers informs the processes that wait for this one that it cannot take part.
func (t *training) tellOthers(ctx context.Context, err error) error {
	if err == nil || t.joined {
		return err
	}
	return cannot(ctx, t.c, t.place, err)
}

// configure reads the configuration and returns an error for what this machine or its files do not allow.
func (t *training) configure() (err error) {
	if t.resume != "" {
		t.sets = append(t.sets, "--resume="+t.resume)
	}
	t.loaded, err = t.read()
	if t.place.Rank == 0 {
		t.c.notes(t.loaded)
	}
	if err != nil {
		return err
	}
	s := t.loaded.Spec
	if err := checkDevice(s); err != nil {
		return err
	}
	if err := checkCheckpoint(s, t.resume); err != nil {
		return err
	}
	if own := s.AdapterConfig(); own.InitFrom != "" {
		if err := plainFiles(own.InitFrom); err != nil {
			return usage(fmt.Errorf("%s: %w", own.Key("init_from"), err))
		}
	}
	if err := train.CheckTrackers(s); err != nil {
		return usage(err)
	}
	t.env = train.Env{Env: environment(t.c, t.workers)}
	t.stop.last = t.journal.killed
	t.env.Interrupted = t.stop.watch(func(line string) { t.c.say("%s", line) })
	t.spec, t.env.GPU, err = allot(s, t.place)
	return usage(err)
}

// join waits for the run's other processes, if there are any, and divides the CPUs among those of this host.
func (t *training) join(ctx context.Context) error {
	t.joined = true
	if t.place.World == 1 {
		return nil
	}
	err := t.stop.unless(ctx, func(ctx context.Context) (err error) {
		t.env.Groups, err = join(ctx, t.c, t.spec, t.place)
		return err
	})
	if err == nil && t.workers == 0 && t.place.LocalWorld > 1 {
		t.env.Workers = max(1, runtime.GOMAXPROCS(0)/t.place.LocalWorld)
	}
	return err
}

// findBase finds the base model. If the configuration does not say how its weights are stored, it uses the storage of
// the model's files.
func (t *training) findBase(ctx context.Context) error {
	note := ""
	err := t.stop.unless(ctx, func(ctx context.Context) (err error) {
		note, err = takeStorage(ctx, &t.loaded, t.env.Env)
		return err
	})
	if err != nil {
		return t.stop.exit(err)
	}
	if t.spec.Quantization = t.loaded.Spec.Quantization; note != "" && t.place.Rank == 0 {
		t.c.say("note: %s", note)
	}
	inProcess, _ := t.spec.RanksAsked() // its errors were reported earlier
	if err := t.memory.holds(tokenizerBytes(ctx, t.loaded.Spec.BaseModel, t.env.Env), inProcess); err != nil {
		return err
	}
	_, err = train.OpenReference(t.loaded.Spec.Expect.Reference, t.env.Env)
	return usage(err)
}

// show selects the terminal's output: plots, a bar, or with --quiet only warnings. The journal gets everything.
func (t *training) show() error {
	if t.quiet && t.tui {
		return usage(errors.New("--quiet shows no progress and --tui a picture of it: leave one out"))
	}
	s := t.loaded.Spec
	t.env.Config = savedConfig(s)
	if t.place.Rank > 0 {
		t.quiet, t.tui = true, false
	}
	if t.tui {
		if t.screen = newTUI(t.c.err, s.Training.LoggingSteps); t.screen == nil {
			t.c.say("note: --tui needs a terminal; progress is shown as lines")
		}
	}
	if !t.verbose {
		t.env.Details = t.journal.Line
	}
	switch {
	case t.screen != nil:
		t.env.Observers, t.env.Log = []train.Observer{t.screen}, t.journal.both(t.screen.log)
	case t.quiet:
		t.env.Reading, t.env.Quiet = nil, true
	default:
		progress := newProgress(t.c.err, s.Training.LoggingSteps)
		if !t.verbose {
			progress.intro = "log      " + filepath.Join(s.OutputDir, journal.LogFile) +
				" has data and plan in full; -v shows them here"
		}
		t.env.Observers, t.env.Log = []train.Observer{progress}, t.journal.both(progress.log)
	}
	t.journal.watch(&t.env, s)
	t.stop.sayBy(t.env.Log)
	return nil
}

// close restores the terminal.
func (t *training) close() {
	if t.screen != nil {
		t.screen.close()
	}
}

// finish prints the run's result and returns the error that decides the exit code.
func (t *training) finish(result train.Result, err error) error {
	if err != nil && (result.Steps == 0 || !errors.As(err, new(*train.Missed))) {
		return t.stop.exitAs(err)
	}
	t.messages.flush(outletWait)
	stopped := &exitError{code: t.stop.exitCode(), err: errStopped, silent: true}
	if t.place.Rank > 0 {
		if err == nil && result.Stopped {
			return stopped
		}
		return err
	}
	fmt.Fprint(t.journal, resultText(result))
	var written error
	if t.json {
		written = writeJSON(t.c.out, result)
	} else {
		written = printResult(t.c.out, result)
	}
	if result.Stopped {
		with := ""
		if t.place.World > 1 {
			with = ", on any number of devices,"
		}
		t.c.say("stopped after step %d of %d; resume%s with: %s", result.Steps, result.MaxSteps, with,
			t.resumeCommand(t.loaded.Spec))
		return stopped
	}
	if !t.json && !t.quiet && result.AdapterDir != "" {
		t.c.say("%s", nextSteps(result.AdapterDir, t.loaded.Spec.OutputDir, foldWidth(t.c.err)))
	}
	return errors.Join(err, written)
}

// nextSteps returns commands that use a run's adapter, for copying to a shell in this folder, wrapped at a width; 0 =
// not wrapped.
func nextSteps(adapterDir, outputDir string, width int) string {
	trained, run := "--adapter ", filepath.Clean(plainText(outputDir))
	if isModel(adapterDir) {
		trained = "--model "
	}
	trained += words.ShellQuote(plainText(adapterDir))
	ask := "generate " + trained + " --prompt TEXT"
	if p, err := dataset.FindPromptFormat(nil, adapterDir); err == nil && p != nil && p.Has(dataset.PromptChat) {
		ask = "chat " + trained
	}
	commands := []string{
		ask,
		"report " + words.ShellQuote(run) + " --out " + words.ShellQuote(run+".html"),
		"export --format gguf " + trained + " --out " + words.ShellQuote(run+".gguf"),
	}
	for i, command := range commands {
		commands[i] = strings.Repeat(" ", labelWidth-1) + "trainer " + command
		if width > 0 {
			commands[i] = wrapCommand(commands[i], width-1)
		}
	}
	return "next" + strings.Join(commands, "\n")[len("next"):]
}

// savedConfig returns the configuration as a run's folder keeps it: without secrets, and without the options of this
// start, so that every start of a run saves the same file.
func savedConfig(s train.Spec) []byte {
	s.Training.Resume, s.Tracking = "", s.Tracking.Saved()
	return config.Render(s)
}

// errStopped ends a process whose run was stopped by a signal and has reported it.
var errStopped = errors.New("stopped")

// resumeCommand returns the command line that resumes a stopped run, for copying to a shell in this folder.
func (o *trainOptions) resumeCommand(s train.Spec) string {
	command := []string{os.Args[0], "train", "--config", filepath.Join(s.OutputDir, train.ConfigFile),
		"--resume", "auto"}
	if o.workers > 0 {
		command = append(command, "--workers", strconv.Itoa(o.workers))
	}
	for i, w := range command {
		command[i] = words.ShellQuote(w)
	}
	return strings.Join(command, " ")
}

// checkCheckpoint returns an error that lists the checkpoints if the requested one does not exist. flag is the value of
// --resume.
func checkCheckpoint(s train.Spec, flag string) error {
	dir := s.Training.Resume
	if dir == "" || dir == "auto" {
		return nil
	}
	said := "training.resume: " + dir
	if flag != "" {
		said = "--resume " + words.ShellQuote(dir)
	}
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		if err = plainFiles(dir); err != nil {
			return usage(fmt.Errorf("%s: %w", said, err))
		}
		return nil
	}
	what := "there is no such folder"
	if err == nil {
		what = "this is a file, expected a checkpoint folder"
	}
	steps, err := checkpoint.Steps(s.OutputDir)
	if err != nil || len(steps) == 0 {
		return usage(fmt.Errorf("%s: %s, and output_dir %s holds no checkpoint; leave it out to begin a new run", said,
			what, s.OutputDir))
	}
	var there []string
	for _, step := range steps {
		there = append(there, filepath.Join(s.OutputDir, checkpoint.Name(step)))
	}
	return usage(fmt.Errorf("%s: %s; choose from %s, or auto for the newest", said, what, strings.Join(there, ", ")))
}

// printResult prints a run's result. The result itself is the adapter, so a reader that is slow or has closed the pipe
// neither blocks the program nor makes it fail.
func printResult(w io.Writer, r train.Result) error {
	out := newOutlet(behind(w))
	io.WriteString(out, wrapLines(resultText(r), foldWidth(w))) //nolint:errcheck // an outlet never fails here
	out.flush(outletWait)
	if err := out.failed(); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// resultText summarises a run.
func resultText(r train.Result) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "steps    %d of %d", r.Steps, r.MaxSteps)
	if r.Resumed > 0 {
		fmt.Fprintf(out, ", resumed after step %d", r.Resumed)
	}
	fmt.Fprintln(out)
	if r.EndedEarly != "" {
		fmt.Fprintf(out, "ended    by %s\n", r.EndedEarly)
	}
	if r.ResultStep > 0 {
		fmt.Fprintf(out, "result   the weights of step %d, the best\n", r.ResultStep)
	}
	if n := len(r.Losses); n > 0 {
		fmt.Fprintf(out, "loss     %.4f first step, %.4f last step, %.4f mean of the run\n", r.Losses[0],
			r.Losses[n-1], r.MeanLoss)
	}
	if r.EvalLoss != nil {
		fmt.Fprintf(out, "eval     %.4f", *r.EvalLoss)
		if r.EvalBefore != nil {
			fmt.Fprintf(out, ", %.4f before the first step", *r.EvalBefore)
		}
		fmt.Fprintln(out)
	}
	if r.Duration > 0 {
		fmt.Fprintf(out, "time     %.1f s, %s tokens\n", r.Duration.Seconds(), words.Count(r.Tokens))
	}
	if r.StepMs != nil {
		fmt.Fprintf(out, "step     %.2f ms median%s\n", r.StepMs.Median, dataTime(r.DataMs))
	}
	fmt.Fprintf(out, "memory   %s planned\n", session.FormatBytes(r.HeldBytes))
	for _, j := range r.Expect {
		mark := "met"
		if !j.Met {
			mark = "MISSED"
		}
		fmt.Fprintf(out, "expect   %s %s: %s, %s\n", j.Criterion, j.Want, j.Got, mark)
	}
	if r.AdapterDir != "" {
		what := "adapter"
		if isModel(r.AdapterDir) {
			what = "model  "
		}
		fmt.Fprintf(out, "%s  %s\n", what, plainText(r.AdapterDir))
	}
	if r.Checkpoint != "" {
		fmt.Fprintf(out, "newest checkpoint  %s\n", plainText(r.Checkpoint))
	}
	return out.String()
}

// dataTime formats the median time in which the host makes a step's batches; it is empty without a measurement.
func dataTime(ms *float64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf(", data loading %.2f ms", *ms)
}
