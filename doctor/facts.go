// Package doctor reports what keeps a run from working on a machine, slows it down or changes its numbers. Gather
// collects facts and Judge decides: findings are a function of facts alone, so that a test can describe any machine.
// Pins record what a run's numbers depend on, to be compared on another day or machine.
package doctor

import (
	"time"

	"github.com/tierlora/tierlora/graph"
)

// Facts are the results of Gather. A zero value is not known.
type Facts struct {
	Version      string // version of the program
	Platform     string // linux/amd64
	Instructions string // instructions that the CPU's kernels use
	GPUBuilt     bool   // the program contains GPU kernels
	BuiltAt      time.Time
	Now          time.Time
	PID          int

	Hardware graph.Hardware
	Cards    []graph.Card
	NoCards  string // why NVML reports no cards

	Environ   map[string]string
	Overrides []Override // environment variables whose names begin with TRAINER_

	CPUs       int     // CPUs that this process may use
	GoMaxProcs int     // threads that run Go code
	CPUQuota   float64 // CPUs that the cgroup allows; 0 = no limit
	Memory     int64   // memory of the machine in bytes
	Available  int64
	Limit      int64 // memory that the cgroup allows in bytes; 0 = no limit
	LimitUsed  int64 // used part of Limit
	OpenFiles  uint64
	Locked     uint64 // bytes that may be locked in memory; Unlimited = no limit

	Folders []Folder
	Host    Host
}

// Unlimited is the value of a limit that is not set.
const Unlimited = ^uint64(0)

// Override is an environment variable of this program.
type Override struct {
	Name    string
	Key     string // key of the configuration that it sets; "" = none
	Problem string
}

// Folder is a folder that runs write to.
type Folder struct {
	What    string // content of the folder: runs, models
	Path    string
	Problem string // why the folder is not writable
	Free    int64  // free bytes for this user
	Files   int64  // files that can still be created; -1 = not known
	System  string // type of the file system, if it matters: nfs, tmpfs, overlay
	Network bool   // the file system is on another machine
}

// Host describes NVIDIA's hardware and software as the operating system reports them.
type Host struct {
	System    string   // operating system, such as linux
	Container string   // docker, podman or kubernetes; "" = no container was detected
	WSL       bool     // Windows Subsystem for Linux
	WSLDriver bool     // the WSL driver's libcuda.so.1 is in /usr/lib/wsl/lib
	Devices   []string // /dev/nvidia0, ...
	PCICards  int      // number of NVIDIA's display and compute cards on the bus
	Module    bool     // NVIDIA's kernel module is loaded
	Nouveau   bool     // the open driver that blocks NVIDIA's is loaded
}
