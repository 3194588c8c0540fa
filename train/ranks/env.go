package ranks

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// Environment variables of this program. They take precedence over those of launchers.
const (
	CoordinatorVariable = "TRAINER_COORDINATOR" // host:port where rank 0 listens
	// LauncherVariable names the launcher whose variables are read; none = this process trains alone.
	LauncherVariable = "TRAINER_LAUNCHER"
	KeyVariable      = "TRAINER_RANKS_KEY" // a secret that all processes share
	RunVariable      = "TRAINER_RUN_ID"    // identifier of one start of the run, the same on all processes
)

// maxShown is the most bytes of a foreign text that an error repeats.
const maxShown = 120

// MaxWorld bounds the ranks of a run.
const MaxWorld = 1 << 16

// launchers lists the launchers in order of precedence. The inner launcher comes first: torchrun is started by srun and
// mpirun, and mpirun starts its processes through srun.
var launchers = []struct {
	name string
	read func(v variables) (place Place, said bool, err error)
}{
	{"torchrun", torchrun},
	{"openmpi", openMPI},
	{"kubeflow", kubeflow},
	{"jax", jax},
	{"slurm", slurm},
}

// FromEnv returns the place of this process from the variables of the launcher that started it; get is os.Getenv.
// Without a launcher the process is alone: World is 1 and Launcher is empty.
func FromEnv(get func(name string) string) (Place, error) {
	v := variables{get: get}
	asked := get(LauncherVariable)
	if asked == "none" {
		return alone(""), nil
	}
	var partial error
	known := []string{"none"}
	for _, l := range launchers {
		known = append(known, l.name)
		if asked != "" && asked != l.name {
			continue
		}
		p, said, err := l.read(v)
		if said {
			if err == nil {
				p, err = v.finish(p)
			}
			if err != nil {
				return Place{}, fmt.Errorf("%w (variables of %s; %s=none trains in this process alone)", err, l.name,
					LauncherVariable)
			}
			return p, nil
		}
		if partial == nil && err != nil {
			partial = fmt.Errorf("%w (variables of %s; %s=none trains in this process alone)", err, l.name,
				LauncherVariable)
		}
		if asked == l.name {
			if err == nil {
				err = fmt.Errorf("%s=%s, and %s has set no variables here", LauncherVariable, asked, asked)
			}
			return Place{}, err
		}
	}
	if asked != "" {
		return Place{}, fmt.Errorf("%s=%s is not one of %s", LauncherVariable, words.Clip(asked, maxShown),
			strings.Join(known, ", "))
	}
	if partial != nil {
		return Place{}, partial
	}
	return alone(""), nil
}

func alone(launcher string) Place {
	return Place{World: 1, LocalWorld: 1, Launcher: launcher}
}

// finish checks what all launchers have in common. This program's own variables take precedence.
func (v variables) finish(p Place) (Place, error) {
	if own := v.get(RunVariable); own != "" {
		p.Run = own
	}
	p.Run = words.Clip(p.Run, maxShown)
	if p.World == 1 {
		p.Coordinator = ""
		return p, nil
	}
	if own := v.get(CoordinatorVariable); own != "" {
		p.Coordinator = own
	}
	host, port, err := net.SplitHostPort(p.Coordinator)
	if err == nil && host == "" {
		err = fmt.Errorf("no host")
	}
	if err == nil {
		_, err = portOf(port)
	}
	if err != nil {
		return p, fmt.Errorf("where rank 0 listens: %q is not host:port (%v); set %s=HOST:PORT",
			words.Clip(p.Coordinator, maxShown),
			err,
			CoordinatorVariable)
	}
	if host == p.Run {
		p.Run = "" // the coordinator's address alone does not identify a start
	}
	return p, nil
}

// variables reads numbers from an environment. Every error names its variable.
type variables struct{ get func(name string) string }

func (v variables) has(name string) bool { return v.get(name) != "" }

// number reads a variable that must be an integer from least to most.
func (v variables) number(name string, least, most int) (int, error) {
	text := v.get(name)
	if text == "" {
		return 0, fmt.Errorf("%s is not set", name)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%s is not a whole number from %d to %d", name, words.Clip(text, maxShown), least, most)
	}
	return n, nil
}

// within reads a rank and its number of ranks.
func (v variables) within(rank, world string) (r, w int, err error) {
	if w, err = v.number(world, 1, MaxWorld); err != nil {
		return 0, 0, err
	}
	if r, err = v.number(rank, 0, MaxWorld-1); err != nil {
		return 0, 0, err
	}
	if r >= w {
		return 0, 0, fmt.Errorf("%s=%d is not from 0 to %d, as %s=%d asks", rank, r, w-1, world, w)
	}
	return r, w, nil
}

// local reads a rank on a host and the host's number of ranks. A launcher that sets neither starts one process a host
// or does not report them.
func (v variables) local(rank, world string, of int) (r, w int, err error) {
	switch {
	case v.has(world):
		if r, w, err = v.within(rank, world); err == nil && w > of {
			err = fmt.Errorf("%s=%d is more than the %d of all hosts", world, w, of)
		}
		return r, w, err
	case v.has(rank):
		r, err = v.number(rank, 0, of-1)
		return r, 0, err
	}
	return 0, 1, nil
}

// port reads a port; otherwise is the default.
func (v variables) port(name string, otherwise int) (int, error) {
	if !v.has(name) {
		return otherwise, nil
	}
	return v.number(name, 1, 65535)
}

func portOf(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %q is not a number from 1 to 65535", words.Clip(text, maxShown))
	}
	return n, nil
}

// If the launcher names no port, the port is derived from the job's name, so that two jobs on a host do not collide. It
// is below the ports that systems assign automatically.
const (
	firstPort = 15000
	manyPorts = 15000
)

func jobPort(job string) int {
	h := fnv.New32a()
	h.Write([]byte(job)) // a hash accepts every write
	return firstPort + int(h.Sum32()%manyPorts)
}

// behind returns the port after a launcher's own.
func behind(port int) int {
	if port == 65535 {
		return 65534
	}
	return port + 1
}

func join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
