//go:build gpu

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctorOnCards: what doctor says of cards that this machine does not have, by a driver and an NVML that answer
// what the environment says.
func TestDoctorOnCards(t *testing.T) {
	path := imaginary(t)
	dir, cc := strings.TrimPrefix(path, "LD_LIBRARY_PATH="), os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	source := filepath.Join("..", "..", "kernel", "gpu", "testdata", "nvml.c")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), source).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		env  string
		code int
		want string
	}{
		{"", 0, "ok        GPU 0 memory: 23.0 GiB of 24.0 GiB free, no other process"},
		{"FAKE_PROCESSES=1 FAKE_USED_MIB=9000", 0,
			"warning   GPU 0 memory: 14.8 GiB of 24.0 GiB free; other processes: 4000000 1.0 GiB; end them"},
		{"FAKE_TEMPERATURE=91", 0, "warning   GPU 0 temperature: 91 C, slows down at 90"},
		{"FAKE_REASONS=64", 0, "warning   GPU 0 clocks: throttled now: temperature (hardware)"},
		{"FAKE_LIMIT=200000", 0, "warning   GPU 0 clocks: the power limit is 200 W, the card's own is 450 W"},
		{"FAKE_ECC=1 FAKE_UNCORRECTED=2", 0,
			"warning   GPU 0 ECC: 2 errors since the driver started that could not be corrected"},
		{"FAKE_REMAPPED=1 FAKE_REMAP_FAILED=1", 1, "error     GPU 0 ECC: a damaged memory row could not be replaced"},
		{"FAKE_COMPUTE_MODE=2", 1, "error     GPU 0 mode: compute mode prohibited"},
		{"FAKE_LOST=15", 1, "error     GPU 0 state: NVML answers 15: the GPU has fallen off the bus"},
		{"FAKE_NVML_INIT=9", 0, "note      NVML: nvmlInit answers 9: the NVIDIA driver is not loaded"},
		{"FAKE_UUID=GPU-1", 0, "NVML lists no card of its UUID or bus id"},
		{"FAKE_MAJOR=10 FAKE_MINOR=3 CUDA_DISABLE_PTX_JIT=1", 1, "error     GPU 0 kernels: this device needs PTX to " +
			"be compiled (compute_90), which the environment forbids"},
	} {
		code, out, errOut := trainer(t, t.TempDir(), append(strings.Fields(c.env), path), "", "doctor")
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s%s", c.env, code, c.code, c.want, out, errOut)
		}
	}
	var h health
	_, out, _ := trainer(t, t.TempDir(), []string{path, "FAKE_ECC=1"}, "", "doctor", "--json")
	if err := json.Unmarshal([]byte(out), &h); err != nil || len(h.Cards) != 2 || h.Cards[0].ECC != "enabled" ||
		h.KernelsSHA == "" || h.GPUs[0].Code != "sm_89" || h.GPUs[0].UUID == "" {
		t.Errorf("%v\n%s", err, out)
	}
}
