package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/doctor"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/session"
)

// health is the report of doctor: facts about the machine, then findings.
type health struct {
	Version   string      `json:"version"`
	Build     string      `json:"build"` // gpu or cpu-only
	Go        string      `json:"go"`
	Platform  string      `json:"platform"`
	Cores     int         `json:"cores"`
	Features  []string    `json:"cpu_features"`
	Memory    int64       `json:"memory_bytes"`           // 0 = unknown
	Available int64       `json:"memory_available_bytes"` // 0 = unknown
	GPUs      []gpuHealth `json:"gpus"`
	NoGPU     string      `json:"no_gpu_reason,omitempty"`
	Driver    string      `json:"driver,omitempty"` // the driver's version, if it reports one
	DriverAt  string      `json:"driver_library,omitempty"`
	Serves    string      `json:"driver_cuda,omitempty"` // newest CUDA version that the driver supports
	// Kernels describes the CUDA version of the built-in kernels and the driver that they need.
	Kernels   string    `json:"kernels,omitempty"`
	Libraries []library `json:"libraries,omitempty"`
	Problems  []string  `json:"problems"`
	// Cards holds NVML's readings, in nvidia-smi's order.
	Cards      []graph.Card      `json:"cards,omitempty"`
	NoCards    string            `json:"no_cards_reason,omitempty"`
	KernelsSHA string            `json:"kernels_sha256,omitempty"`
	Findings   []doctor.Finding  `json:"findings"`
	Mismatches []doctor.Mismatch `json:"mismatches,omitempty"` // with --fail-on-mismatch
}

type gpuHealth struct {
	Index      int    `json:"index"`
	Name       string `json:"name"`
	Capability string `json:"compute_capability"`
	Memory     int64  `json:"memory_bytes"`
	Precision  string `json:"precision"` // the precision that training.precision: auto selects
	Problem    string `json:"problem,omitempty"`
	UUID       string `json:"uuid,omitempty"`
	PCI        string `json:"pci_bus_id,omitempty"`
	Code       string `json:"kernel_code,omitempty"` // kernel form that the device runs: sm_90a, or compute_90 (PTX)
	line       string
}

type library struct {
	Name    string `json:"name"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"`
	Without string `json:"without,omitempty"` // what does not work without the library
}

// doctorOptions holds the flags of doctor.
type doctorOptions struct {
	json, cuda, refresh bool
	file, pins          string
}

func newDoctor(c *console) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check GPU, driver, memory and environment",
		Long: `Check this machine and this program, and list what would block a run, slow it down or change its numbers: ok, note,
warning or error, with the fix. doctor changes nothing and opens no device.

Exit code 1 if there is an error, or a mismatch with --fail-on-mismatch; 3 if --cuda finds no usable GPU. Notes and
warnings leave it 0.`,
		Example: `  trainer doctor
  trainer doctor --cuda --emit-json doctor.json
  trainer doctor --fail-on-mismatch pins.json --refresh-pins
  trainer doctor --cuda --fail-on-mismatch pins.json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return runDoctor(c, o, doctor.Gather(version(), built.At)) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print as JSON")
	cmd.Flags().BoolVar(&o.cuda, "cuda", false, "exit with code 3 if no GPU can be used")
	pathVar(cmd, &o.file, "emit-json", "", "also write the JSON to `FILE`")
	pathVar(cmd, &o.pins, "fail-on-mismatch", "",
		"exit with code 1 if driver, device, libraries or kernels differ from those in `FILE`")
	cmd.Flags().BoolVar(&o.refresh, "refresh-pins", false,
		"with --fail-on-mismatch: write this machine's state into the file; >= conditions that hold stay")
	return cmd
}

func runDoctor(c *console, o doctorOptions, f doctor.Facts) error {
	if o.refresh && o.pins == "" {
		return usage(errors.New("--refresh-pins: name the file: --fail-on-mismatch FILE"))
	}
	if o.file != "" {
		if err := writable(o.file, "doctor's JSON", `"cpu_features":`); err != nil {
			return usage(fmt.Errorf("--emit-json: %w", err))
		}
	}
	if o.pins != "" {
		check := regular.CheckPath
		if o.refresh {
			// ReadPins recognises files of pins
			check = func(path string) error { return writable(path, "a file of pins", "") }
		}
		if err := check(o.pins); err != nil {
			return usage(fmt.Errorf("--fail-on-mismatch: %w", err))
		}
	}
	if o.file != "" && filepath.Clean(o.file) == filepath.Clean(o.pins) {
		return usage(fmt.Errorf("--emit-json and --fail-on-mismatch name one file, %s", o.file))
	}
	f.Overrides = overrides(f.Environ)
	h := examine(f)
	if o.pins != "" {
		pins, err := doctor.ReadPins(o.pins, words.Nearest)
		if err != nil && (!o.refresh || !errors.Is(err, fs.ErrNotExist)) {
			if o.refresh {
				err = fmt.Errorf("%w; it is not replaced: delete it, or name another file", err)
			}
			return usage(err)
		}
		h.Mismatches = pins.Compare(f)
		if o.refresh {
			if err := pins.Refresh(f).Write(o.pins); err != nil {
				return err
			}
		}
	}
	if o.file != "" {
		var b bytes.Buffer
		err := writeJSON(&b, h)
		if err == nil {
			err = atomicfile.Write(o.file, b.Bytes())
		}
		if err != nil {
			return usage(fmt.Errorf("--emit-json: %w", err))
		}
	}
	if o.json {
		if err := writeJSON(c.out, h); err != nil {
			return err
		}
	} else if err := h.print(c, o); err != nil {
		return err
	}
	switch {
	case o.cuda && !h.usable():
		return unfit(errors.New("no GPU: " + h.whyNot()))
	case len(h.Problems) > 0:
		return &exitError{code: exitFailed, err: errors.New(strings.Join(h.Problems, "; "))}
	case len(h.Mismatches) > 0 && !o.refresh:
		return &exitError{code: exitFailed, err: fmt.Errorf("%d of what %s pins differs here",
			len(h.Mismatches), o.pins)}
	}
	return nil
}

// usable reports whether a run can use any GPU.
func (h health) usable() bool {
	for _, g := range h.GPUs {
		if g.Problem == "" {
			return true
		}
	}
	return false
}

// whyNot returns the reason why no GPU can be used.
func (h health) whyNot() string {
	if h.NoGPU != "" {
		return h.NoGPU
	}
	return strings.Join(h.Problems, "; ")
}

// overrides returns the environment variables that set configuration keys, and those that look as if they should but do
// not.
func overrides(environ map[string]string) (all []doctor.Override) {
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		rest, ours := strings.CutPrefix(name, config.EnvPrefix+"_")
		if !ours || environ[name] == "" {
			continue
		}
		switch path, ok := config.EnvironmentKey(rest); {
		case ok:
			all = append(all, doctor.Override{Name: name, Key: path})
		case path != "":
			all = append(all, doctor.Override{Name: name, Problem: path})
		}
	}
	return all
}

// examine derives the report from facts about the machine.
func examine(f doctor.Facts) health {
	h := health{
		Version: f.Version, Build: buildKind(), Go: runtime.Version(), Platform: f.Platform,
		Cores: f.GoMaxProcs, Features: cpuFeatures(), GPUs: []gpuHealth{}, Problems: []string{},
		Memory: f.Memory, Available: f.Available, Cards: f.Cards, NoCards: f.NoCards, KernelsSHA: f.Hardware.KernelsSHA,
		Findings: doctor.Judge(f),
	}
	found := f.Hardware
	h.NoGPU, h.Driver, h.DriverAt, h.Serves, h.Kernels = found.NoGPU, found.Driver, found.DriverFile,
		found.DriverCUDA, found.Kernels
	for i, p := range found.GPUs {
		g := gpuHealth{Index: i, Name: p.Name, Capability: fmt.Sprintf("%d.%d", p.Major, p.Minor), Memory: p.Memory,
			Precision: p.Precision.String(),
			UUID:      p.UUID, PCI: p.PCI, Code: p.Code, line: p.String()}
		if p.Problem != nil {
			g.Problem = p.Problem.Error()
		}
		h.GPUs = append(h.GPUs, g)
	}
	for _, l := range found.Libraries {
		h.Libraries = append(h.Libraries, library{l.Name, l.Path, l.Version, l.Problem, l.Without})
	}
	for _, f := range h.Findings {
		if f.Severity == doctor.Error {
			h.Problems = append(h.Problems, f.About+": "+f.Says)
		}
	}
	return h
}

func (h health) print(c *console, o doctorOptions) error {
	w := newFolded(c.out)
	w.line("trainer", "%s, %s build, %s", h.Version, h.Build, h.Go)
	features := strings.Join(h.Features, " ")
	if features == "" {
		features = "no vector extension that the kernels use"
	}
	w.line("CPU", "%s, %d cores, %s", h.Platform, h.Cores, features)
	if h.Memory > 0 {
		w.line("memory", "%s, %s available", session.FormatBytes(h.Memory), session.FormatBytes(h.Available))
	}
	if h.Kernels != "" {
		w.line("kernels", "%s", h.Kernels)
	}
	if h.Serves != "" {
		version := h.Driver
		if version == "" {
			version = "of unknown version"
		}
		w.line("driver", "%s, serves CUDA %s, %s", version, h.Serves, h.DriverAt)
	}
	if len(h.GPUs) == 0 {
		w.line("GPU", "none: %s", h.NoGPU)
		w.line("", "without it: runs use the CPU, and device: cuda is refused")
	}
	told := map[string]bool{} // problems that are printed with their device
	for _, g := range h.GPUs {
		w.line(fmt.Sprintf("GPU %d", g.Index), "%s, precision %s unless asked otherwise", g.line, g.Precision)
		if g.Problem != "" {
			w.line("", "problem: %s", g.Problem)
			told[g.Problem] = true
		}
	}
	for _, l := range h.Libraries {
		if l.Problem != "" {
			w.line("library", "%s: %s", l.Name, l.Problem)
			w.line("", "without it: %s", l.Without)
			continue
		}
		w.line("library", "%s %s, %s", l.Name, l.Version, l.Path)
	}
	count := map[doctor.Severity]int{}
	w.line("", "")
	for _, f := range h.Findings {
		count[f.Severity]++
		if !told[f.Says] {
			w.line(string(f.Severity), "%s", f)
		}
	}
	for _, m := range h.Mismatches {
		w.line("mismatch", "%s", m)
	}
	summary := fmt.Sprintf("%d ok, %s, %s, %s", count[doctor.OK], counted(count[doctor.Note], "note"),
		counted(count[doctor.Warning], "warning"), counted(count[doctor.Error], "error"))
	if o.pins != "" {
		summary += fmt.Sprintf("; %s: %s", o.pins, counted(len(h.Mismatches), "mismatch"))
		if o.refresh {
			summary += ", written anew"
		}
	}
	w.line("", "")
	w.line("findings", "%s", summary)
	return w.flush()
}

// counted formats a number of things: "no error", "1 error", "2 errors".
func counted(n int, what string) string {
	switch {
	case n == 0:
		return "no " + what
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// cpuFeatures lists the CPU features that the kernels test for.
func cpuFeatures() []string {
	var have []string
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"sse4.1", cpu.X86.HasSSE41}, {"avx", cpu.X86.HasAVX}, {"avx2", cpu.X86.HasAVX2}, {"fma", cpu.X86.HasFMA},
		{"avx512f", cpu.X86.HasAVX512F}, {"avx512bw", cpu.X86.HasAVX512BW}, {"avx512vl", cpu.X86.HasAVX512VL},
		{"avx512vnni", cpu.X86.HasAVX512VNNI}, {"avx512bf16", cpu.X86.HasAVX512BF16},
		{"asimd", cpu.ARM64.HasASIMD}, {"sve", cpu.ARM64.HasSVE},
	} {
		if f.ok {
			have = append(have, f.name)
		}
	}
	return have
}
