//go:build unix

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train/journal"
)

// short is a run of a second; long is one that lives until it is killed or has done its steps.
func short(dir string, more ...string) []string {
	return append([]string{"train", "--config", "cpu_stories_quick.yaml", "--quiet", "--set", "dataset.max_length=64", "--set", "training.batch_size=1",
		"--set", "training.logging_steps=1", "--set", "expect.loss_decrease=0", "--set", "output_dir=" + dir}, more...)
}

// started is a process and what it says.
type started struct {
	*exec.Cmd
	stderr bytes.Buffer
}

func start(t *testing.T, dir string, args ...string) *started {
	t.Helper()
	s := &started{Cmd: command(t, dir, args...)}
	s.Stderr = &s.stderr
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.ProcessState == nil {
			s.Process.Kill() //nolint:errcheck // the test failed
			s.Wait()         //nolint:errcheck // it was killed
		}
	})
	return s
}

// waitForLines returns when a file has so many lines.
func waitForLines(t *testing.T, path string, n int) {
	t.Helper()
	for range 20000 {
		if raw, _ := os.ReadFile(path); bytes.Count(raw, []byte("\n")) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s has no %d lines", path, n)
}

// lossLines are the numbers of metrics.jsonl that do not depend on the clock.
func lossLines(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(read(t, dir, "metrics.jsonl"), "\n"), "\n") {
		var m struct {
			Step  int      `json:"step"`
			Loss  *float64 `json:"loss"`
			Norm  *float64 `json:"grad_norm"`
			Train *float64 `json:"train_loss"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("line %d: %v: %q", i+1, err, line)
		}
		raw, _ := json.Marshal(m)
		out.Write(append(raw, '\n'))
	}
	return out.String()
}

// refusal is what a start into a folder says that a process has.
func refusal(dir string, pid int) *regexp.Regexp {
	host, _ := os.Hostname()
	return regexp.MustCompile(fmt.Sprintf(`(?m)^trainer: output_dir %s is in use by process %d on %s, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: wait for it to end, stop it, or choose another output_dir$`,
		regexp.QuoteMeta(dir), pid, regexp.QuoteMeta(host)))
}

// TestDoubleStarts: of two processes that start into one folder at the same moment one trains, and the other names it.
func TestDoubleStarts(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, dir, short("alone", "--set", "training.max_steps=60")...)
	named := 0
	for i := range 8 {
		name := fmt.Sprint("run", i)
		args := short(name, "--set", "training.max_steps=60")
		a, b := start(t, dir, args...), start(t, dir, args...)
		a.Wait() //nolint:errcheck // the exit codes are compared
		b.Wait() //nolint:errcheck // likewise
		if a.ProcessState.ExitCode() != 0 {
			a, b = b, a
		}
		if x, y := a.ProcessState.ExitCode(), b.ProcessState.ExitCode(); x != 0 || y != 1 {
			t.Fatalf("exit codes %d and %d\n%s\n%s", x, y, &a.stderr, &b.stderr)
		}
		switch said := b.stderr.String(); {
		case refusal(name, a.ProcessState.Pid()).MatchString(said):
			named++
		case !strings.Contains(said, "trainer: output_dir "+name+" holds a run already ("): // it came when the first was done
			t.Errorf("the other does not name process %d:\n%s", a.ProcessState.Pid(), said)
		}
		if got, want := lossLines(t, filepath.Join(dir, name)), lossLines(t, filepath.Join(dir, "alone")); got != want {
			t.Errorf("metrics\n%s\nof a run alone\n%s", got, want)
		}
		if read(t, dir, name, "adapter_model.safetensors") != read(t, dir, "alone", "adapter_model.safetensors") {
			t.Error("the adapter is another than that of a run alone")
		}
		if _, err := os.Stat(filepath.Join(dir, name, ".lock")); err == nil {
			t.Error("the lock is left")
		}
	}
	if named < 4 { // a machine under load starts some of them late
		t.Errorf("%d of 8 named the process that had the folder", named)
	}
}

// TestLiveRunIsLeftAlone: nobody else has the folder of a run that lives; what a killed one held is free.
func TestLiveRunIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	steps := []string{"--set", "training.max_steps=200", "--set", "training.save_steps=50"}
	mustRun(t, dir, short("alone", steps...)...)
	live := start(t, dir, short("live", steps...)...)
	metrics := filepath.Join(dir, "live", "metrics.jsonl")
	waitForLines(t, metrics, 60) // a checkpoint is there
	live.stop(t)
	before := snapshot(t, filepath.Join(dir, "live"))
	for _, more := range [][]string{{"--resume", "auto"}, {"--resume", "live/checkpoint-50"}, nil} {
		o := run(t, dir, short("live", append(more, steps...)...)...)
		if o.code != 1 || !refusal("live", live.Process.Pid).MatchString(o.stderr) {
			t.Errorf("%q: exit code %d\n%s", more, o.code, o.stderr)
		}
	}
	if after := snapshot(t, filepath.Join(dir, "live")); after != before {
		t.Errorf("the refused starts changed the folder:\n%s\nwas\n%s", after, before)
	}
	live.goOn(t)
	if err := live.Wait(); err != nil {
		t.Fatalf("the live run: %v\n%s", err, &live.stderr)
	}
	if got, want := lossLines(t, filepath.Join(dir, "live")), lossLines(t, filepath.Join(dir, "alone")); got != want {
		t.Errorf("metrics\n%s\nof a run alone\n%s", got, want)
	}
	if read(t, dir, "live/adapter_model.safetensors") != read(t, dir, "alone/adapter_model.safetensors") {
		t.Error("the live run trained another adapter")
	}

	killed := start(t, dir, short("killed", steps...)...)
	waitForLines(t, filepath.Join(dir, "killed", "metrics.jsonl"), 60)
	killed.Process.Kill() //nolint:errcheck // Wait tells
	killed.Wait()         //nolint:errcheck // it was killed
	if _, err := os.Stat(filepath.Join(dir, "killed", ".lock")); err != nil {
		t.Errorf("the killed run left no lock: %v", err)
	}
	mustRun(t, dir, short("killed", append(steps, "--resume", "auto")...)...)
	if read(t, dir, "killed/adapter_model.safetensors") != read(t, dir, "alone/adapter_model.safetensors") {
		t.Error("the killed and resumed run trained another adapter")
	}
	if _, err := os.Stat(filepath.Join(dir, "killed", ".lock")); err == nil {
		t.Error("the lock is left")
	}
}

// TestFinishedRunStaysAsItIs: --resume auto on a finished run changes no file but its log, which it adds to, and its
// status, which stays "finished".
func TestFinishedRunStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	args := short("run", "--set", "training.max_steps=3", "--set", "dataset.val_split=0.05", "--set", "training.report_to=[csv]")
	mustRun(t, dir, args...)
	before, log := withoutJournal(t, filepath.Join(dir, "run")), read(t, dir, "run", "train.log")
	mustRun(t, dir, append(args, "--resume", "auto")...)
	if after := withoutJournal(t, filepath.Join(dir, "run")); after != before {
		t.Errorf("the folder was\n%s\nis\n%s", before, after)
	}
	if now := read(t, dir, "run", "train.log"); !strings.HasPrefix(now, log) {
		t.Errorf("the log was\n%s\nis\n%s", log, now)
	}
	if s := statusOf(t, filepath.Join(dir, "run")); s.State != journal.Finished || s.Step != 3 {
		t.Errorf("%+v", s)
	}
}
