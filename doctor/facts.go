// Package doctor says what of a machine and a program may keep a run from working, slow it down or change its numbers.
// Gather looks, Judge decides: findings are a function of facts alone, so that a test can make up any machine. Pins keep
// what a run's numbers depend on, to be compared on another day or machine.
package doctor

import (
	"time"

	"github.com/tierlora/tierlora/graph"
)

// Facts are what Gather sees. A zero value is what the system does not tell.
type Facts struct {
	Version      string // of the program
	Platform     string // linux/amd64
	Instructions string // that the CPU's kernels use
	GPUBuilt     bool   // the program holds GPU kernels
	BuiltAt      time.Time
	Now          time.Time
	PID          int

	Hardware graph.Hardware
	Cards    []graph.Card
	NoCards  string // why NVML gives none

	Environ   map[string]string
	Overrides []Override // TRAINER_ variables

	CPUs       int     // that this process may use
	GoMaxProcs int     // threads that run Go code
	CPUQuota   float64 // CPUs that the cgroup allows; 0 = no limit
	Memory     int64   // of the machine, bytes
	Available  int64
	Limit      int64 // memory that the cgroup allows, 0 = no limit
	LimitUsed  int64 // of that
	OpenFiles  uint64
	Locked     uint64 // bytes that may be locked in memory; Unlimited

	Folders []Folder
	Host    Host
}

// Unlimited is a limit that is none.
const Unlimited = ^uint64(0)

// Override is an environment variable of this program.
type Override struct {
	Name    string
	Key     string // of the configuration, which it sets; "" = none
	Problem string
}

// Folder is a place that runs write to.
type Folder struct {
	What    string // runs, models
	Path    string
	Problem string // why nothing can be written there
	Free    int64  // bytes for this user
	Files   int64  // that may still be made; -1 = not told
	System  string // file system, where it is of a kind that matters: nfs, tmpfs, overlay
	Network bool   // on another machine
}

// Host is what of NVIDIA's hardware and software the operating system shows.
type Host struct {
	System    string   // linux
	Container string   // docker, podman, kubernetes; "" = none seen
	WSL       bool     // Windows Subsystem for Linux
	WSLDriver bool     // its libcuda.so.1 is in /usr/lib/wsl/lib
	Devices   []string // /dev/nvidia0, ...
	PCICards  int      // NVIDIA's display and compute cards on the bus
	Module    bool     // NVIDIA's kernel module is loaded
	Nouveau   bool     // the open driver that keeps NVIDIA's away is loaded
}
