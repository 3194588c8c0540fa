package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/ranks"
)

// stopSignal remembers which signal requested the stop.
type stopSignal struct {
	number atomic.Int32
	last   func(exitCode int) // called before a second signal ends the process; may be nil
	stop   chan struct{}
	say    atomic.Pointer[func(line string)]
}

// watch returns a channel that is closed by the first SIGINT, SIGTERM or SIGHUP. A second signal ends the process,
// except SIGHUP: a closed terminal sends that twice, once itself and once through its shell. Under nohup, SIGHUP stays
// ignored.
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
		(*s.say.Load())(
			fmt.Sprintf("%v: stopping; a step that has begun is finished and saved first; signal again to quit now",
				first))
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

// sayBy sets the function that reports a signal to the user.
func (s *stopSignal) sayBy(say func(line string)) { s.say.Store(&say) }

// unless runs work with a context that a signal cancels.
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

func (s *stopSignal) exitCode() int {
	switch syscall.Signal(s.number.Load()) {
	case syscall.SIGTERM, 0: // 0: another process of the run received the signal
		return exitTerminated
	case syscall.SIGHUP:
		return exitHangup
	}
	return exitInterrupt
}

// exit sets the signal's exit code on the error of a run that a signal ended before its first step.
func (s *stopSignal) exit(err error) error {
	if s.number.Load() == 0 || !errors.Is(err, context.Canceled) {
		return err
	}
	if !errors.As(err, new(*train.Stopped)) {
		err = &train.Stopped{Doing: "looking for the model"}
	}
	return &exitError{code: s.exitCode(), err: err}
}

// exitAs sets the signal's exit code on the error of a run of several processes that a signal ended: another process
// that received it may have ended first.
func (s *stopSignal) exitAs(err error) error {
	if s.number.Load() != 0 && errors.As(err, new(*ranks.LostError)) {
		return &exitError{code: s.exitCode(), err: err}
	}
	return s.exit(err)
}
