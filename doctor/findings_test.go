package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
)

func of[T any](v T) *T { return &v }

// sound is a machine that nothing is wrong with: a server with one H200.
func sound() Facts {
	f := Facts{
		Version: "v1.0.0", Platform: "linux/amd64", Instructions: "avx2", GPUBuilt: true, PID: 100,
		BuiltAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC),
		Environ: map[string]string{"PATH": "/bin"}, CPUs: 16, GoMaxProcs: 16, Memory: 64 << 30, Available: 60 << 30,
		OpenFiles: 65536, Locked: Unlimited, Host: Host{System: "linux", Devices: []string{"/dev/nvidia0"}, PCICards: 1, Module: true},
		Folders: []Folder{{What: "runs", Path: "/runs", Free: 100 << 30, Files: 1000}, {What: "models of the hub", Path: "/hub", Free: 100 << 30, Files: -1}},
		Cards: []graph.Card{{
			Name: "NVIDIA H200", UUID: "GPU-07070707-0707-0707-0707-070707070707", PCI: "00000000:17:00.0", Driver: "580.159.04",
			Total: 140 << 30, Used: 100 << 20, Free: 139 << 30, Temperature: of(int64(41)), SlowdownAt: of(int64(90)), ShutdownAt: of(int64(95)),
			Power: of(int64(70000)), PowerLimit: of(int64(700000)), PowerDefault: of(int64(700000)), Clock: of(int64(345)), ClockMax: of(int64(1980)),
			ECC: "enabled", ECCPending: "enabled", Corrected: of(int64(2)), Uncorrected: of(int64(0)), UncorrectEver: of(int64(0)), RemapFailed: of(false), RemapPending: of(false),
			MIG: "disabled", Persistence: of(true), ComputeMode: "default", Processes: []graph.CardProcess{{PID: 100, Name: "trainer", Bytes: 1 << 20}},
		}},
	}
	g := graph.GPUInfo{Code: "sm_90a"}
	g.Name, g.UUID, g.PCI, g.Major, g.Minor = "NVIDIA H200", "07070707-0707-0707-0707-070707070707", "0000:17:00.0", 9, 0
	f.Hardware = graph.Hardware{GPUs: []graph.GPUInfo{g}, Driver: "580.159.04", DriverCUDA: "13.0", KernelsSHA: "abc"}
	f.Hardware.Libraries = append(f.Hardware.Libraries, graph.Library{Name: "cuBLASLt", Version: "12.9.1"})
	return f
}

func TestSoundMachine(t *testing.T) {
	for _, f := range Judge(sound()) {
		if f.Severity != OK || f.Remedy != "" {
			t.Errorf("%s %v", f.Severity, f)
		}
	}
	if n := len(Judge(sound())); n < 12 {
		t.Errorf("%d findings only", n)
	}
}

// TestFindings: each thing that can be wrong, made up alone, gives one finding of its severity with words and, unless
// it is a note, a remedy.
func TestFindings(t *testing.T) {
	card := func(change func(c *graph.Card)) func(*Facts) { return func(f *Facts) { change(&f.Cards[0]) } }
	gpu := func(change func(g *graph.GPUInfo)) func(*Facts) {
		return func(f *Facts) { change(&f.Hardware.GPUs[0]) }
	}
	env := func(name, value string) func(*Facts) { return func(f *Facts) { f.Environ[name] = value } }
	none := func(change func(f *Facts)) func(*Facts) {
		return func(f *Facts) {
			f.Hardware, f.Cards, f.Host = graph.Hardware{NoGPU: "no NVIDIA driver"}, nil, Host{System: "linux"}
			change(f)
		}
	}
	folder := func(change func(d *Folder)) func(*Facts) { return func(f *Facts) { change(&f.Folders[0]) } }
	for _, c := range []struct {
		name     string
		change   func(f *Facts)
		severity Severity
		want     string
	}{
		// no GPU, and why
		{"none at all", none(func(*Facts) {}), Note, "no NVIDIA card is seen: runs use the CPU"},
		{"none, CPU build", none(func(f *Facts) { f.GPUBuilt = false }), Note, "built without GPU support, and no NVIDIA card"},
		{"a card, CPU build", none(func(f *Facts) { f.GPUBuilt = false; f.Host.PCICards = 1 }), Warning, "an NVIDIA card is here, but this program is built without GPU support; build with make gpu"},
		{"hidden", none(func(f *Facts) { f.Hardware.DriverCUDA = "13.0"; f.Environ["CUDA_VISIBLE_DEVICES"] = "7" }), Warning, `CUDA_VISIBLE_DEVICES is "7" and leaves no device; unset CUDA_VISIBLE_DEVICES`},
		{"WSL with the driver", none(func(f *Facts) { f.Host.WSL, f.Host.WSLDriver = true, true }), Warning, "LD_LIBRARY_PATH=/usr/lib/wsl/lib"},
		{"WSL without", none(func(f *Facts) { f.Host.WSL = true }), Warning, "install NVIDIA's driver for Windows"},
		{"container without devices", none(func(f *Facts) { f.Host.Container, f.Host.PCICards = "docker", 1 }), Warning, "this container (docker) has no /dev/nvidia*; install nvidia-container-toolkit on the host and start the container with --gpus all"},
		{"container without libraries", none(func(f *Facts) { f.Host.Container, f.Host.Devices = "docker", []string{"/dev/nvidia0"} }), Warning, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
		{"container, nothing seen", none(func(f *Facts) { f.Host.Container = "podman" }), Note, "nvidia-container-toolkit there, and --gpus all"},
		{"nouveau", none(func(f *Facts) { f.Host.Nouveau, f.Host.PCICards = true, 1 }), Warning, "the driver nouveau holds the NVIDIA card; install NVIDIA's driver"},
		{"no module", none(func(f *Facts) { f.Host.PCICards = 1 }), Warning, "its kernel module is not loaded; install NVIDIA's driver"},
		{"a dead card", none(func(f *Facts) { f.Host.PCICards, f.Host.Module = 1, true }), Warning, "the driver gives no device; see nvidia-smi and dmesg"},
		// device, kernels, libraries
		{"an unusable device", gpu(func(g *graph.GPUInfo) { g.Problem = errors.New("the NVIDIA driver is too old; update the driver") }), Error, "GPU 0: the NVIDIA driver is too old"},
		{"PTX", gpu(func(g *graph.GPUInfo) { g.Major, g.Minor, g.Code, g.JIT = 10, 3, "compute_90", true }), Warning, "no machine code for compute capability 10.3: the driver compiles PTX (compute_90)"},
		{"PTX forbidden", func(f *Facts) { f.Hardware.GPUs[0].JIT = true; f.Environ["CUDA_DISABLE_PTX_JIT"] = "1" }, Error, "which the environment forbids; unset CUDA_DISABLE_PTX_JIT"},
		{"PTX forced", env("CUDA_FORCE_PTX_JIT", "1"), Warning, "CUDA_FORCE_PTX_JIT=1 makes the driver compile other code"},
		{"no cuBLASLt", func(f *Facts) { f.Hardware.Libraries[0] = graph.Library{Name: "cuBLASLt", Problem: "not found"} }, Note, "cuBLASLt: not found: large GEMMs are slower; pip install nvidia-cublas-cu12"},
		// cards
		{"no NVML", func(f *Facts) { f.Cards, f.NoCards = nil, "NVML: open libnvidia-ml.so.1: not found" }, Note, "NVML: open libnvidia-ml.so.1: not found: temperature, clocks, ECC"},
		{"another card of NVML", card(func(c *graph.Card) { c.UUID, c.PCI = "GPU-1", "" }), Note, "NVML lists no card of its UUID"},
		{"a lost card", card(func(c *graph.Card) { c.Problem = "NVML answers 15: fallen off the bus" }), Error, "GPU 0 state: NVML answers 15"},
		{"another lost card", func(f *Facts) { f.Cards = append(f.Cards, graph.Card{Index: 1, Problem: "NVML answers 15"}) }, Warning, "card 1 (nvidia-smi): NVML answers 15"},
		{"another process", card(func(c *graph.Card) {
			c.Processes, c.Free = append(c.Processes, graph.CardProcess{PID: 4711, Name: "python3", Bytes: 35 << 30}), 104<<30
		}), Warning, "GPU 0 memory: 104.0 GiB of 140.0 GiB free; other processes: 4711 python3 35.0 GiB; end them"},
		{"a small process", card(func(c *graph.Card) { c.Processes = append(c.Processes, graph.CardProcess{PID: 9, Bytes: 4 << 20}) }), Note, "other processes: 9 4.0 MiB"},
		{"many processes", card(func(c *graph.Card) {
			for i := range 9 {
				c.Processes = append(c.Processes, graph.CardProcess{PID: 200 + i})
			}
		}), Note, "200, 201, 202, 203, 5 more; end"},
		{"who is not seen", card(func(c *graph.Card) { c.Processes, c.Used, c.Free = nil, 90<<30, 50<<30 }), Warning, "50.0 GiB of 140.0 GiB free; who holds the rest is not seen from here"},
		{"hot", card(func(c *graph.Card) { c.Temperature = of(int64(86)) }), Warning, "GPU 0 temperature: 86 C, slows down at 90; check fans"},
		{"too hot", card(func(c *graph.Card) { c.Temperature = of(int64(96)) }), Error, "turns itself off at 95; check fans"},
		{"throttled by heat", card(func(c *graph.Card) { c.Throttled = []string{"temperature (hardware)"} }), Warning, "throttled now: temperature (hardware); check cooling"},
		{"throttled by power", card(func(c *graph.Card) { c.Throttled = []string{"power limit"} }), Note, "held back now: power limit"},
		{"a low power limit", card(func(c *graph.Card) { c.PowerLimit = of(int64(300000)) }), Warning, "the power limit is 300 W, the card's own is 700 W: steps are slower; nvidia-smi -i 0 -pl 700"},
		{"clocks locked low", card(func(c *graph.Card) { c.ClockApp, c.ClockAppUsual = of(int64(900)), of(int64(1980)) }), Warning, "application clocks are set to 900 MHz, the card's own are 1980: steps are slower; nvidia-smi -i 0 -rac"},
		{"remapping failed", card(func(c *graph.Card) { c.RemapFailed = of(true) }), Error, "could not be replaced; have the card replaced"},
		{"remapping waits", card(func(c *graph.Card) { c.RemapPending = of(true) }), Warning, "waits to be taken out of use; nvidia-smi -i 0 --gpu-reset"},
		{"retiring waits", card(func(c *graph.Card) { c.RetirePending = of(true) }), Warning, "waits to be taken out of use"},
		{"uncorrected now", card(func(c *graph.Card) { c.Uncorrected, c.UncorrectEver = of(int64(3)), of(int64(3)) }), Warning, "3 errors since the driver started that could not be corrected; nvidia-smi -i 0 --gpu-reset"},
		{"uncorrected once", card(func(c *graph.Card) { c.UncorrectEver, c.RemappedBroken = of(int64(3)), of(int64(2)) }), Note, "in its life: 3 errors not corrected, 2 rows remapped, 0 pages retired"},
		{"many corrected", card(func(c *graph.Card) { c.Corrected = of(int64(5000)) }), Note, "5000 corrected errors since the driver started"},
		{"ECC off", card(func(c *graph.Card) { c.ECC, c.ECCPending = "disabled", "disabled" }), Note, "GPU 0 ECC: turned off; nvidia-smi -i 0 -e 1"},
		{"ECC changes", card(func(c *graph.Card) { c.ECCPending = "disabled" }), Note, "enabled now, disabled after a restart"},
		{"prohibited", card(func(c *graph.Card) { c.ComputeMode = "prohibited" }), Error, "no program may compute on it; nvidia-smi -i 0 -c DEFAULT"},
		{"exclusive", card(func(c *graph.Card) { c.ComputeMode = "exclusive_process" }), Note, "compute mode exclusive: one program at a time"},
		{"MIG", card(func(c *graph.Card) { c.MIG = "enabled" }), Note, "MIG is on: a run sees one instance"},
		{"persistence", card(func(c *graph.Card) { c.Persistence = of(false) }), Note, "persistence mode is off"},
		// machine
		{"quota", func(f *Facts) { f.CPUQuota = 4 }, Warning, "16 threads share 4.0 CPUs that the container allows: they are stopped in turn; GOMAXPROCS=4"},
		{"a small quota", func(f *Facts) { f.CPUQuota, f.GoMaxProcs = 1, 1 }, Note, "the container allows 1.0 CPUs"},
		{"GOMAXPROCS", func(f *Facts) { f.Environ["GOMAXPROCS"], f.GoMaxProcs = "2", 2 }, Note, "GOMAXPROCS leaves 2 of 16 CPUs"},
		{"little memory", func(f *Facts) { f.Available = 1 << 30 }, Warning, "host memory: 1.0 GiB available; end other programs"},
		{"a container's memory", func(f *Facts) { f.Limit, f.LimitUsed = 16<<30, 15<<30 }, Warning, "host memory: 1.0 GiB left of 16.0 GiB that the container may use"},
		{"pinned memory", func(f *Facts) { f.Limit = 3 << 30 }, Warning, "pinned host memory counts in the container's limit of 3.0 GiB; raise"},
		{"pinned memory of WSL", func(f *Facts) { f.Host.WSL = true }, Note, "Windows limits the pinned memory of WSL; memory= in .wslconfig"},
		{"open files", func(f *Facts) { f.OpenFiles = 256 }, Warning, "open files: at most 256: a model or data set in many files may not open; ulimit -n 65536"},
		{"clock before the build", func(f *Facts) { f.Now = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) }, Warning, "it is 2026-03-01 00:00 UTC, before this program was made; set it"},
		{"clock at 1970", func(f *Facts) { f.Now, f.BuiltAt = time.Unix(0, 0), time.Time{} }, Warning, "it is 1970-01-01 00:00 UTC"},
		{"disk full", folder(func(d *Folder) { d.Free = 1 << 20 }), Error, "folder for runs: 1.0 MiB free in /runs; make room"},
		{"hub's disk full", func(f *Facts) { f.Folders[1].Free = 0 }, Warning, "folder for models of the hub: 0 B free in /hub; make room"},
		{"no folder", func(f *Facts) { f.Folders[1].Path, f.Folders[1].Problem = "", "$HOME is not defined" }, Warning, "folder for models of the hub: $HOME is not defined; choose another"},
		{"no inodes", folder(func(d *Folder) { d.Files = 0 }), Error, "no file can be made any more"},
		{"little disk", folder(func(d *Folder) { d.Free = 500 << 20 }), Warning, "500.0 MiB free in /runs; make room"},
		{"little disk for models", func(f *Facts) { f.Folders[1].Free = 5 << 30 }, Warning, "5.0 GiB free in /hub"},
		{"a network file system", folder(func(d *Folder) { d.System, d.Network = "nfs", true }), Note, "a file system of another machine or program (nfs); a local disk loads models"},
		{"tmpfs", folder(func(d *Folder) { d.System = "tmpfs" }), Note, "kept in memory (tmpfs)"},
		{"overlay in a container", func(f *Facts) { f.Folders[0].System, f.Host.Container = "overlay", "docker" }, Note, "in the container's own layer, lost with it; mount a volume"},
		{"no right to write", folder(func(d *Folder) { d.Problem = "permission denied" }), Warning, "/runs: permission denied; choose another"},
		// environment
		{"TF32", env("NVIDIA_TF32_OVERRIDE", "0"), Warning, "NVIDIA_TF32_OVERRIDE=0: cuBLASLt multiplies in fp32"},
		{"emulation", env("CUBLAS_EMULATE_SINGLE_PRECISION", "1"), Warning, "other rounding in fp32; unset it"},
		{"emulation's strategy", env("CUBLAS_EMULATION_STRATEGY", "eager"), Warning, "other rounding in fp32; unset it"},
		{"launch blocking", env("CUDA_LAUNCH_BLOCKING", "1"), Warning, "slower, equal numbers; unset it"},
		{"workspace", env("CUBLAS_WORKSPACE_CONFIG", ":4096:8"), Note, "CUBLAS_WORKSPACE_CONFIG=:4096:8: does nothing here"},
		{"visible", env("CUDA_VISIBLE_DEVICES", "1"), Note, "chooses the cards that are seen"},
		{"order", env("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), Note, "how cards are numbered"},
		{"MPS", env("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"), Note, "by MPS"},
		{"eager", env("CUDA_MODULE_LOADING", "EAGER"), Note, "loads all kernels at the start"},
		{"connections", env("CUDA_DEVICE_MAX_CONNECTIONS", "1"), Note, "no number"},
		{"logging", env("CUBLASLT_LOG_LEVEL", "5"), Note, "cuBLASLt writes what it does"},
		{"CPU", env("TRAINER_CPU", "generic"), Note, "chooses the CPU's instructions"},
		{"library", env("TRAINER_CUBLASLT", "/x.so"), Note, "TRAINER_CUBLASLT=/x.so"},
		{"memory limit", env("GOMEMLIMIT", "1GiB"), Note, "garbage"},
		{"GOGC", env("GOGC", "50"), Note, "garbage"},
		{"GODEBUG", env("GODEBUG", "x=1"), Note, "Go runtime"},
		{"preload", env("LD_PRELOAD", "a\x1b[31m"), Note, "LD_PRELOAD=a?[31m: loads another library"},
		{"torch", env("PYTORCH_CUDA_ALLOC_CONF", "x"), Note, "does nothing here"},
		{"OMP", env("OMP_NUM_THREADS", "4"), Note, "--workers"},
		{"a key", func(f *Facts) {
			f.Environ["TRAINER_SEED"] = "7"
			f.Overrides = []Override{{Name: "TRAINER_SEED", Key: "seed"}}
		}, Note, "TRAINER_SEED=7: sets seed of every configuration"},
		{"a misspelt key", func(f *Facts) {
			f.Overrides = []Override{{Name: "TRAINER_TRAINING_X", Problem: "sets no key of training"}}
		}, Warning, "TRAINER_TRAINING_X: sets no key of training; unset it"},
	} {
		f := sound()
		c.change(&f)
		var bad []Finding
		for _, found := range Judge(f) {
			if found.Severity != OK {
				bad = append(bad, found)
			}
		}
		if len(bad) != 1 || bad[0].Severity != c.severity || !strings.Contains(bad[0].String(), c.want) {
			t.Errorf("%s: %v, want one %s that says %q", c.name, bad, c.severity, c.want)
			continue
		}
		// a device's own problem has it within.
		if b := bad[0]; b.Remedy == "" && b.Severity != Note && b.About != "GPU 0" {
			t.Errorf("%s: no remedy: %v", c.name, b)
		}
	}
	// With what belongs to the fault.
	f := sound()
	f.Cards[0].ComputeMode, f.Cards[0].Processes = "exclusive_process", []graph.CardProcess{{PID: 7, Name: "python3", Bytes: 8 << 30}}
	if !slices.ContainsFunc(Judge(f), func(f Finding) bool {
		return f.Severity == Warning && strings.Contains(f.Says, "compute mode exclusive, and another process is on the card: 7 python3")
	}) {
		t.Errorf("%v", Judge(f))
	}
	// What is of no concern here.
	for _, set := range [][2]string{{"NVIDIA_TF32_OVERRIDE", "1"}, {"CUDA_LAUNCH_BLOCKING", "0"}, {"GODEBUG", ""}, {"CUDA_MODULE_LOADING", "LAZY"}} {
		f := sound()
		f.Environ[set[0]] = set[1]
		if got := Judge(f); len(got) != len(Judge(sound())) || got[len(got)-1].About != "environment" {
			t.Errorf("%v: %v", set, got[len(got)-1])
		}
	}
	f = sound()
	f.Environ["CUBLAS_WORKSPACE_CONFIG"], f.Hardware.GPUs = ":4096:8", nil
	if got := Judge(f); got[len(got)-1].About != "environment" {
		t.Errorf("a machine without a GPU: %v", got[len(got)-1])
	}
}

// Instances of MIG have memory of their own.
func TestInstanceMemory(t *testing.T) {
	f := sound()
	f.Hardware.GPUs[0].UUID = "11111111-0707-0707-0707-070707070707"
	f.Cards[0].MIG, f.Cards[0].Instances = "enabled", []graph.CardInstance{{UUID: "MIG-11111111-0707-0707-0707-070707070707", Total: 16 << 30, Free: 15 << 30}}
	if !slices.ContainsFunc(Judge(f), func(f Finding) bool { return strings.Contains(f.Says, "15.0 GiB of 16.0 GiB free") }) {
		t.Errorf("%v", Judge(f))
	}
}
