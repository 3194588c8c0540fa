package tests

import (
	"os"
	"os/exec"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestServeWithOpenAIsClient: scripts/serve_check.py, on the embedded model. TRAINER_PYTHON names a Python with openai.
func TestServeWithOpenAIsClient(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import openai").Run(); err != nil {
		t.Skipf("%s has no openai; TRAINER_PYTHON names one that has", python)
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "scripts/serve_check.py", "--trainer", bin, "--model", "embedded:stories260K", "--chat-template", "chatml", "--clients", "64")
	cmd.Dir = golden.Root(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
