package doctor

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// Severity is how much a finding matters.
type Severity string

const (
	OK      Severity = "ok"      // no action needed
	Note    Severity = "note"    // worth knowing; no action needed
	Warning Severity = "warning" // a run works, but is slower, may fail, or has other numbers
	Error   Severity = "error"   // a run cannot work on this machine
)

// Finding is the result of one check.
type Finding struct {
	Severity Severity `json:"severity"`
	About    string   `json:"about"`
	Says     string   `json:"says"`
	Remedy   string   `json:"remedy,omitempty"`
}

// String returns the finding as a line of the report.
func (f Finding) String() string {
	s := f.About + ": " + f.Says
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	return s
}

// findings collects findings in the order in which they are reported.
type findings []Finding

func (l *findings) add(s Severity, about, remedy, says string, args ...any) {
	if len(args) > 0 {
		says = fmt.Sprintf(says, args...)
	}
	*l = append(*l, Finding{s, about, says, remedy})
}

// Judge returns the findings that follow from the facts: the driver and its devices, the cards, the machine, then the
// environment.
func Judge(f Facts) []Finding {
	l := &findings{}
	if len(f.Hardware.GPUs) == 0 {
		l.noGPU(f)
	}
	if f.Hardware.DriverCUDA != "" && len(f.Hardware.GPUs) > 0 {
		l.add(OK, "driver", "", "%s, serves CUDA %s", orUnknown(f.Hardware.Driver), f.Hardware.DriverCUDA)
	}
	for _, g := range f.Hardware.GPUs {
		l.device(f, g)
	}
	l.libraries(f)
	l.cards(f)
	l.machine(f)
	l.folders(f)
	l.variables(f)
	return *l
}

func orUnknown(s string) string {
	if s == "" {
		return "of unknown version"
	}
	return s
}

// noGPU explains why a machine shows no GPU, if the facts show a reason.
func (l *findings) noGPU(f Facts) {
	h := f.Host
	card := h.PCICards > 0 || len(h.Devices) > 0 || h.Module
	const about = "no GPU"
	visible, hidden := f.Environ["CUDA_VISIBLE_DEVICES"]
	switch {
	case !f.GPUBuilt && (card || h.WSLDriver):
		l.add(Warning, about, "build with make gpu, or take a release with GPU support", "an NVIDIA card is here, but this program is built without GPU support")
	case !f.GPUBuilt:
		l.add(Note, about, "", "this program is built without GPU support, and no NVIDIA card is seen: runs use the CPU")
	case f.Hardware.DriverCUDA != "" && hidden:
		l.add(Warning, about, "unset CUDA_VISIBLE_DEVICES, or name a device that nvidia-smi -L lists", "CUDA_VISIBLE_DEVICES is %q and leaves no device", visible)
	case h.WSL && h.WSLDriver:
		l.add(Warning, about, "LD_LIBRARY_PATH=/usr/lib/wsl/lib, or a line /usr/lib/wsl/lib in /etc/ld.so.conf.d and ldconfig; install no Linux driver within WSL",
			"Windows shares its driver in /usr/lib/wsl/lib, but it gives no device")
	case h.WSL:
		l.add(Warning, about, "install NVIDIA's driver for Windows, wsl --update, wsl --shutdown", "WSL has no driver: /usr/lib/wsl/lib/libcuda.so.1 is not there")
	case h.Container != "" && len(h.Devices) == 0 && (card || h.Module):
		l.add(Warning, about, "install nvidia-container-toolkit on the host and start the container with --gpus all (docker), --device nvidia.com/gpu=all (podman), or nvidia.com/gpu: 1 in its limits (Kubernetes)",
			"the host has an NVIDIA card, but this container (%s) has no /dev/nvidia*", h.Container)
	case h.Container != "" && len(h.Devices) > 0:
		l.add(Warning, about, "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility, by nvidia-container-toolkit", "/dev/nvidia* is in this container (%s), but the driver's libraries do not work", h.Container)
	case h.Nouveau && h.PCICards > 0:
		l.add(Warning, about, "install NVIDIA's driver, which turns nouveau off, and restart the machine", "the driver nouveau holds the NVIDIA card")
	case h.PCICards > 0 && !h.Module:
		l.add(Warning, about, "install NVIDIA's driver; where it is, modprobe nvidia, and see dmesg", "an NVIDIA card is on the bus, but its kernel module is not loaded")
	case card:
		l.add(Warning, about, "see nvidia-smi and dmesg", "an NVIDIA card is here, but the driver gives no device")
	case h.Container != "":
		l.add(Note, about, "where the host has one: nvidia-container-toolkit there, and --gpus all", "no NVIDIA card is seen in this container (%s): runs use the CPU", h.Container)
	default:
		l.add(Note, about, "", "no NVIDIA card is seen: runs use the CPU")
	}
}

func gpuName(g graph.GPUInfo) string { return fmt.Sprintf("GPU %d", g.Index) }

// device judges CUDA's data on a device and the kernels that it would run.
func (l *findings) device(f Facts, g graph.GPUInfo) {
	if g.Problem != nil {
		l.add(Error, gpuName(g), "", "%v", g.Problem)
		return
	}
	about := gpuName(g) + " kernels"
	forced, off := f.Environ["CUDA_FORCE_PTX_JIT"] == "1", f.Environ["CUDA_DISABLE_PTX_JIT"] == "1" || f.Environ["CUDA_DISABLE_JIT"] == "1"
	switch {
	case g.JIT && off:
		l.add(Error, about, "unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT", "this device needs PTX to be compiled (%s), which the environment forbids", g.Code)
	case g.JIT:
		l.add(Warning, about, fmt.Sprintf("build with scripts/kernels.py --targets sm_%d,... and make gpu, where the compiler knows the chip; run trainer selfcheck", g.SM()),
			"there is no machine code for compute capability %d.%d: the driver compiles PTX (%s), which takes a while at the first start and is not what the chip could do", g.Major, g.Minor, g.Code)
	case forced:
		l.add(Warning, about, "unset CUDA_FORCE_PTX_JIT", "CUDA_FORCE_PTX_JIT=1 makes the driver compile other code than the program's: slower, and other rounding")
	default:
		l.add(OK, about, "", "machine code %s for compute capability %d.%d", g.Code, g.Major, g.Minor)
	}
}

func (l *findings) libraries(f Facts) {
	for _, lib := range f.Hardware.Libraries {
		switch {
		case lib.Problem == "":
			l.add(OK, lib.Name, "", "%s", lib.Version)
		case lib.Name == "NCCL":
			if len(f.Hardware.GPUs) > 1 {
				l.add(Note, lib.Name, "pip install nvidia-nccl-cu12, or TRAINER_NCCL=/folder/of/libnccl.so.2", "not found: a run trains on one GPU")
			}
		case len(f.Hardware.GPUs) > 0:
			l.add(Note, lib.Name, "pip install nvidia-cublas-cu12, or TRAINER_CUBLASLT=/path/of/libcublasLt.so.12", "not found: large GEMMs are slower")
		}
	}
}

// The least resources for a run without trouble.
const (
	fewFiles     = 1024
	littleMemory = 2 << 30
	littleDisk   = 1 << 30
	noDisk       = 16 << 20 // an adapter and its checkpoint barely fit
	modelDisk    = 10 << 30
	unknownSpace = math.MaxInt64
)

// machine judges CPU, memory, limits and clock.
func (l *findings) machine(f Facts) {
	quota := f.CPUQuota
	switch {
	case quota > 0 && float64(f.GoMaxProcs) > quota+1:
		l.add(Warning, "CPU", fmt.Sprintf("GOMAXPROCS=%d, or a larger quota", max(1, int(quota))), "%d threads share %.1f CPUs that the container allows: they are stopped in turn", f.GoMaxProcs, quota)
	case quota > 0 && quota < 2:
		l.add(Note, "CPU", "give the container more CPUs where reading data holds the GPU up", "the container allows %.1f CPUs", quota)
	case f.Environ["GOMAXPROCS"] != "" && f.GoMaxProcs < f.CPUs:
		l.add(Note, "CPU", "", "GOMAXPROCS leaves %d of %d CPUs; numbers do not depend on it", f.GoMaxProcs, f.CPUs)
	case f.GoMaxProcs > 0:
		l.add(OK, "CPU", "", "%d threads on %d CPUs", f.GoMaxProcs, f.CPUs)
	}
	left, why := f.Available, "available"
	if f.Limit > 0 && f.Limit-f.LimitUsed < left {
		left, why = f.Limit-f.LimitUsed, "left of "+session.FormatBytes(f.Limit)+" that the container may use"
	}
	if f.Memory > 0 {
		s, remedy := OK, ""
		if left < littleMemory {
			s, remedy = Warning, "end other programs, or give the container more: models are read and offloaded values kept in host memory"
		}
		l.add(s, "host memory", remedy, "%s %s", session.FormatBytes(max(0, left)), why)
	}
	if f.Limit > 0 && f.Limit < littleMemory*2 && len(f.Hardware.GPUs) > 0 {
		l.add(Warning, "pinned memory", "raise the container's memory limit (docker --memory), or avoid gradient_checkpointing: offload", "pinned host memory counts in the container's limit of %s", session.FormatBytes(f.Limit))
	}
	if f.Host.WSL && len(f.Hardware.GPUs) > 0 {
		l.add(Note, "pinned memory", "memory= in .wslconfig", "Windows limits the pinned memory of WSL")
	}
	if f.Locked != 0 && len(f.Hardware.GPUs) > 0 {
		says := "no limit on locked memory"
		if f.Locked != Unlimited {
			says = fmt.Sprintf("ulimit -l is %s; the driver pins memory itself and does not count in it", session.FormatBytes(int64(min(f.Locked, 1<<62))))
		}
		l.add(OK, "locked memory", "", "%s", says)
	}
	if f.OpenFiles > 0 {
		if f.OpenFiles < fewFiles {
			l.add(Warning, "open files", "ulimit -n 65536", "at most %d: a model or data set in many files may not open", f.OpenFiles)
		} else {
			l.add(OK, "open files", "", "at most %d", f.OpenFiles)
		}
	}
	l.clock(f)
}

// clock compares the time with the build time of the program, or with the year of its first release.
func (l *findings) clock(f Facts) {
	if f.Now.IsZero() {
		return
	}
	earliest := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if f.BuiltAt.After(earliest) {
		earliest = f.BuiltAt
	}
	if f.Now.Before(earliest.Add(-24 * time.Hour)) {
		l.add(Warning, "clock", "set it (timedatectl set-ntp true): downloads fail on certificates, and times in reports are wrong", "it is %s, before this program was made", f.Now.UTC().Format("2006-01-02 15:04 MST"))
		return
	}
	l.add(OK, "clock", "", "%s", f.Now.UTC().Format("2006-01-02 15:04 MST"))
}

func (l *findings) folders(f Facts) {
	for _, d := range f.Folders {
		if d.Free == unknownSpace && d.Problem == "" {
			continue
		}
		full := Warning
		if d.What == "runs" {
			full = Error
		}
		about := "folder for " + d.What
		free := session.FormatBytes(d.Free) + " free in " + d.Path
		want := int64(littleDisk)
		if strings.Contains(d.What, "models") {
			want = modelDisk
		}
		switch {
		case d.Problem != "":
			l.add(Warning, about, "choose another: output_dir, HF_HOME, TRAINER_CACHE", "%s", strings.TrimPrefix(d.Path+": "+d.Problem, ": "))
		case d.Free < noDisk:
			l.add(full, about, "make room: nothing can be saved there", "%s", free)
		case d.Files == 0:
			l.add(full, about, "delete files there", "%s, but no file can be made any more (df -i)", free)
		case d.Free < want:
			l.add(Warning, about, "make room, or choose another folder: output_dir, HF_HOME, TRAINER_CACHE", "%s", free)
		case d.Network:
			l.add(Note, about, "a local disk loads models and caches tokens faster", "%s, a file system of another machine or program (%s)", free, d.System)
		case d.System == "tmpfs":
			l.add(Note, about, "", "%s, which is kept in memory (tmpfs) and lost when the machine stops", free)
		case d.System == "overlay":
			if f.Host.Container == "" {
				l.add(OK, about, "", "%s", free)
				continue
			}
			l.add(Note, about, "mount a volume there to keep it", "%s, in the container's own layer, lost with it", free)
		default:
			l.add(OK, about, "", "%s", free)
		}
	}
}
