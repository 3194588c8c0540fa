// Package ranks is the processes and devices that train one model together: which of them this is, and how they hear of
// one another on the host. What moves gradients on GPUs is NCCL; this carries its id, hashes, evaluation sums and faults.
package ranks

import (
	"context"
	"fmt"
)

// Place is one rank's in a data-parallel run. A launcher places processes (FromEnv), each of which may drive several
// devices: Join tells the ranks of all.
type Place struct {
	Rank, World           int    // of all, from 0
	LocalRank, LocalWorld int    // of those on this host; LocalWorld 0 = the launcher does not say
	Coordinator           string // host:port where rank 0 listens; empty = all ranks are in this process
	Launcher              string // whose variables said so: torchrun, Kubeflow, SLURM, ...; empty = this program's own
	Devices               int    // that the launcher asks a process to drive: a number, AllDevices, 0 = it does not say
	Run                   string // the launcher's name for this start, the same on all processes
}

// AllDevices asks a process to drive every device that it sees.
const AllDevices = -1

// Group is the ranks of a run as one of them sees them. Gather belongs to one goroutine; the rest may be called from any.
type Group interface {
	Rank() int
	World() int
	// Gather sends bytes to every rank and returns what all ranks sent, by rank. Every rank calls it in the same order
	// for the same purpose; what names that purpose in errors. It ends with the group's error if a rank is lost.
	Gather(ctx context.Context, what string, mine []byte) ([][]byte, error)
	// At notes what this rank is about to do, for the error of a rank that others wait for.
	At(step int, doing string)
	// Lost is closed when a rank has failed, is gone or does not answer; Err says which, and where it was.
	Lost() <-chan struct{}
	Err() error
	// Stalled is closed when the ranks' devices wait for one another and none gets on (Options.Devices). Each then lets go of
	// what its device waits for and says At; one that cannot is the one that is lost.
	Stalled() <-chan struct{}
	// Leave tells the others that this rank ends: done, or with an error, which ends them too.
	Leave(err error) error
}

// LostError is a rank that failed, is gone, or does not answer.
type LostError struct {
	Rank  int
	Step  int    // that it was in; 0 = before the first
	Doing string // what it was about to do
	Why   string // "the connection was closed", "it does not answer since 30s", its own error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("rank %d, step %d, %s: %s", e.Rank, e.Step, e.Doing, e.Why)
}
