// Package session opens a base model on a machine: it finds and reads the checkpoint, builds the network, chooses a
// layout that fits in memory, takes the memory, loads the weights and binds the plans. Training, evaluation,
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

// ErrDoesNotFit is in the error of a plan that needs more memory than there is.
var ErrDoesNotFit = errors.New("the run does not fit")

// ErrNoDevice is in the error of a run that asks for a device this program or machine does not have.
var ErrNoDevice = graph.ErrNoDevice

// Env is what a session takes from the program around it. The zero value works: no embedded files, all cores, silent.
type Env struct {
	Version string                           // of the program, for the run's manifest
	Commit  string                           // that the program was built from, for the manifest; "" = not known
	Dirty   bool                             // files differed from the commit
	Workers int                              // CPU threads; 0 = one for each core
	GPU     int                              // index of the GPU that "cuda" and "auto" open, among those of this computer
	Model   func(name string) (fs.FS, error) // folder of an embedded model; nil = there are none
	Data    func(name string) (fs.FS, error) // file system whose file `name` is an embedded data set or reference curve; nil = there are none
	Hub     hub.Options                      // where "org/name" is looked for
	// WithoutWeights lets a model's folder hold config.json and a tokenizer alone, which is enough to plan.
	WithoutWeights bool
	// StandIn gives the numbers of such a model, for those who time its steps; nil = it cannot be loaded.
	StandIn nn.Reader
	Log     func(line string)      // one line for the user; nil = dropped
	Quiet   bool                   // only what may be amiss is logged
	Reading func(dataset.Progress) // how far the reading of a data file is; nil = nobody is told
}

// Newsf gives the user a line that tells how things go, unless only what may be amiss is asked for.
func (e Env) Newsf(format string, args ...any) {
	if !e.Quiet {
		e.Logf(format, args...)
	}
}

// Logf gives the user a line.
func (e Env) Logf(format string, args ...any) {
	if e.Log != nil {
		e.Log(fmt.Sprintf(format, args...))
	}
}
