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
	"github.com/tierlora/tierlora/train/lrfind"
	"github.com/tierlora/tierlora/train/ranks"
)

// The exit codes of the program.
const (
	exitDone   = 0
	exitFailed = 1 // the run, an expectation or a check failed; or the device failed
	// exitUsage is for a bad command line or configuration: a word, flag, value or file name that cannot be right (see
	// TestUsage).
	exitUsage = 2
	// exitUnfit is for a machine that lacks something: a GPU, a driver, a model, data, or a fast path that
	// training.strict requires.
	exitUnfit      = 3
	exitDoesNotFit = 4   // the planned memory exceeds the limit
	exitLost       = 75  // for trainer launch only: another rank failed
	exitSkipped    = 77  // skipped, which is not a pass
	exitHangup     = 129 // SIGHUP, after saving a checkpoint
	exitInterrupt  = 130 // SIGINT, after saving a checkpoint
	exitTerminated = 143 // SIGTERM, after saving a checkpoint
)

// exitError is an error with an exit code. silent means that the message was printed already.
type exitError struct {
	code   int
	err    error
	silent bool
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage wraps an error of the command line or configuration; the program then exits with exitUsage.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

// exitCode returns the program's exit code for an error.
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

// asked lists errors of packages that mean a bad flag value, although only the model or the data show it.
var asked = []error{hub.ErrBadName, hub.ErrBadRevision, hub.ErrBadPattern, infer.ErrTooLong, infer.ErrNoField,
	source.ErrNoSplit, gradcheck.ErrNoLayer,
	lrfind.ErrNoLoss}
