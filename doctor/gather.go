package doctor

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/cgroup"
	"github.com/tierlora/tierlora/model/hub"
)

// Gather collects the facts of this machine. It opens no device and writes nothing.
func Gather(version string, builtAt time.Time) Facts {
	f := Facts{
		Version: version, Platform: runtime.GOOS + "/" + runtime.GOARCH, Instructions: graph.NewCPU(1).Software().Kernels,
		GPUBuilt: graph.GPUBuilt, BuiltAt: builtAt, Now: time.Now(), PID: os.Getpid(),
		Hardware: graph.FindHardware(), Environ: map[string]string{}, CPUs: runtime.NumCPU(), GoMaxProcs: runtime.GOMAXPROCS(0),
	}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		f.Environ[name] = value
	}
	if f.GPUBuilt {
		cards, err := graph.ReadCards()
		if f.Cards = cards; err != nil {
			f.NoCards = err.Error()
		}
	}
	files := root("/")
	f.Memory, f.Available = files.memory()
	groups := cgroup.Read(string(files))
	f.Limit, f.LimitUsed, f.CPUQuota = groups.Memory, groups.Used, groups.CPUs
	f.OpenFiles, f.Locked = limits()
	f.Host = files.host()
	f.Folders = writtenTo()
	return f
}

// root is the root of a file tree like a machine's: "/", or a folder of a test.
type root string

func (r root) read(path string) string {
	b, err := os.ReadFile(filepath.Join(string(r), path))
	if err != nil || len(b) > 1<<20 {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (r root) is(path string) bool {
	_, err := os.Stat(filepath.Join(string(r), path))
	return err == nil
}

// memory returns the machine's memory in bytes, 0 if the system does not report it.
func (r root) memory() (total, available int64) {
	for s := bufio.NewScanner(strings.NewReader(r.read("proc/meminfo"))); s.Scan(); {
		var name string
		var kib int64
		if _, err := fmt.Sscan(s.Text(), &name, &kib); err != nil {
			continue
		}
		switch name {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available
}

// host collects facts about NVIDIA's cards and software, and about a container around this process.
func (r root) host() Host {
	h := Host{System: runtime.GOOS}
	switch {
	case r.is(".dockerenv"):
		h.Container = "docker"
	case r.is("run/.containerenv"):
		h.Container = "podman"
	case r.is("var/run/secrets/kubernetes.io"):
		h.Container = "kubernetes"
	case strings.Contains(r.read("proc/1/cgroup"), "docker") || strings.Contains(r.read("proc/1/cgroup"), "kubepods") || strings.Contains(r.read("proc/1/cgroup"), "containerd"):
		h.Container = "a container"
	}
	release := strings.ToLower(r.read("proc/sys/kernel/osrelease"))
	h.WSL = strings.Contains(release, "microsoft") || r.is("dev/dxg")
	h.WSLDriver = r.is("usr/lib/wsl/lib/libcuda.so.1")
	devices, _ := filepath.Glob(filepath.Join(string(r), "dev/nvidia[0-9]*")) //nolint:errcheck // the pattern is valid
	for _, d := range devices {
		h.Devices = append(h.Devices, "/dev/"+filepath.Base(d))
	}
	// The pattern is valid.
	vendors, _ := filepath.Glob(filepath.Join(string(r), "sys/bus/pci/devices/*/vendor")) //nolint:errcheck
	for _, v := range vendors {
		dir, err := filepath.Rel(string(r), filepath.Dir(v))
		if err == nil && r.read(filepath.Join(dir, "vendor")) == "0x10de" && strings.HasPrefix(r.read(filepath.Join(dir, "class")), "0x03") {
			h.PCICards++
		}
	}
	h.Module = r.is("proc/driver/nvidia/version")
	h.Nouveau = r.is("sys/module/nouveau")
	return h
}

// writtenTo returns the folders that runs, downloaded models and caches write to.
func writtenTo() []Folder {
	var all []Folder
	add := func(what, path string, err error) {
		if err != nil {
			all = append(all, Folder{What: what, Problem: err.Error(), Free: unknownSpace, Files: -1})
			return
		}
		all = append(all, lookAt(what, path))
	}
	here, err := os.Getwd()
	add("runs", here, err)
	models, err := hub.CacheDir()
	add("models of the hub", models, err)
	cache, err := os.UserCacheDir()
	if named := os.Getenv("TRAINER_CACHE"); named != "" {
		cache, err = named, nil
	} else {
		cache = filepath.Join(cache, "tierlora")
	}
	if err == nil { // without a cache folder nothing is cached
		add("caches", cache, nil)
	}
	return all
}

// lookAt collects facts about a folder, or about the nearest existing folder above it. It writes nothing there.
func lookAt(what, dir string) Folder {
	f := Folder{What: what, Path: dir, Files: -1, Free: unknownSpace}
	at, err := filepath.Abs(dir)
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			f.Problem = at + " is a file, not a folder"
			return f
		}
		if err == nil {
			break
		}
		if up := filepath.Dir(at); up == at || !os.IsNotExist(err) {
			f.Problem = err.Error()
			return f
		}
		at = filepath.Dir(at)
	}
	diskOf(at, &f)
	return f
}
