// Package tests runs the program as its users do.
package tests

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/hardware"
	"github.com/tierlora/tierlora/train/journal"
)

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	out := filepath.Join(binaryDir, "trainer")
	cmd := exec.Command("go", "build", "-o", out, "github.com/tierlora/tierlora/cmd/trainer")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %v\n%s", err, msg)
	}
	return out, nil
})

var binaryDir string

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "trainer"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binaryDir)
	os.Exit(code)
}

// outcome is what a call of the program left.
type outcome struct {
	code           int
	stdout, stderr string
}

// command is a call of the program in a folder, away from the network and the user's settings.
func command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "HF_HOME=" + filepath.Join(dir, "hf"), "HF_HUB_OFFLINE=1"}
	return cmd
}

func run(t testing.TB, dir string, args ...string) outcome {
	t.Helper()
	cmd := command(t, dir, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func mustRun(t testing.TB, dir string, args ...string) outcome {
	t.Helper()
	o := run(t, dir, args...)
	if o.code != 0 {
		t.Fatalf("trainer %s: exit code %d\n%s", strings.Join(args, " "), o.code, o.stderr)
	}
	return o
}

// snapshot is a line for each file under a folder: its mode, hash and name.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			lines = append(lines, fmt.Sprintf("%v %s", info.Mode(), name))
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%v %x %s", info.Mode(), sha256.Sum256(data), name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// withoutJournal is a snapshot but for the log and the status of runs, which a start that fails adds to, and folders that
// hold nothing else.
func withoutJournal(t testing.TB, dir string) string {
	t.Helper()
	var lines []string
	held := map[string]bool{}
	for _, line := range strings.Split(snapshot(t, dir), "\n") {
		name := line[strings.LastIndexByte(line, ' ')+1:]
		if base := filepath.Base(name); base == journal.LogFile || base == journal.StatusFile || base == hardware.File {
			held[filepath.Dir(name)] = true
			continue
		}
		lines = append(lines, line)
	}
	all := strings.Join(lines, "\n") + "\n"
	lines = slices.DeleteFunc(lines, func(line string) bool {
		name := line[strings.LastIndexByte(line, ' ')+1:]
		return held[name] && name != "." && !strings.Contains(all, " "+name+"/")
	})
	return strings.Join(lines, "\n")
}

func read(t testing.TB, elem ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFirstCommand is the README's first command, shortened.
func TestFirstCommand(t *testing.T) {
	dir := t.TempDir()
	o := mustRun(t, dir, "train", "--config", "cpu_stories_quick.yaml", "--set", "training.max_steps=12", "--set", "training.batch_size=2", "--set", "expect.loss_decrease=0.05")
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors", "config.yaml", "metrics.jsonl", "run_manifest.json", "tokenizer.json", "checkpoint-12/trainer_state.json"} {
		if _, err := os.Stat(filepath.Join(dir, "runs", "cpu_stories_quick", name)); err != nil {
			t.Errorf("%v\n%s", err, o.stderr)
		}
	}
	if !strings.Contains(o.stdout+o.stderr, "loss") {
		t.Errorf("nothing is said of the loss: %s", o.stdout)
	}
	before := snapshot(t, filepath.Join(dir, "runs"))
	again := run(t, dir, "train", "--config", "cpu_stories_quick.yaml")
	if again.code != 1 || !strings.Contains(again.stderr, "output_dir runs/cpu_stories_quick holds a run already") {
		t.Errorf("the same command again: exit code %d\n%s", again.code, again.stderr)
	}
	if snapshot(t, filepath.Join(dir, "runs")) != before {
		t.Error("the first run's folder was changed")
	}
	generated := mustRun(t, dir, "generate", "--model", "embedded:stories260K", "--adapter", "runs/cpu_stories_quick", "--prompt", "Once", "--max-tokens", "8")
	if strings.TrimSpace(generated.stdout) == "" {
		t.Error("nothing was generated")
	}
	// The configuration that was saved runs again to the same adapter.
	mustRun(t, dir, "train", "--config", "runs/cpu_stories_quick/config.yaml", "--set", "output_dir=runs/second")
	if read(t, dir, "runs/second/adapter_model.safetensors") != read(t, dir, "runs/cpu_stories_quick/adapter_model.safetensors") {
		t.Error("the saved configuration trains another adapter")
	}
}

// TestInterruptedRunResumes stops a run with SIGINT and resumes it.
func TestInterruptedRunResumes(t *testing.T) {
	dir := t.TempDir()
	args := []string{"train", "--config", "cpu_stories_quick.yaml", "--set", "training.max_steps=60", "--set", "training.batch_size=1", "--set", "dataset.max_length=192", "--set", "training.logging_steps=1", "--set", "expect.loss_decrease=0"}
	mustRun(t, dir, append(args, "--set", "output_dir=whole")...)
	cmd := command(t, dir, append(args, "--set", "output_dir=parts")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	metrics := filepath.Join(dir, "parts", "metrics.jsonl")
	for range 10000 {
		if raw, _ := os.ReadFile(metrics); bytes.Count(raw, []byte("\n")) >= 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cmd.Process.Signal(os.Interrupt) //nolint:errcheck // Wait tells
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Fatalf("after SIGINT: %v\n%s", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "resume") {
		t.Errorf("it does not say how to resume:\n%s", stderr.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "parts", "adapter_model.safetensors")); err == nil {
		t.Error("the stopped run left an adapter as if it had ended")
	}
	o := mustRun(t, dir, append(args, "--set", "output_dir=parts", "--resume", "auto")...)
	if !strings.Contains(o.stderr, "resumed from parts/checkpoint-") {
		t.Errorf("it does not say where it resumed from:\n%s", o.stderr)
	}
	if read(t, dir, "whole/adapter_model.safetensors") != read(t, dir, "parts/adapter_model.safetensors") {
		t.Error("the interrupted run trains another adapter")
	}
}

// TestThreeTypos: all are named, with lines and the nearest keys, before anything is read or written.
func TestThreeTypos(t *testing.T) {
	dir := t.TempDir()
	text := read(t, golden.Root(t), "configs", "cpu_stories_quick.yaml")
	for right, wrong := range map[string]string{"learning_rate:": "learning_rte:", "target_modules:": "target_module:", "max_length:": "max_lenght:"} {
		text = strings.Replace(text, right, wrong, 1)
	}
	write(t, filepath.Join(dir, "typos.yaml"), text)
	line := func(key string) int { return strings.Count(text[:strings.Index(text, key)], "\n") + 1 }
	o := run(t, dir, "validate", "--config", "typos.yaml")
	want := fmt.Sprintf(`trainer: typos.yaml:%d:3: lora.target_module: unknown key; the nearest is lora.target_modules
typos.yaml:%d:3: dataset.max_lenght: unknown key; the nearest is dataset.max_length
typos.yaml:%d:3: training.learning_rte: unknown key; the nearest is training.learning_rate
3 problems in typos.yaml
`, line("target_module:"), line("max_lenght:"), line("learning_rte:"))
	if o.code != 2 || o.stderr != want {
		t.Errorf("exit code %d\n%s\nwant 2\n%s", o.code, o.stderr, want)
	}
	if o := run(t, dir, "train", "--config", "typos.yaml"); o.code != 2 || o.stderr != want {
		t.Errorf("train: exit code %d\n%s", o.code, o.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("a folder was made")
	}
}
