// Package session opens a base model on a machine: it finds and reads the checkpoint, builds the network, chooses a
// layout that fits in memory, allocates the memory, loads the weights and binds the plans. Training, evaluation,
// generation, merging and benchmarks all begin here.
package session

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/nn"
)

// ErrDoesNotFit is wrapped by the error of a plan that needs more than the available memory.
var ErrDoesNotFit = errors.New("the run does not fit")

// ErrNoDevice is wrapped by the error of a run whose device this program or machine does not have.
var ErrNoDevice = graph.ErrNoDevice

// Env is what a session takes from the program around it. The zero value works: no embedded files, all cores, silent.
type Env struct {
	Version string                           // version of the program, for the run's manifest
	Commit  string                           // commit that the program was built from, for the manifest; "" = not known
	Dirty   bool                             // the program was built from files that differ from the commit
	Workers int                              // CPU threads; 0 = one for each core
	GPU     int                              // index of the GPU that "cuda" and "auto" open
	Model   func(name string) (fs.FS, error) // returns the folder of an embedded model; nil = there are none
	// Returns a file system whose file `name` is an embedded data set or reference curve; nil = there are none.
	Data func(name string) (fs.FS, error)
	Hub  hub.Options // where "org/name" is searched
	// WithoutWeights allows a model's folder to have only config.json and a tokenizer, which is enough to plan.
	WithoutWeights bool
	// StandIn reads numbers in place of missing weights, to time the steps of such a model; nil = it cannot be loaded.
	StandIn nn.Reader
	Log     func(line string)      // receives one line for the user; nil = lines are dropped
	Quiet   bool                   // only warnings are logged
	Reading func(dataset.Progress) // receives the progress of reading a data file; nil = no call
}

// Newsf logs a line about progress, unless Quiet is set.
func (e Env) Newsf(format string, args ...any) {
	if !e.Quiet {
		e.Logf(format, args...)
	}
}

// Logf logs a line for the user.
func (e Env) Logf(format string, args ...any) {
	if e.Log != nil {
		e.Log(fmt.Sprintf(format, args...))
	}
}
