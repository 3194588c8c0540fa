//go:build gpu

package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel/gpu"
)

// envProgram names a program built with the tag gpu, for a machine that has a GPU and no Go.
const envProgram = "TRAINER_BINARY"

func needGPU(t testing.TB) {
	t.Helper()
	if n, reason := gpu.Devices(); n == 0 {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatalf("TRAINER_GPU=require: %s", reason)
		}
		t.Skip(reason)
	}
}

// gpuProgram is the program with GPU support.
func gpuProgram(t testing.TB) string {
	t.Helper()
	if p := os.Getenv(envProgram); p != "" {
		return p
	}
	out := filepath.Join(t.TempDir(), "trainer")
	cmd := exec.Command("go", "build", "-tags", "gpu", "-o", out, "./cmd/trainer")
	cmd.Dir = golden.Root(t)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, msg)
	}
	return out
}

// onGPU is a call of the program that trains the README's model on the GPU.
func onGPU(program, dir, out string, settings ...string) *exec.Cmd {
	args := []string{"train", "--config", "cpu_stories_quick.yaml", "--set", "device=cuda", "--set", "output_dir=" + out, "--set", "training.logging_steps=1",
		"--set", "training.max_steps=40", "--set", "expect.loss_decrease=0"}
	for _, s := range settings {
		if strings.HasPrefix(s, "-") {
			args = append(args, strings.Fields(s)...)
		} else {
			args = append(args, "--set", s)
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	return cmd
}

func finish(t testing.TB, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// losses are a run's, step by step.
func losses(t testing.TB, dir string) []float64 {
	t.Helper()
	var out []float64
	for _, line := range strings.Split(strings.TrimSpace(read(t, dir, "metrics.jsonl")), "\n") {
		var m struct {
			Loss *float64 `json:"loss"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Loss != nil {
			out = append(out, *m.Loss)
		}
	}
	return out
}

// holdMemory takes nearly all of the device's memory until the test ends, and returns what it holds and what there is.
func holdMemory(t *testing.T) (held, total int64) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := gpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() }) //nolint:errcheck // the test is over
	free, total, err := d.Free()
	if err != nil {
		t.Fatal(err)
	}
	// Some memory stays free for the other process's context, which the driver takes before anything can be refused.
	hold, err := d.NewArena("held by the test", free-(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hold.Free(); err != nil {
			t.Error(err)
		}
	})
	return hold.Bytes, total
}

// TestGPUFullDevice: while another process holds nearly all memory, a run is refused by its plan, exit code 4,
// and the checkpoints of an earlier run stay as they are.
func TestGPUFullDevice(t *testing.T) {
	needGPU(t)
	program, dir := gpuProgram(t), t.TempDir()
	if o := finish(t, onGPU(program, dir, "parts", "training.save_steps=4", "training.max_steps=8")); o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	before := withoutJournal(t, filepath.Join(dir, "parts"))

	held, total := holdMemory(t)
	began := time.Now()
	o := finish(t, onGPU(program, dir, "refused"))
	t.Logf("%d of %d bytes held: exit code %d after %v\n%s", held, total, o.code, time.Since(began).Round(time.Millisecond), o.stderr)
	if o.code != 4 || !strings.Contains(o.stderr, "does not fit") || !strings.Contains(o.stderr, "other programs hold the memory of") {
		t.Errorf("on a full device: exit code %d, want 4\n%s", o.code, o.stderr)
	}
	if left := withoutJournal(t, filepath.Join(dir, "refused")); strings.Contains(left, "\n") {
		t.Errorf("the refused run left more than its log and status:\n%s", left)
	}
	if o := finish(t, onGPU(program, dir, "parts", "--resume auto")); o.code != 4 {
		t.Errorf("resumed on a full device: exit code %d, want 4\n%s", o.code, o.stderr)
	}
	if withoutJournal(t, filepath.Join(dir, "parts")) != before {
		t.Error("the refused run changed the folder of the earlier one")
	}
	if _, err := os.Stat(filepath.Join(dir, "parts", "checkpoint-8")); err != nil {
		t.Errorf("the checkpoint is gone: %v", err)
	}
}

// TestGPUAllocationFails: vram: says that there is free memory and the driver says that there is none. The error names the
// memory, the call and the driver's code, and nothing is left behind.
func TestGPUAllocationFails(t *testing.T) {
	needGPU(t)
	program, dir := gpuProgram(t), t.TempDir()
	holdMemory(t)
	o := finish(t, onGPU(program, dir, "run", "vram=100GiB", "training.batch_size=256"))
	t.Logf("exit code %d\n%s", o.code, o.stderr)
	if o.code == 0 || !strings.Contains(o.stderr, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)") || !strings.Contains(o.stderr, "arena") {
		t.Errorf("exit code %d, want a failure that names arena, call and code\n%s", o.code, o.stderr)
	}
	if strings.Contains(o.stderr, "goroutine") {
		t.Errorf("it panics:\n%s", o.stderr)
	}
}

// TestGPUWithoutBLAS: a missing cuBLASLt is said by doctor, and a run continues with native GEMMs.
func TestGPUWithoutBLAS(t *testing.T) {
	needGPU(t)
	program, dir := gpuProgram(t), t.TempDir()
	const missing = "TRAINER_CUBLASLT=/nonexistent/libcublasLt.so"
	cmd := exec.Command(program, "doctor")
	cmd.Env = append(os.Environ(), missing)
	o := finish(t, cmd)
	t.Logf("doctor: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	if !strings.Contains(o.stdout, "TRAINER_CUBLASLT") || !strings.Contains(o.stdout, "without it") {
		t.Errorf("doctor does not say what is missing and what that costs:\n%s", o.stdout)
	}
	if o := finish(t, onGPU(program, dir, "with")); o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	cmd = onGPU(program, dir, "without")
	cmd.Env = append(cmd.Env, missing)
	const slow = "slow path: GEMMs run on the built-in kernels, as cuBLASLt is missing"
	if o := finish(t, cmd); o.code != 0 || !strings.Contains(o.stderr, slow) {
		t.Fatalf("without cuBLASLt: exit code %d, want 0 and %q\n%s", o.code, slow, o.stderr)
	}
	cmd = onGPU(program, dir, "strict", "--strict")
	cmd.Env = append(cmd.Env, missing)
	if o := finish(t, cmd); o.code != 3 || !strings.Contains(o.stderr, "the run would leave a fast path") {
		t.Errorf("without cuBLASLt, --strict: exit code %d, want 3\n%s", o.code, o.stderr)
	}
	a, b := losses(t, filepath.Join(dir, "with")), losses(t, filepath.Join(dir, "without"))
	if len(a) == 0 || len(a) != len(b) {
		t.Fatalf("%d and %d losses", len(a), len(b))
	}
	sum, worst := 0.0, 0.0
	for i := range a {
		d := math.Abs(a[i] - b[i])
		sum, worst = sum+d/float64(len(a)), math.Max(worst, d)
	}
	t.Logf("%d steps: losses differ by %.4g in the mean, %.4g at most", len(a), sum, worst)
	if !(sum < 0.02) {
		t.Errorf("losses differ by %.4g in the mean: %v, without cuBLASLt %v", sum, a, b)
	}
}

// TestGPUKilledProgramResumes kills the program with SIGKILL in the middle of a run and resumes it.
func TestGPUKilledProgramResumes(t *testing.T) {
	needGPU(t)
	program, dir := gpuProgram(t), t.TempDir()
	settings := []string{"training.max_steps=400", "training.save_steps=5"}
	if o := finish(t, onGPU(program, dir, "whole", settings...)); o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	cmd := onGPU(program, dir, "parts", settings...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 20000 {
		if found, _ := filepath.Glob(filepath.Join(dir, "parts", "checkpoint-[1-9]*5")); len(found) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cmd.Process.Kill() //nolint:errcheck // Wait tells
	if err := cmd.Wait(); err == nil {
		t.Fatal("the run ended before it was killed")
	}
	if _, err := os.Stat(filepath.Join(dir, "parts", "adapter_model.safetensors")); err == nil {
		t.Error("the killed run left an adapter as if it had ended")
	}
	o := finish(t, onGPU(program, dir, "parts", append(settings, "--resume auto")...))
	at := strings.Index(o.stderr, "resumed from parts/checkpoint-")
	if o.code != 0 || at < 0 {
		t.Fatalf("resumed: exit code %d\n%s", o.code, o.stderr)
	}
	line, _, _ := strings.Cut(o.stderr[at:], "\n")
	t.Log(line)
	if read(t, dir, "whole/adapter_model.safetensors") != read(t, dir, "parts/adapter_model.safetensors") {
		t.Error("the killed and resumed run trains another adapter")
	}
}

// TestGPUDriverErrors: an error of the driver says what was being done, with the kernel's or module's name, the call
// and the code. None of these ends the context.
func TestGPUDriverErrors(t *testing.T) {
	needGPU(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := gpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // the test is over
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	_, tooMuch := d.NewArena("activations", 1<<50)
	_, noImage := d.Load("attention", []byte("no image at all, and long enough to be looked at by the driver"))
	ptx := []byte(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry known() { ret; }\n\x00")
	m, err := d.Load("known", ptx)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unload() //nolint:errcheck // the test is over
	_, noKernel := m.Function("unknown")
	f, err := m.Function("known")
	if err != nil {
		t.Fatal(err)
	}
	refused := launchError(f, s)
	for _, c := range []struct {
		what string
		err  error
		want []string
	}{
		{"an arena larger than the device", tooMuch, []string{"activations", "cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "(2)", "free"}},
		{"a module that is none", noImage, []string{"attention", "cuModuleLoadData", "CUDA_ERROR_"}},
		{"a kernel that is not there", noKernel, []string{"unknown", "known", "cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND", "(500)"}},
		{"a launch that the device refuses", refused, []string{"known"}},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.what)
			continue
		}
		t.Logf("%s: %v", c.what, c.err)
		for _, w := range c.want {
			if !strings.Contains(c.err.Error(), w) {
				t.Errorf("%s: the error does not say %q: %v", c.what, w, c.err)
			}
		}
		var e *gpu.Error
		if errors.As(c.err, &e) && e.Sticky() {
			t.Errorf("%s: it ended the context: %v", c.what, c.err)
		}
	}
	if err := d.Synchronize(); err != nil {
		t.Errorf("the device is lost: %v", err)
	}
}

// launchError prepares and runs a launch with more threads a block than any device has.
func launchError(f *gpu.Function, s *gpu.Stream) error {
	l, err := f.Prepare([3]int{1, 1, 1}, [3]int{2048, 1, 1}, 0)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	defer l.Free()
	return l.Run(s)
}
