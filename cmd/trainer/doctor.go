package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// health is what doctor finds.
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
	Driver    string      `json:"driver,omitempty"` // its own version, where it says
	DriverAt  string      `json:"driver_library,omitempty"`
	Serves    string      `json:"driver_cuda,omitempty"` // newest CUDA version that the driver serves
	Kernels   string      `json:"kernels,omitempty"`     // what the kernels in the program are built with, and the driver they need
	Libraries []library   `json:"libraries,omitempty"`
	Problems  []string    `json:"problems"`
}

type gpuHealth struct {
	Index      int    `json:"index"`
	Name       string `json:"name"`
	Capability string `json:"compute_capability"`
	Memory     int64  `json:"memory_bytes"`
	Precision  string `json:"precision"` // that training.precision: auto takes
	Problem    string `json:"problem,omitempty"`
	line       string
}

type library struct {
	Name    string `json:"name"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Problem string `json:"problem,omitempty"`
	Without string `json:"without,omitempty"` // what its absence costs
}

func newDoctor(c *console) *cobra.Command {
	var asJSON, wantGPU bool
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine and this binary can do",
		Example: `  trainer doctor
  trainer doctor --cuda --emit-json doctor.json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			h := examine()
			if file != "" {
				if err := plainFile(file); err != nil {
					return usage(fmt.Errorf("--emit-json: %w", err))
				}
				f, err := os.Create(file)
				if err != nil {
					return usage(fmt.Errorf("--emit-json: %w", err))
				}
				if err := errors.Join(writeJSON(f, h), f.Close()); err != nil {
					return fmt.Errorf("--emit-json: %w", err)
				}
			}
			if asJSON {
				if err := writeJSON(c.out, h); err != nil {
					return err
				}
			} else if err := h.print(c); err != nil {
				return err
			}
			if wantGPU && !h.usable() {
				return unfit(errors.New("no GPU: " + h.whyNot()))
			}
			if len(h.Problems) > 0 {
				return &exitError{code: exitFailed, err: errors.New(strings.Join(h.Problems, "; "))}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().BoolVar(&wantGPU, "cuda", false, "fail (exit 3) where no GPU can be used")
	pathVar(cmd, &file, "emit-json", "", "also write the JSON to `FILE`")
	return cmd
}

// usable tells whether a run can use some GPU.
func (h health) usable() bool {
	for _, g := range h.GPUs {
		if g.Problem == "" {
			return true
		}
	}
	return false
}

// whyNot is why no GPU can be used.
func (h health) whyNot() string {
	if h.NoGPU != "" {
		return h.NoGPU
	}
	return strings.Join(h.Problems, "; ")
}

func examine() health {
	h := health{
		Version: version(), Build: buildKind(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.GOMAXPROCS(0), Features: cpuFeatures(), GPUs: []gpuHealth{}, Problems: []string{},
	}
	h.Memory, h.Available = memory()
	found := graph.FindHardware()
	h.NoGPU, h.Driver, h.DriverAt, h.Serves, h.Kernels = found.NoGPU, found.Driver, found.DriverFile, found.DriverCUDA, found.Kernels
	for i, p := range found.GPUs {
		g := gpuHealth{Index: i, Name: p.Name, Capability: fmt.Sprintf("%d.%d", p.Major, p.Minor), Memory: p.Memory, Precision: p.Precision.String(), line: p.String()}
		if p.Problem != nil {
			g.Problem = p.Problem.Error()
			h.Problems = append(h.Problems, fmt.Sprintf("GPU %d: %v", i, p.Problem))
		}
		h.GPUs = append(h.GPUs, g)
	}
	for _, l := range found.Libraries {
		h.Libraries = append(h.Libraries, library{l.Name, l.Path, l.Version, l.Problem, l.Without})
	}
	return h
}

func (h health) print(c *console) error {
	w := bufio.NewWriter(c.out)
	fmt.Fprintf(w, "trainer   %s, %s build, %s\n", h.Version, h.Build, h.Go)
	features := strings.Join(h.Features, " ")
	if features == "" {
		features = "no vector extension that the kernels use"
	}
	fmt.Fprintf(w, "CPU       %s, %d cores, %s\n", h.Platform, h.Cores, features)
	if h.Memory > 0 {
		fmt.Fprintf(w, "memory    %s, %s available\n", session.FormatBytes(h.Memory), session.FormatBytes(h.Available))
	}
	if h.Kernels != "" {
		fmt.Fprintf(w, "kernels   %s\n", h.Kernels)
	}
	if h.Serves != "" {
		version := h.Driver
		if version == "" {
			version = "of unknown version"
		}
		fmt.Fprintf(w, "driver    %s, serves CUDA %s, %s\n", version, h.Serves, h.DriverAt)
	}
	if len(h.GPUs) == 0 {
		fmt.Fprintf(w, "GPU       none: %s\n          without it: runs use the CPU, and device: cuda is refused\n", h.NoGPU)
	}
	for _, g := range h.GPUs {
		fmt.Fprintf(w, "GPU %d     %s, precision %s unless asked otherwise\n", g.Index, g.line, g.Precision)
		if g.Problem != "" {
			fmt.Fprintf(w, "          problem: %s\n", g.Problem)
		}
	}
	for _, l := range h.Libraries {
		switch {
		case l.Problem != "":
			fmt.Fprintf(w, "library   %s: %s\n          without it: %s\n", l.Name, l.Problem, l.Without)
		default:
			fmt.Fprintf(w, "library   %s %s, %s\n", l.Name, l.Version, l.Path)
		}
	}
	return w.Flush()
}

// cpuFeatures are those that the CPU kernels look at.
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

// memory is the machine's memory in bytes, 0 where the system does not say.
func memory() (total, available int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
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
