package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/train"
)

type trainOptions struct {
	configOptions
	resume  string
	workers int
	quiet   bool
	json    bool
}

func (o *trainOptions) register(cmd *cobra.Command) {
	o.configOptions.register(cmd)
	cmd.Flags().StringVar(&o.resume, "resume", "", "go on from a checkpoint: auto (the newest) or a checkpoint `FOLDER`; short for --set training.resume=")
	cmd.Flags().IntVar(&o.workers, "workers", 0, "CPU threads; 0 = one for each core")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as JSON")
}

func newTrain(c *console) *cobra.Command {
	o := &trainOptions{}
	cmd := &cobra.Command{
		Use:   "train --config FILE",
		Short: "Train the adapter that a configuration describes",
		Long: `Train the adapter that a configuration describes. The output folder then holds the adapter in PEFT's format,
metrics.jsonl, the effective configuration (config.yaml) and the checkpoints.

A value is taken from --set, else from the environment (TRAINER_TRAINING_MAX_STEPS=10), else from the file.

Ctrl-C finishes the step, saves a checkpoint and says how to go on; a second one stops at once.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTrain(cmd.Context(), c, o) },
	}
	o.register(cmd)
	return cmd
}

func runTrain(ctx context.Context, c *console, o *trainOptions) error {
	if o.workers < 0 {
		return usage(fmt.Errorf("--workers %d: must be 0 or more", o.workers))
	}
	if o.resume != "" {
		o.sets = append(o.sets, "training.resume="+o.resume)
	}
	config, err := o.load()
	if err != nil {
		return err
	}
	if err := checkDevice(config.Spec); err != nil {
		return err
	}
	for _, note := range config.Notes {
		c.say("%s", note)
	}
	env := environment(c, o.workers)
	if err := checkModel(ctx, config.Spec.BaseModel, env); err != nil {
		return err
	}
	env.Config = Render(config.Spec)
	var stopped stopSignal
	env.Interrupted = stopped.watch(c)
	if !o.quiet {
		progress := newProgress(c.err, config.Spec.Training.LoggingSteps)
		env.Progress, env.Log = progress, progress.log
	}
	result, err := train.Start(ctx, config.Spec, env)
	if err != nil && (result.Steps == 0 || !errors.As(err, new(*train.Missed))) {
		return err
	}
	if o.json {
		if err := writeJSON(c.out, result); err != nil {
			return err
		}
	} else {
		printResult(c, result)
	}
	if result.Stopped {
		c.say("stopped after step %d of %d; go on with: trainer train --config %s --resume auto", result.Steps, result.MaxSteps, filepath.Join(config.Spec.OutputDir, train.ConfigFile))
		return &exitError{code: stopped.exitCode(), err: errors.New("stopped"), silent: true}
	}
	return err
}

func printResult(c *console, r train.Result) {
	fmt.Fprintf(c.out, "steps    %d of %d", r.Steps, r.MaxSteps)
	if r.Resumed > 0 {
		fmt.Fprintf(c.out, ", resumed after step %d", r.Resumed)
	}
	fmt.Fprintln(c.out)
	if n := len(r.Losses); n > 0 {
		fmt.Fprintf(c.out, "loss     %.4f at the first step, %.4f at the last\n", r.Losses[0], r.Losses[n-1])
	}
	if r.EvalLoss != nil {
		fmt.Fprintf(c.out, "eval     %.4f\n", *r.EvalLoss)
	}
	if r.Duration > 0 {
		fmt.Fprintf(c.out, "time     %.1f s, %d tokens of the whole run\n", r.Duration.Seconds(), r.Tokens)
	}
	if r.StepMs != nil {
		fmt.Fprintf(c.out, "step     %.2f ms in the median\n", r.StepMs.Median)
	}
	fmt.Fprintf(c.out, "memory   %s held by the plan\n", train.FormatBytes(r.HeldBytes))
	for _, j := range r.Expect {
		mark := "met"
		if !j.Met {
			mark = "MISSED"
		}
		fmt.Fprintf(c.out, "expect   %s %s: %s, %s\n", j.Criterion, j.Want, j.Got, mark)
	}
	if r.AdapterDir != "" {
		fmt.Fprintf(c.out, "adapter  %s\n", r.AdapterDir)
	}
	if r.Checkpoint != "" {
		fmt.Fprintf(c.out, "newest checkpoint  %s\n", r.Checkpoint)
	}
}

// stopSignal remembers which signal asked for the stop.
type stopSignal struct{ number atomic.Int32 }

// watch returns a channel that closes with the first SIGINT or SIGTERM. The second one ends the process.
func (s *stopSignal) watch(c *console) <-chan struct{} {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	stop := make(chan struct{})
	go func() {
		first := <-signals
		s.set(first)
		c.say("\n%v: the step is finished and saved; once more stops at once", first)
		close(stop)
		s.set(<-signals)
		os.Exit(s.exitCode())
	}()
	return stop
}

func (s *stopSignal) set(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		s.number.Store(int32(number))
	}
}

func (s *stopSignal) exitCode() int {
	if s.number.Load() == int32(syscall.SIGTERM) {
		return exitTerminated
	}
	return exitInterrupt
}
