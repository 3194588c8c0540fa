package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/source"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/gradcheck"
	"github.com/tierlora/tierlora/train/ranks"
)

// The exit codes of the program.
const (
	exitDone   = 0
	exitFailed = 1 // the run, a criterion or a check failed; the device failed
	// bad command line or configuration: a word, flag, value or file named that can't be right; TestUsage
	exitUsage = 2
	// the machine lacks something: GPU, driver, model, data, a fast path that training.strict asks for
	exitUnfit      = 3
	exitDoesNotFit = 4   // refused by the plan
	exitLost       = 75  // said to trainer launch alone: another rank has failed
	exitSkipped    = 77  // a skip is not a pass
	exitHangup     = 129 // SIGHUP, after a checkpoint
	exitInterrupt  = 130 // SIGINT, after a checkpoint
	exitTerminated = 143 // SIGTERM, after a checkpoint
)

// exitError is an error that decides the exit code. With silent set, everything was said already.
type exitError struct {
	code   int
	err    error
	silent bool
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as one of the command line or configuration.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

// exitCode is the program's exit code for an error.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, new(*rescue.Defect)):
		return exitFailed
	case errors.As(err, &exit):
		return exit.code
	case os.Getenv(launchedVariable) != "" && errors.As(err, new(*ranks.LostError)):
		return exitLost
	case errors.Is(err, session.ErrNoDevice), errors.Is(err, train.ErrSlowPath), errors.Is(err, dataset.ErrMissing):
		return exitUnfit
	case errors.Is(err, session.ErrDoesNotFit):
		return exitDoesNotFit
	case errors.Is(err, context.Canceled):
		return exitInterrupt
	case slices.ContainsFunc(asked, func(a error) bool { return errors.Is(err, a) }):
		return exitUsage
	}
	return exitFailed
}

// asked are what packages say of a flag's value that only the model or the data show to be wrong.
var asked = []error{hub.ErrBadName, hub.ErrBadRevision, hub.ErrBadPattern, infer.ErrTooLong, infer.ErrNoField,
	source.ErrNoSplit, gradcheck.ErrNoLayer}
