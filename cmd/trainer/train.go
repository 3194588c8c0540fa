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
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/ranks"
)

type trainOptions struct {
	configOptions
	resume  string
	workers int
	quiet   bool
	tui     bool
	json    bool
}

func (o *trainOptions) register(cmd *cobra.Command, c *console) {
	o.configOptions.register(cmd)
	o.devicesFlag(cmd)
	o.strictFlag(cmd)
	pathVar(cmd, &o.resume, "resume", "", "resume from a checkpoint: auto (the newest) or a checkpoint `FOLDER`; short for --set training.resume=")
	workersVar(cmd, &o.workers)
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing of plan, data and progress, but warnings and the result")
	cmd.Flags().BoolVar(&o.tui, "tui", false, "show loss and memory as plots on the whole terminal, with the log below")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
	c.downloadFlag(cmd)
}

func newTrain(c *console) *cobra.Command {
	o := &trainOptions{}
	cmd := &cobra.Command{
		Use:   "train FILE",
		Short: "Train the adapter that a configuration describes",
		Long: `Train the adapter that a configuration describes. The output folder then holds the adapter in PEFT's format,
metrics.jsonl, the effective configuration (config.yaml) and the checkpoints.

A value is taken from --set, else from the environment (TRAINER_TRAINING_MAX_STEPS=10), else from the file.

Ctrl-C, SIGTERM or a closed terminal finishes the step, saves a checkpoint and says how to resume; a second Ctrl-C
or SIGTERM stops at once.`,
		Example: `  trainer train cpu_stories_quick.yaml
  trainer train run.yaml --vram 8GiB --set training.max_steps=10
  trainer train --config run.yaml --resume auto`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTrain(cmd.Context(), c, o) },
	}
	o.register(cmd, c)
	return cmd
}

func runTrain(ctx context.Context, c *console, o *trainOptions) (err error) {
	place, perr := ranks.FromEnv(os.Getenv)
	if place.Rank > 0 { // rank 0 speaks for all; what goes wrong here is told with the rank
		c.err = &prefixed{to: &lineWriter{w: c.err}, prefix: fmt.Sprintf("rank %d: ", place.Rank)}
	}
	messages := newOutlet(raw(c.err))
	c.err = safetext.NewMaskingWriter(messages)
	k := keep(c, place)
	defer k.end(&err)
	ignoreFileLimit()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a closed pipe is an error of the write then, not the end
	if perr != nil {
		return usage(perr)
	}
	group := withinGroup("/", debug.SetMemoryLimit)
	if err := errors.Join(group.holds(0, 1), group.holdsProcesses(place.LocalWorld)); err != nil {
		return err
	}
	told := place.World == 1
	defer func() {
		if err != nil && !told {
			err = cannot(ctx, c, place, err)
		}
	}()
	if o.resume != "" {
		o.sets = append(o.sets, "--resume="+o.resume)
	}
	loaded, err := o.read()
	if place.Rank == 0 {
		c.notes(loaded)
	}
	if err != nil {
		return err
	}
	if err := checkDevice(loaded.Spec); err != nil {
		return err
	}
	if err := checkCheckpoint(loaded.Spec, o.resume); err != nil {
		return err
	}
	if dir := loaded.Spec.LoRA.InitFrom; dir != "" {
		if err := plainFiles(dir); err != nil {
			return usage(fmt.Errorf("lora.init_from: %w", err))
		}
	}
	if err := train.CheckTrackers(loaded.Spec); err != nil {
		return usage(err)
	}
	env := train.Env{Env: environment(c, o.workers)}
	var stopped stopSignal
	stopped.last = k.killed
	env.Interrupted = stopped.watch(func(line string) { c.say("%s", line) })
	spec := loaded.Spec
	if spec, env.GPU, err = allot(spec, place); err != nil {
		return usage(err)
	}
	if told = true; place.World > 1 {
		if err := stopped.unless(ctx, func(ctx context.Context) (err error) { env.Groups, err = join(ctx, c, spec, place); return err }); err != nil {
			return stopped.exit(err)
		}
		defer func() { leave(env.Groups, err) }()
		if o.workers == 0 && place.LocalWorld > 1 {
			env.Workers = max(1, runtime.GOMAXPROCS(0)/place.LocalWorld)
		}
	}
	note := ""
	if err := stopped.unless(ctx, func(ctx context.Context) (err error) { note, err = takeStorage(ctx, &loaded, env.Env); return err }); err != nil {
		return stopped.exit(err)
	}
	if spec.Quantization = loaded.Spec.Quantization; note != "" && place.Rank == 0 {
		c.say("note: %s", note)
	}
	inProcess, _ := spec.RanksAsked() // what is wrong with it was said
	if err := group.holds(tokenizerBytes(ctx, loaded.Spec.BaseModel, env.Env), inProcess); err != nil {
		return err
	}
	if _, err := train.OpenReference(loaded.Spec.Expect.Reference, env.Env); err != nil {
		return usage(err)
	}
	env.Config = savedConfig(loaded.Spec)
	if o.quiet && o.tui {
		return usage(errors.New("--quiet shows no progress and --tui a picture of it: leave one out"))
	}
	if place.Rank > 0 {
		o.quiet, o.tui = true, false
	}
	if screen := newTUI(c.err, loaded.Spec.Training.LoggingSteps); o.tui && screen != nil {
		env.Observers, env.Log = []train.Observer{screen}, k.both(screen.log)
		defer screen.close()
	} else if !o.quiet {
		if o.tui {
			c.say("note: --tui needs a terminal; progress is shown as lines")
		}
		progress := newProgress(c.err, loaded.Spec.Training.LoggingSteps)
		env.Observers, env.Log = []train.Observer{progress}, k.both(progress.log)
	} else {
		env.Reading, env.Quiet = nil, true
	}
	k.watch(&env, loaded.Spec)
	stopped.sayBy(env.Log)
	result, err := train.Start(ctx, spec, env)
	if err != nil && (result.Steps == 0 || !errors.As(err, new(*train.Missed))) {
		return stopped.exitAs(err)
	}
	messages.flush(outletWait)
	if place.Rank > 0 {
		if err == nil && result.Stopped {
			err = &exitError{code: stopped.exitCode(), err: errStopped, silent: true}
		}
		return err
	}
	fmt.Fprint(k, resultText(result))
	var written error
	if o.json {
		written = writeJSON(c.out, result)
	} else {
		written = printResult(c.out, result)
	}
	if result.Stopped {
		with := ""
		if place.World > 1 {
			with = ", on any number of devices,"
		}
		c.say("stopped after step %d of %d; resume%s with: %s", result.Steps, result.MaxSteps, with, o.resumeCommand(loaded.Spec))
		return &exitError{code: stopped.exitCode(), err: errStopped, silent: true}
	}
	return errors.Join(err, written)
}

// savedConfig is the configuration as a run's folder keeps it: without how this start began, the run is the same, and
// without secrets.
func savedConfig(s train.Spec) []byte {
	s.Training.Resume, s.Tracking = "", s.Tracking.Saved()
	return config.Render(s)
}

// errStopped ends a process whose run a signal has ended, and which has said so.
var errStopped = errors.New("stopped")

// resumeCommand is the command line that resumes a stopped run, to be copied to a shell in this folder.
func (o *trainOptions) resumeCommand(s train.Spec) string {
	command := []string{os.Args[0], "train", "--config", filepath.Join(s.OutputDir, train.ConfigFile), "--resume", "auto"}
	if o.workers > 0 {
		command = append(command, "--workers", strconv.Itoa(o.workers))
	}
	for i, w := range command {
		command[i] = words.ShellQuote(w)
	}
	return strings.Join(command, " ")
}

// checkCheckpoint refuses a checkpoint folder that is not there, and says which are. flag is what --resume was given.
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
		return usage(fmt.Errorf("%s: %s, and output_dir %s holds no checkpoint; leave it out to begin a new run", said, what, s.OutputDir))
	}
	var there []string
	for _, step := range steps {
		there = append(there, filepath.Join(s.OutputDir, checkpoint.Name(step)))
	}
	return usage(fmt.Errorf("%s: %s; choose from %s, or auto for the newest", said, what, strings.Join(there, ", ")))
}

// printResult prints what came of a run. Its result is the adapter, so that who does not read this, or has closed the
// pipe, neither holds the program up nor makes it fail.
func printResult(w io.Writer, r train.Result) error {
	out := newOutlet(behind(w))
	io.WriteString(out, resultText(r)) //nolint:errcheck // an outlet never fails here
	out.flush(outletWait)
	if err := out.failed(); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// resultText sums a run up.
func resultText(r train.Result) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "steps    %d of %d", r.Steps, r.MaxSteps)
	if r.Resumed > 0 {
		fmt.Fprintf(out, ", resumed after step %d", r.Resumed)
	}
	fmt.Fprintln(out)
	if n := len(r.Losses); n > 0 {
		fmt.Fprintf(out, "loss     %.4f first step, %.4f last step, %.4f mean of the run\n", r.Losses[0], r.Losses[n-1], r.MeanLoss)
	}
	if r.EvalLoss != nil {
		fmt.Fprintf(out, "eval     %.4f", *r.EvalLoss)
		if r.EvalBefore != nil {
			fmt.Fprintf(out, ", %.4f before the first step", *r.EvalBefore)
		}
		fmt.Fprintln(out)
	}
	if r.Duration > 0 {
		fmt.Fprintf(out, "time     %.1f s, %d tokens of the whole run\n", r.Duration.Seconds(), r.Tokens)
	}
	if r.StepMs != nil {
		fmt.Fprintf(out, "step     %.2f ms in the median%s\n", r.StepMs.Median, dataTime(r.DataMs))
	}
	fmt.Fprintf(out, "memory   %s held by the plan\n", session.FormatBytes(r.HeldBytes))
	for _, j := range r.Expect {
		mark := "met"
		if !j.Met {
			mark = "MISSED"
		}
		fmt.Fprintf(out, "expect   %s %s: %s, %s\n", j.Criterion, j.Want, j.Got, mark)
	}
	if r.AdapterDir != "" {
		fmt.Fprintf(out, "adapter  %s\n", plainText(r.AdapterDir))
	}
	if r.Checkpoint != "" {
		fmt.Fprintf(out, "newest checkpoint  %s\n", plainText(r.Checkpoint))
	}
	return out.String()
}

// stopSignal remembers which signal asked for the stop.
type stopSignal struct {
	number atomic.Int32
	last   func(exitCode int) // called before a second signal ends the process; nil = nothing is
	stop   chan struct{}
	say    atomic.Pointer[func(line string)]
}

// sayBy sets what tells the user of a signal.
func (s *stopSignal) sayBy(say func(line string)) { s.say.Store(&say) }

// unless does work that a signal ends.
func (s *stopSignal) unless(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	rescue.Go(func() {
		select {
		case <-s.stop:
			cancel()
		case <-done:
		}
	})
	return work(ctx)
}

// exit gives the error of a run that a signal ended before its first step the signal's exit code.
func (s *stopSignal) exit(err error) error {
	if s.number.Load() == 0 || !errors.Is(err, context.Canceled) {
		return err
	}
	if !errors.As(err, new(*train.Stopped)) {
		err = &train.Stopped{Doing: "looking for the model"}
	}
	return &exitError{code: s.exitCode(), err: err}
}

// watch returns a channel that closes with the first SIGINT, SIGTERM or SIGHUP. Another one ends the process, but for
// SIGHUP: a closed terminal sends it twice, itself and by its shell. Under nohup SIGHUP stays ignored.
func (s *stopSignal) watch(say func(line string)) <-chan struct{} {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	s.stop = make(chan struct{})
	s.sayBy(say)
	rescue.Go(func() {
		first := <-signals
		s.set(first)
		close(s.stop)
		(*s.say.Load())(fmt.Sprintf("%v: stopping; a step that has begun is finished and saved first; once more stops at once", first))
		for next := range signals {
			if next != syscall.SIGHUP {
				s.set(next)
				if s.last != nil {
					s.last(s.exitCode())
				}
				os.Exit(s.exitCode())
			}
		}
	})
	return s.stop
}

func (s *stopSignal) set(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		s.number.Store(int32(number))
	}
}

func (s *stopSignal) exitCode() int {
	switch syscall.Signal(s.number.Load()) {
	case syscall.SIGTERM, 0: // 0: another process of the run had the signal
		return exitTerminated
	case syscall.SIGHUP:
		return exitHangup
	}
	return exitInterrupt
}

// dataTime is what the end of a run says of the host's time for batches; nothing where there were none.
func dataTime(ms *float64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf(", the host made its batches in %.2f ms", *ms)
}
