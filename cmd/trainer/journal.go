package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/filename"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/hardware"
	"github.com/tierlora/tierlora/train/journal"
	"github.com/tierlora/tierlora/train/ranks"
)

// keeper writes a run's train.log and status.json.
type keeper struct {
	*journal.Journal
	c    *console
	dir  string // the run's output folder; "" = not known yet
	rank int

	sampler *hardware.Sampler // nil = hardware is not sampled
}

// cardLoads reads the load of the machine's GPUs.
func cardLoads() []hardware.Card {
	var all []hardware.Card
	for _, l := range graph.ReadLoads() {
		all = append(all, hardware.Card(l))
	}
	return all
}

// keep makes the journal of the run that this process is about to train.
func keep(c *console, place ranks.Place) *keeper {
	program := strings.TrimSpace("tierlora " + version() + " " + built.Commit)
	k := &keeper{c: c, rank: place.Rank, Journal: journal.New(program)}
	if place.Rank > 0 {
		k.Journal = journal.NewRank(program, place.Rank)
	}
	c.also = k
	ended := k.ended
	unreturned.Store(&ended)
	return k
}

// watch connects the journal to a run.
func (k *keeper) watch(env *train.Env, s train.Spec) {
	k.dir = s.OutputDir
	if k.rank > 0 {
		return
	}
	env.Taken = func(dir string) {
		for _, note := range k.Open(dir) {
			env.Logf("note: %s", note)
		}
		sampler, err := hardware.Start(dir, cardLoads)
		if err != nil {
			env.Logf("note: no readings of the machine are kept: %v", err)
		}
		k.sampler = sampler
	}
	env.Failed = k.Rank
	env.Observers = append(env.Observers, newProgress(k, s.Training.LoggingSteps), &journalObserver{k: k})
}

// both returns a function that passes a line to say and to the journal.
func (k *keeper) both(say func(line string)) func(line string) {
	return func(line string) {
		k.Line(line)
		say(line)
	}
}

// unreturned is called with the error of a background goroutine before that error ends the process.
var unreturned atomic.Pointer[func(error)]

// end records how the process ended. It must be deferred; it recovers a panic as the error.
func (k *keeper) end(err *error) {
	if p := recover(); p != nil {
		*err = rescue.Error(p)
	}
	k.ended(*err)
}

// ended records how a run ended.
func (k *keeper) ended(err error) {
	k.sampler.Stop()
	err = graph.Diagnose(err)
	if defect := (*rescue.Defect)(nil); errors.As(err, &defect) {
		k.Line(string(defect.Stack))
	}
	state, code, exit, lost := stateOf(err), exitCode(err), (*exitError)(nil), (*ranks.LostError)(nil)
	switch {
	case errors.Is(err, errStopped):
		err = nil // the exit code reports it
	case err != nil && !(errors.As(err, &exit) && exit.silent):
		k.Line("trainer: " + shortened(err.Error()) + filename.Nearest(err))
	}
	if errors.As(err, &lost) {
		k.Rank(lost.Rank, lost)
	} else if k.rank > 0 && state == journal.Failed && k.dir != "" {
		if _, serr := os.Stat(filepath.Join(k.dir, journal.StatusFile)); serr == nil { // written by rank 0
			k.Open(k.dir)
		}
	}
	k.End(state, code, err)
}

// stateOf returns the final state of a run that returned err.
func stateOf(err error) journal.State {
	exit := (*exitError)(nil)
	switch {
	case err == nil:
		return journal.Finished
	case errors.As(err, new(*train.Missed)):
		return journal.Missed
	case errors.As(err, new(*train.Stopped)), errors.Is(err, context.Canceled):
		return journal.Interrupted
	case errors.As(err, &exit) && slices.Contains([]int{exitInterrupt, exitTerminated, exitHangup}, exit.code):
		return journal.Interrupted
	}
	return journal.Failed
}

// killed records that a second signal ends the process at once. It waits at most a second for the disk.
func (k *keeper) killed(exitCode int) {
	atMost(time.Second, func() {
		k.End(journal.Interrupted, exitCode, errors.New("a second signal ended the process at once"))
	})
}

// atMost runs work on another goroutine and waits for it for at most the given time.
func atMost(most time.Duration, work func()) {
	done := make(chan struct{})
	rescue.Go(func() {
		defer close(done)
		work()
	})
	select {
	case <-done:
	case <-time.After(most):
	}
}

// journalObserver records a run's progress.
type journalObserver struct {
	train.Silent
	k     *keeper
	total int
}

func (o *journalObserver) Start(r train.RunInfo) error {
	o.total = r.Total
	o.k.At(r.Done, r.Total)
	return nil
}

func (o *journalObserver) Step(s train.StepInfo) error {
	o.k.At(s.Step, o.total)
	return nil
}

func (o *journalObserver) Save(s train.SaveInfo) error {
	o.k.Saved(filepath.Base(s.Path))
	return nil
}
