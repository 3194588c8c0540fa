package doctor

import (
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/safetext"
)

// variable is an environment variable that affects a run, or that people set for other programs.
type variable struct {
	name     string
	matters  func(value string) bool // nil = it matters with any value
	severity Severity
	says     string
	remedy   string
	gpu      bool // it only matters with a GPU
}

func is(values ...string) func(string) bool {
	return func(v string) bool {
		for _, w := range values {
			if strings.EqualFold(v, w) {
				return true
			}
		}
		return false
	}
}

func isNot(values ...string) func(string) bool {
	in := is(values...)
	return func(v string) bool { return !in(v) }
}

// looked lists the checked variables in the order of the report. Variables that change numbers come first; then those
// that affect time and memory; then those that have no effect here, because people copy them from other programs.
var looked = []variable{
	{name: "NVIDIA_TF32_OVERRIDE", matters: is("0"), severity: Warning, gpu: true, says: "cuBLASLt multiplies in fp32 where training.precision: tf32 asks for TF32: other numbers, and slower", remedy: "unset it"},
	{name: "CUBLAS_EMULATE_SINGLE_PRECISION", matters: isNot("0"), severity: Warning, gpu: true, says: "cuBLASLt may work fp32 products out of 16-bit ones: other rounding in fp32", remedy: "unset it"},
	{name: "CUBLAS_EMULATION_STRATEGY", matters: isNot("0", "default"), severity: Warning, gpu: true, says: "cuBLASLt may work fp32 products out of 16-bit ones: other rounding in fp32", remedy: "unset it"},
	{name: "TRAINER_CPU", severity: Note, says: "chooses the CPU's instructions: the last bits on a CPU follow it"},
	{name: "TRAINER_CUBLASLT", severity: Note, gpu: true, says: "names the cuBLASLt that is used: numbers follow its version"},
	{name: "TRAINER_NCCL", severity: Note, gpu: true, says: "names the folder of the NCCL that several GPUs train over; no number follows it"},
	{name: "TRAINER_SHARE_GPU", severity: Note, gpu: true, says: "makes each GPU stand for several devices, for trials of several ranks: slower, equal numbers"},
	{name: "CUDA_VISIBLE_DEVICES", severity: Note, gpu: true, says: "chooses the cards that are seen; GPU 0 is the first of them"},
	{name: "CUDA_DEVICE_ORDER", severity: Note, gpu: true, says: "chooses how cards are numbered; nvidia-smi counts by PCI_BUS_ID"},
	{name: "CUDA_MPS_PIPE_DIRECTORY", severity: Note, gpu: true, says: "shares the card with other programs by MPS: times depend on them"},
	{name: "CUDA_LAUNCH_BLOCKING", matters: isNot("0"), severity: Warning, gpu: true, says: "the host waits for every kernel: slower, equal numbers", remedy: "unset it"},
	{name: "CUDA_MODULE_LOADING", matters: is("EAGER"), severity: Note, gpu: true, says: "loads all kernels at the start: a longer start and more memory, equal numbers"},
	{name: "CUDA_DEVICE_MAX_CONNECTIONS", severity: Note, gpu: true, says: "changes how much work overlaps, no number"},
	{name: "NCCL_P2P_DISABLE", matters: isNot("0"), severity: Note, gpu: true, says: "NCCL goes by the host between GPUs: slower, equal numbers"},
	{name: "NCCL_DEBUG", severity: Note, gpu: true, says: "NCCL writes what it does; equal numbers"},
	{name: "CUBLASLT_LOG_LEVEL", matters: isNot("0"), severity: Note, gpu: true, says: "cuBLASLt writes what it does: slower, equal numbers"},
	{name: "GOMEMLIMIT", severity: Note, says: "too low a limit makes the program collect garbage all the time; numbers do not depend on it"},
	{name: "GOGC", severity: Note, says: "changes when garbage is collected; numbers do not depend on it"},
	{name: "GODEBUG", severity: Note, says: "changes the Go runtime"},
	{name: "LD_PRELOAD", severity: Note, says: "loads another library into every program"},
	{name: "CUBLAS_WORKSPACE_CONFIG", severity: Note, gpu: true, says: "does nothing here: the program gives cuBLASLt its workspace and takes only algorithms that repeat bit for bit"},
	{name: "PYTORCH_CUDA_ALLOC_CONF", severity: Note, gpu: true, says: "does nothing here: memory is planned and taken at once"},
	{name: "OMP_NUM_THREADS", severity: Note, says: "does nothing here: --workers chooses the CPU's threads"},
}

func (l *findings) variables(f Facts) {
	told := false
	for _, v := range looked {
		value, set := f.Environ[v.name]
		if !set || value == "" && v.name != "CUDA_VISIBLE_DEVICES" || v.gpu && len(f.Hardware.GPUs) == 0 || v.matters != nil && !v.matters(value) {
			continue
		}
		l.add(v.severity, v.name+"="+Shown(value), v.remedy, "%s", v.says)
		told = true
	}
	for _, o := range f.Overrides {
		told = true
		switch {
		case o.Problem != "":
			l.add(Warning, o.Name, "unset it, or correct its name: every run is refused", "%s", o.Problem)
		case o.Key != "":
			l.add(Note, o.Name+"="+Shown(f.Environ[o.Name]), "unset it where that is not meant", "sets %s of every configuration", o.Key)
		}
	}
	if !told {
		l.add(OK, "environment", "", "no variable changes numbers or memory")
	}
}

// Shown returns untrusted text as a terminal may show it: without control characters and secrets, at most 80
// characters.
func Shown(s string) string {
	s = safetext.Mask(s)
	s = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 80 {
		s = string(r[:79]) + "…"
	}
	return s
}
