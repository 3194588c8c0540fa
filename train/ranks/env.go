package ranks

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"
)

// Variables of this program, which win over those of launchers.
const (
	CoordinatorVariable = "TRAINER_COORDINATOR" // host:port where rank 0 listens
	LauncherVariable    = "TRAINER_LAUNCHER"    // whose variables count; none = this process trains alone
	KeyVariable         = "TRAINER_RANKS_KEY"   // a secret that all processes know
	RunVariable         = "TRAINER_RUN_ID"      // names a start, the same on all processes
)

// MaxWorld bounds the ranks of a run.
const MaxWorld = 1 << 16

// launchers in the order in which they are asked: who starts processes inside another's comes first. torchrun is
// started by srun and mpirun, and mpirun starts its own processes through srun.
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

// FromEnv is the place of this process by the variables of the launcher that started it, as get (os.Getenv) gives them.
// Without a launcher it is alone: World is 1 and Launcher empty.
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
				return Place{}, fmt.Errorf("%w (variables of %s; %s=none trains in this process alone)", err, l.name, LauncherVariable)
			}
			return p, nil
		}
		if partial == nil && err != nil {
			partial = fmt.Errorf("%w (variables of %s; %s=none trains in this process alone)", err, l.name, LauncherVariable)
		}
		if asked == l.name {
			if err == nil {
				err = fmt.Errorf("%s=%s, and %s has set no variables here", LauncherVariable, asked, asked)
			}
			return Place{}, err
		}
	}
	if asked != "" {
		return Place{}, fmt.Errorf("%s=%s is not one of %s", LauncherVariable, clip(asked), strings.Join(known, ", "))
	}
	if partial != nil {
		return Place{}, partial
	}
	return alone(""), nil
}

func alone(launcher string) Place {
	return Place{World: 1, LocalWorld: 1, Launcher: launcher}
}

// finish checks what all launchers have in common, and lets this program's own variables win.
func (v variables) finish(p Place) (Place, error) {
	if own := v.get(RunVariable); own != "" {
		p.Run = own
	}
	p.Run = clip(p.Run)
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
		return p, fmt.Errorf("where rank 0 listens: %q is not host:port (%v); set %s=HOST:PORT", clip(p.Coordinator), err, CoordinatorVariable)
	}
	if host == p.Run {
		p.Run = "" // where rank 0 is says no more than the connection does
	}
	return p, nil
}

// variables reads numbers from an environment; every error names its variable.
type variables struct{ get func(name string) string }

func (v variables) has(name string) bool { return v.get(name) != "" }

// number is a variable that has to be a whole number from least to most.
func (v variables) number(name string, least, most int) (int, error) {
	text := v.get(name)
	if text == "" {
		return 0, fmt.Errorf("%s is not set", name)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%s is not a whole number from %d to %d", name, clip(text), least, most)
	}
	return n, nil
}

// within is a rank and the number of ranks that it is one of.
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

// local is a rank among those of a host; a launcher that names neither starts one process a host, or does not say.
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

// port is a variable's number, or otherwise where it is not set.
func (v variables) port(name string, otherwise int) (int, error) {
	if !v.has(name) {
		return otherwise, nil
	}
	return v.number(name, 1, 65535)
}

func portOf(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %q is not a number from 1 to 65535", clip(text))
	}
	return n, nil
}

// The port of a job whose launcher names none comes from the job's name, so that two jobs on a host do not meet. It
// lies below the ports that systems hand out by themselves.
const (
	firstPort = 15000
	manyPorts = 15000
)

func jobPort(job string) int {
	h := fnv.New32a()
	h.Write([]byte(job)) //nolint:errcheck // a hash takes everything
	return firstPort + int(h.Sum32()%manyPorts)
}

// behind is the port after a launcher's own.
func behind(port int) int {
	if port == 65535 {
		return 65534
	}
	return port + 1
}

func join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// clip bounds what is repeated of others' text.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
