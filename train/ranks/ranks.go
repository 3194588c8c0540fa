// Package ranks connects the processes and devices that train one model together: it finds the rank of this process and
// carries host-side messages between ranks. NCCL moves gradients between GPUs; this package carries the NCCL id,
// hashes, evaluation sums and faults.
package ranks

import (
	"context"
	"fmt"
)

// Place is the place of a process in a data-parallel run. A launcher places processes (FromEnv), each of which may
// drive several devices; Join returns the ranks of these devices.
type Place struct {
	Rank, World           int    // index among all processes, and their number; ranks count from 0
	LocalRank, LocalWorld int    // index among the processes of this host, and their number; LocalWorld 0 = unknown
	Coordinator           string // host:port where rank 0 listens; empty = all ranks are in this process
	// the launcher whose variables were read: torchrun, Kubeflow, SLURM, ...; empty = this program's own
	Launcher string
	// devices that the launcher asks a process to drive: a number, AllDevices, or 0 = not specified
	Devices int
	Run     string // the launcher's name for this start, the same on all processes
}

// AllDevices makes a process drive every device that it sees.
const AllDevices = -1

// Group is the ranks of a run as one of them sees them. Only one goroutine may call Gather; the other methods are safe
// for concurrent use.
type Group interface {
	Rank() int
	World() int
	// Gather sends bytes to every rank and returns what all ranks sent, by rank. Every rank must call it in the same
	// order for the same purpose, which `what` names in errors. It returns the group's error if a rank is lost.
	Gather(ctx context.Context, what string, mine []byte) ([][]byte, error)
	// At records what this rank is about to do, for the error of a rank that others wait for.
	At(step int, doing string)
	// Lost is closed when a rank has failed, is gone or does not answer; Err returns which rank, and where it was.
	Lost() <-chan struct{}
	Err() error
	// Stalled is closed when the ranks' devices wait for one another and none makes progress (Options.Devices). Each
	// rank must then release its device from waiting and call At; a rank that cannot is the lost one.
	Stalled() <-chan struct{}
	// Leave tells the others that this rank ends: successfully, or with an error, which ends them too.
	Leave(err error) error
}

// LostError is a rank that failed, is gone, or does not answer.
type LostError struct {
	Rank  int
	Step  int    // step that the rank was in; 0 = before the first
	Doing string // what the rank was about to do
	Why   string // "the connection was closed", "it does not answer since 30s", or its own error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("rank %d, step %d, %s: %s", e.Rank, e.Step, e.Doing, e.Why)
}
