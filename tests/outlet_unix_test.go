//go:build unix

package tests

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// fullPipe is the end of a pipe that nobody reads and that takes no more bytes.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Skip("a pipe without deadlines cannot be filled: ", err)
	}
	for err == nil {
		_, err = w.Write([]byte("x"))
		if err == nil {
			_, err = w.Write(make([]byte, 4096))
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return w
}

// closedPipe is the end of a pipe whose other end is closed.
func closedPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// TestNobodyReads: a run whose output and messages go to a pipe that nobody reads, or that is closed, trains to its end and
// writes the adapter of any other run.
func TestNobodyReads(t *testing.T) {
	args := []string{"train", "--config", "config.yaml", "--set", "training.max_steps=50", "--set", "training.logging_steps=1"}
	free := newWorkplace(t)
	mustRun(t, free.dir, args...)
	for name, pipe := range map[string]func(*testing.T) *os.File{"full": fullPipe, "closed": closedPipe} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkplace(t)
			cmd := command(t, w.dir, args...)
			cmd.Stdout = pipe(t)
			cmd.Stderr = cmd.Stdout
			if err := cmd.Run(); err != nil {
				t.Fatalf("the run ended with %v", err)
			}
			if w.read("out/adapter_model.safetensors") != free.read("out/adapter_model.safetensors") {
				t.Error("the adapter is another one")
			}
			if n := strings.Count(w.read("out/metrics.jsonl"), "\n"); n != 51 {
				t.Errorf("%d lines of metrics, want 50 steps and the end", n)
			}
		})
	}
}

// TestFileLimit: a limit on the size of files ends a run as a full disk does: with a message that names the file and the
// checkpoint to go on from, and exit code 1.
func TestFileLimit(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	free, w := newWorkplace(t), newWorkplace(t)
	for _, w := range []workplace{free, w} {
		mustRun(t, w.dir, with("--set", "training.max_steps=2")...)
	}
	mustRun(t, free.dir, train...)
	before := snapshot(t, w.dir+"/out/checkpoint-2")
	cmd := command(t, w.dir, train...)
	cmd.Args = append([]string{shell, "-c", `ulimit -f 8; exec "$@"`, "sh", cmd.Path}, train...)
	cmd.Path = shell
	out, _ := cmd.CombinedOutput() //nolint:errcheck // the exit code tells
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "ulimit -f") || !strings.Contains(string(out), "out/checkpoint-2 is whole: --resume auto continues from it") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if snapshot(t, w.dir+"/out/checkpoint-2") != before {
		t.Error("the checkpoint was changed")
	}
	mustRun(t, w.dir, train...)
	if w.read("out/adapter_model.safetensors") != free.read("out/adapter_model.safetensors") {
		t.Error("the adapter is another one")
	}
}
