package tests

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestTierWithoutGPU: the tiers' harness ends with 3 and says why where no GPU can be used, and with 2 where it is
// asked for something else.
func TestTierWithoutGPU(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("scripts/gpu-test.sh needs python3: ", err)
	}
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	tier := func(args ...string) (int, string) {
		cmd := exec.Command(filepath.Join(golden.Root(t), "scripts", "gpu-test.sh"), args...)
		cmd.Env = append(os.Environ(), "PYTHON="+python, "TRAINER="+program, "CUDA_VISIBLE_DEVICES=")
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	if code, text := tier("quick", out); code != 3 || !strings.Contains(text, "FAIL  a usable GPU: trainer: no GPU: ") {
		t.Errorf("exit code %d, want 3\n%s", code, text)
	}
	var summary struct {
		Tier string `json:"tier"`
		OK   bool   `json:"ok"`
	}
	if err := json.Unmarshal([]byte(read(t, out, "summary.json")), &summary); err != nil || summary.Tier != "quick" || summary.OK {
		t.Errorf("summary.json: %+v, %v", summary, err)
	}
	if !strings.Contains(read(t, out, "summary.txt"), "quick (gpu_smollm2_quick.yaml): FAILED") {
		t.Errorf("summary.txt:\n%s", read(t, out, "summary.txt"))
	}
	if code, text := tier("quickly", out); code != 2 || !strings.Contains(text, "quick|convergence|memory|extended|full") {
		t.Errorf("an unknown tier: exit code %d, want 2\n%s", code, text)
	}
}
