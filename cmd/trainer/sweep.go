package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/internal/safetext"
	"github.com/tierlora/tierlora/report/runs"
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

// maxRuns bounds a sweep.
const maxRuns = 1000

func newSweep(c *console) *cobra.Command {
	o := &sweepOptions{}
	cmd := &cobra.Command{
		Use:   "sweep FILE --set KEY=A,B,...",
		Short: "Train every combination of some values, and sort the runs by their held-out loss",
		Long: `Train every combination of the values that --set lists with commas, each in a folder of its own below --out, and print
them sorted by their loss on held-out rows. With --seeds each combination is run under so many seeds, whose mean and
spread are printed. --sample takes some of the combinations at random.

The same command again goes on: finished runs are not repeated, a stopped one resumes. The exit code is 1 where a run
failed. trainer report shows the folder.`,
		Example: `  trainer sweep run.yaml --set training.learning_rate=1e-4,2e-4 --set lora.r=8,16
  trainer sweep --config run.yaml --set training.learning_rate=1e-4,5e-4,1e-3 --seeds 3 --out runs/rates
  trainer sweep run.yaml --set lora.r=4,8,16,32 --set lora.dropout=0,0.05,0.1 --sample 6 --dry-run`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSweep(cmd.Context(), c, o) },
	}
	o.register(cmd)
	cmd.Flags().Lookup("set").Usage = "`KEY=VALUES`: with commas every value is tried, such as lora.r=8,16; may be repeated"
	pathVar(cmd, &o.out, "out", "", "`FOLDER` of the runs; else the configuration's output_dir")
	cmd.Flags().IntVar(&o.seeds, "seeds", 1, "runs of each combination, under seeds that follow the configuration's")
	cmd.Flags().IntVar(&o.parallel, "parallel", 1, "runs at the same time")
	cmd.Flags().IntVar(&o.sample, "sample", 0, "run so many combinations, chosen at random; 0 = all")
	cmd.Flags().Uint64Var(&o.pick, "sample-seed", 1, "seed of that choice")
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
		if err := r.look(); err != nil {
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

// train starts the runs that are not finished, some at a time, in their order.
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

// start trains a run in a process of its own, so that one that crashes takes no other with it.
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
	if lookErr := r.look(); lookErr != nil && err == nil {
		r.Problem = lookErr.Error()
	}
	if err != nil && r.Status == string(runs.Finished) { // a criterion that was missed, say
		r.Status = string(runs.Failed)
	}
	if err != nil && stop.signal() != nil {
		r.Status = string(runs.Stopped)
	}
	if err == nil && r.Status != string(runs.Finished) {
		r.Status, r.Problem = string(runs.Failed), "it ended, and its folder does not say that it finished"
	}
}

// lastLine is the end of what a run said.
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

// sweepStop hands a signal on to the runs that are on their way: they finish their step and save.
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
					_ = cmd.Process.Signal(sig) // one that has just ended needs none
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

// signal is the first that came, nil if none did.
func (s *sweepStop) signal() os.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// run is cmd.Run, which a signal reaches.
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

// look reads what there is of a run, and refuses the folder of another one.
func (r *sweepRun) look() error {
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
		return usage(fmt.Errorf("sweep: %s holds a run of another configuration; name another folder with --out, or remove it", r.dir))
	}
	found, err := runs.Read(r.dir)
	if err != nil {
		return usage(fmt.Errorf("sweep: %w", err))
	}
	s := found.Summary()
	r.Status, r.Step, r.EvalLoss, r.TrainLoss, r.Seconds = string(s.Status), s.Step, s.LastEval, s.Loss, s.Seconds
	return nil
}
