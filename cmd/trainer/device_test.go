//go:build gpu

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/kernel/gpu/libcuda"
)

// envFault makes this binary, as the program, lose its device: "FILE CODE", all of the driver answers CODE once
// FILE is there.
const envFault = "TRAINER_TEST_FAULT"

func init() {
	file, code, ok := strings.Cut(os.Getenv(envFault), " ")
	if !ok {
		return
	}
	number, err := strconv.Atoi(code)
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			if _, err := os.Stat(file); err == nil {
				libcuda.Fail("*", number) //nolint:errcheck // never restored: the process ends
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
}

// TestGPULostDeviceEndsTheRun: the device is lost somewhere after a checkpoint. The program says so and ends with 1;
// --resume auto then ends with the adapter of a run that nothing happened to.
func TestGPULostDeviceEndsTheRun(t *testing.T) {
	if n, reason := gpu.Devices(); n == 0 {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatalf("TRAINER_GPU=require: %s", reason)
		}
		t.Skip(reason)
	}
	dir := t.TempDir()
	args := func(out string, more ...string) []string {
		return append([]string{"train", "--config", "cpu_stories_quick", "--set", "device=cuda", "--set",
			"training.max_steps=600", "--set", "training.save_steps=20",
			"--set", "expect.loss_decrease=0", "--set", "output_dir=" + out}, more...)
	}
	if code, _, errOut := trainer(t, dir, nil, "", args("whole")...); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	code, _, errOut := trainer(t, dir, []string{envFault + "=parts/checkpoint-40 700"}, "", args("parts")...)
	lines := strings.Split(strings.TrimSpace(errOut), "\n")
	t.Log(lines[len(lines)-1])
	if code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	for _, want := range []string{"trainer: after step ", " of 600: ", "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
		"the device context is lost, restart the program", "is whole: --resume auto continues from it", "; GPU 0 ("} {
		if !strings.Contains(lines[len(lines)-1], want) {
			t.Errorf("the last line does not say %q:\n%s", want, errOut)
		}
	}
	if strings.Contains(errOut, "goroutine ") {
		t.Errorf("it panics:\n%s", errOut)
	}
	if code, _, errOut := trainer(t, dir, nil, "", args("parts", "--resume", "auto")...); code != 0 ||
		!strings.Contains(errOut, "resumed from parts/checkpoint-") {
		t.Fatalf("resumed: exit code %d\n%s", code, errOut)
	}
	var adapters [2][]byte
	for i, run := range []string{"whole", "parts"} {
		var err error
		if adapters[i], err = os.ReadFile(filepath.Join(dir, run, "adapter_model.safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(adapters[0], adapters[1]) {
		t.Error("the run that lost its device and was resumed trains another adapter")
	}
}

// imaginary compiles a driver that answers what the environment says, and returns the variable that makes the
// program find it.
func imaginary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.580.1.2"),
		filepath.Join("testdata", "driver.c")).CombinedOutput()
	if err != nil {
		t.Skipf("a test driver needs a C compiler: %v\n%s", err, out)
	}
	if err := os.Symlink("libcuda.so.580.1.2", filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	return "LD_LIBRARY_PATH=" + dir
}

// TestDoctorOnDrivers: what doctor says of drivers and devices that this machine need not have.
func TestDoctorOnDrivers(t *testing.T) {
	path, dir := imaginary(t), t.TempDir()
	for _, c := range []struct {
		name       string
		env        []string
		code, cuda int // exit codes, of doctor and of doctor --cuda
		want       []string
	}{
		{"a device", nil, 0, 0, []string{"kernels   built with CUDA 12.9",
			"need driver 525.60 or newer, from 10.0 on 570", ", serves CUDA 13.0, ", "libcuda.so.1",
			"GPU 0     Imaginary GPU, compute capability 8.9, 128 SMs, 24.0 GiB, driver for CUDA 13.0",
			"library   cuBLASLt"}},
		{"an old driver", []string{"FAKE_CUDA=11080"}, 1, 3, []string{
			"problem: the NVIDIA driver is too old: it serves CUDA 11.8, and the kernels, built with CUDA 12.9, need " +
				"a driver for CUDA 12.0 or later (525.60 or newer); update the driver"}},
		{"an old driver for a new chip", []string{"FAKE_CUDA=12040", "FAKE_MAJOR=12", "FAKE_MINOR=0"}, 1, 3,
			[]string{"it serves CUDA 12.4", "need a driver for CUDA 12.8 or later (570 or newer)"}},
		{"an old chip", []string{"FAKE_MAJOR=7", "FAKE_MINOR=5"}, 1, 3,
			[]string{"compute capability 7.5 is not supported: the kernels need 8.0 (Ampere) or later"}},
		{"no device", []string{"FAKE_DEVICES=0"}, 0, 3, []string{"GPU       none: the NVIDIA driver shows no device",
			"without it: runs use the CPU"}},
		{"no device visible", []string{"FAKE_INIT=100", "CUDA_VISIBLE_DEVICES="}, 0, 3,
			[]string{`GPU       none: the NVIDIA driver shows no device; CUDA_VISIBLE_DEVICES is ""`}},
		{"an update without a restart", []string{"FAKE_INIT=803"}, 0, 3,
			[]string{"GPU       none: the NVIDIA driver did not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
				"restart after an update"}},
		{"no driver", []string{"LD_LIBRARY_PATH=", "PATH="}, 0, 3,
			[]string{"GPU       none: no NVIDIA driver: libcuda.so.1: "}},
	} {
		if c.name == "no driver" && os.Getenv("TRAINER_GPU") == "require" {
			continue // this machine has one
		}
		env := append([]string{path}, c.env...)
		code, out, errOut := trainer(t, dir, env, "", "doctor")
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: doctor does not say %q:\n%s", c.name, w, out)
			}
		}
		if cuda, _, errCUDA := trainer(t, dir, env, "", "doctor", "--cuda"); code != c.code || cuda != c.cuda {
			t.Errorf("%s: exit codes %d and %d, want %d and %d\n%s%s", c.name, code, cuda, c.code, c.cuda,
				errOut, errCUDA)
		}
		if c.code != 0 || c.cuda != 0 {
			code, _, errOut := trainer(t, dir, env, "", "train", "--config", "gpu_smollm2_quick", "--set",
				"base_model=embedded:stories260K")
			if code != 3 || !strings.Contains(errOut, "trainer: device") {
				t.Errorf("%s: a run on it ends with %d, want 3\n%s", c.name, code, errOut)
			}
		}
	}
	var h health
	if _, out, _ := trainer(t, dir, []string{path, "FAKE_CUDA=12040"}, "", "doctor", "--json"); json.Unmarshal(
		[]byte(out), &h) != nil ||
		h.Serves != "12.4" || !strings.HasSuffix(h.DriverAt, "libcuda.so.1") || len(h.GPUs) != 1 ||
		h.GPUs[0].Memory != 24<<30 || h.Driver == "" {
		t.Errorf("doctor --json: %+v", h)
	}
}
