//go:build unix

package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train/journal"
)

func statusOf(t *testing.T, dir string) *journal.Status {
	t.Helper()
	s, err := journal.Read(filepath.Join(dir, journal.StatusFile))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ended checks what a run left of its end: its state, the exit code, words of its error, its step, and that its log ends with the
// same.
func ended(t *testing.T, dir string, code int, state journal.State, words string, step int) {
	t.Helper()
	s := statusOf(t, dir)
	if s.State != state || s.ExitCode == nil || *s.ExitCode != code || s.Step != step || !strings.Contains(s.Error, words) || (s.Error == "") != (words == "") {
		t.Errorf("status %+v, want %s, exit code %d, step %d, %q", s, state, code, step, words)
	}
	log := strings.Split(strings.TrimSpace(read(t, dir, journal.LogFile)), "\n")
	last := log[len(log)-1]
	if !strings.HasPrefix(last, "===== "+string(state)+" ") || !strings.Contains(read(t, dir, journal.LogFile), words) {
		t.Errorf("the log ends with %q, want %s, and %q in it", last, state, words)
	}
}

// TestEndsLeaveEvidence: every end of a run is in its folder's status and log, as the exit code and the terminal say it.
func TestEndsLeaveEvidence(t *testing.T) {
	dir := t.TempDir()
	out := func(name string) string { return filepath.Join(dir, name) }

	t.Run("finished", func(t *testing.T) {
		o := mustRun(t, dir, short("done", "--set", "training.max_steps=2")...)
		ended(t, out("done"), 0, journal.Finished, "", 2)
		log := read(t, dir, "done", journal.LogFile)
		for _, line := range append(strings.Split(strings.TrimSpace(o.stdout), "\n"), "step 2/2  loss ") {
			if !strings.Contains(log, line) {
				t.Errorf("the log lacks %q:\n%s", line, log)
			}
		}
		if o := run(t, dir, short("done", "--set", "training.max_steps=2")...); o.code != 1 || read(t, dir, "done", journal.LogFile) != log {
			t.Errorf("a start that is refused: exit code %d, and the log is\n%s", o.code, read(t, dir, "done", journal.LogFile))
		}
		ended(t, out("done"), 0, journal.Finished, "", 2)
	})
	t.Run("missed", func(t *testing.T) {
		if o := run(t, dir, short("missed", "--set", "training.max_steps=2", "--set", "expect.loss_decrease=0.9")...); o.code != 1 {
			t.Fatalf("exit code %d\n%s", o.code, o.stderr)
		}
		ended(t, out("missed"), 1, journal.Missed, "expectation missed", 2)
	})
	t.Run("before the first step, then corrected", func(t *testing.T) {
		write(t, filepath.Join(dir, "bad.jsonl"), "{\"text\": \n")
		o := run(t, dir, short("fixed", "--set", "training.max_steps=2", "--set", "dataset.path=bad.jsonl")...)
		words, _, _ := strings.Cut(strings.TrimPrefix(o.stderr, "trainer: "), "\n")
		ended(t, out("fixed"), o.code, journal.Failed, words, 0)
		if o := run(t, dir, short("fixed", "--set", "training.max_steps=2", "--vram", "1MiB")...); o.code != 4 {
			t.Fatalf("exit code %d\n%s", o.code, o.stderr)
		}
		ended(t, out("fixed"), 4, journal.Failed, "the run does not fit", 0)
		mustRun(t, dir, short("fixed", "--set", "training.max_steps=2")...)
		ended(t, out("fixed"), 0, journal.Finished, "", 2)
		log := read(t, dir, "fixed", journal.LogFile)
		if strings.Count(log, "===== started ") != 3 || !strings.Contains(log, words) || !strings.Contains(log, "does not fit") {
			t.Errorf("the log lacks a start:\n%s", log)
		}
	})
	t.Run("not finite", func(t *testing.T) {
		o := run(t, dir, short("nan", "--set", "training.learning_rate=1e30", "--set", "training.max_grad_norm=0", "--set", "training.max_steps=50", "--set", "training.warmup_ratio=0")...)
		if o.code != 1 || !strings.Contains(o.stderr, "not finite") {
			t.Fatalf("exit code %d\n%s", o.code, o.stderr)
		}
		ended(t, out("nan"), 1, journal.Failed, "not finite", statusOf(t, out("nan")).Step)
	})
	t.Run("full disk", func(t *testing.T) {
		cmd := command(t, dir, short("full", "--set", "training.max_steps=50", "--set", "training.save_steps=2")...)
		limited := exec.Command("/bin/sh", append([]string{"-c", `trap "" XFSZ; ulimit -f 64; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
		limited.Dir, limited.Env = cmd.Dir, cmd.Env
		if text, _ := limited.CombinedOutput(); limited.ProcessState.ExitCode() != 1 || !bytes.Contains(text, []byte("no room for")) {
			t.Fatalf("%v\n%s", limited.ProcessState, text)
		}
		ended(t, out("full"), 1, journal.Failed, "no room for", 2)
	})
	for _, c := range []struct {
		name string
		send syscall.Signal
		code int
	}{{"int", syscall.SIGINT, 130}, {"term", syscall.SIGTERM, 143}, {"hup", syscall.SIGHUP, 129}} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, dir, short(c.name, "--set", "training.max_steps=20000")...)
			waitForLines(t, filepath.Join(out(c.name), "metrics.jsonl"), 3)
			s.signal(t, c.send)
			s.Wait() //nolint:errcheck // the exit code is compared
			if s.ProcessState.ExitCode() != c.code {
				t.Fatalf("exit code %d\n%s", s.ProcessState.ExitCode(), &s.stderr)
			}
			st := statusOf(t, out(c.name))
			ended(t, out(c.name), c.code, journal.Interrupted, "", st.Step)
			if st.Step < 3 || st.Checkpoint == "" {
				t.Errorf("%+v", st)
			}
		})
	}
	t.Run("stopped before the first step", func(t *testing.T) {
		write(t, filepath.Join(dir, "rows.jsonl"), strings.Repeat(`{"question": "Once", "answer": "`+strings.Repeat("upon a time there was a cat. ", 40)+"\"}\n", 20000))
		s := start(t, dir, short("early", "--set", "dataset.path=rows.jsonl")...)
		for range 5000 {
			if _, err := os.Stat(filepath.Join(out("early"), journal.StatusFile)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		s.signal(t, syscall.SIGTERM)
		s.Wait() //nolint:errcheck // the exit code is compared
		if s.ProcessState.ExitCode() != 143 {
			t.Fatalf("exit code %d\n%s", s.ProcessState.ExitCode(), &s.stderr)
		}
		ended(t, out("early"), 143, journal.Interrupted, "no step was made", 0)
	})
	t.Run("killed", func(t *testing.T) {
		s := start(t, dir, short("killed", "--set", "training.max_steps=20000")...)
		waitForLines(t, filepath.Join(out("killed"), "metrics.jsonl"), 3)
		s.Process.Kill() //nolint:errcheck // Wait tells
		s.Wait()         //nolint:errcheck // it was killed
		if st := statusOf(t, out("killed")); st.State != journal.Running || st.PID != s.Process.Pid {
			t.Errorf("%+v", st)
		}
	})
	t.Run("a trace", func(t *testing.T) {
		s := start(t, dir, short("quit", "--set", "training.max_steps=20000")...)
		waitForLines(t, filepath.Join(out("quit"), "metrics.jsonl"), 3)
		s.signal(t, syscall.SIGQUIT)
		s.Wait() //nolint:errcheck // it ends with a trace
		if line := journal.Crash(journal.Tail(out("quit"), 1<<20)); !strings.HasPrefix(line, "SIGQUIT: quit") {
			t.Errorf("the log says %q:\n%s", line, read(t, dir, "quit", journal.LogFile))
		}
	})
}
