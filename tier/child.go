package tier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
)

// Command is a call of the program, with its result.
type Command struct {
	Name     string   `json:"command"` // doctor, selfcheck, plan, train or verify
	Args     []string `json:"args"`
	ExitCode int      `json:"exit_code"` // -1 = the process was killed
	Seconds  float64  `json:"seconds"`
	Log      string   `json:"log"` // name of the file with stderr in the report's folder; stdout lies beside it
	HostPeak int64    `json:"host_peak_bytes,omitempty"`
	Problem  string   `json:"problem,omitempty"` // what was wrong, with its last words; "" = nothing
}

const (
	maxOutput = 64 << 20 // bytes of a command's stdout that are read
	maxWords  = 600      // bytes of a command's last line
	// A command that exceeds its time gets a signal to print its stacks; one that is stopped gets a signal to save a
	// checkpoint. After the grace period it is killed.
	stacksGrace = 5 * time.Second
	stopGrace   = 30 * time.Second
)

// call is a command to run.
type call struct {
	name  string
	args  []string
	dir   string        // folder of its output: NAME.json and NAME.log
	limit time.Duration // limit of wall time
	watch func(pid int, done <-chan struct{})
}

// errStopped ends the work of a call after a signal has stopped it.
var errStopped = errors.New("stopped")

// run runs the program to its end and parses its stdout into v. The Command has the failure of the program; the error
// is a failure of this process, or errStopped.
func (r *runner) run(ctx context.Context, c call, v any) (Command, error) {
	done := Command{Name: c.name, Args: c.args, ExitCode: -1}
	out, err := atomicfile.Truncate(filepath.Join(c.dir, c.name+".json"), 0o644)
	if err != nil {
		return done, err
	}
	defer out.Close()
	log, err := atomicfile.Truncate(filepath.Join(c.dir, c.name+".log"), 0o644)
	if err != nil {
		return done, err
	}
	defer log.Close()
	done.Log, _ = filepath.Rel(r.Dir, log.Name())
	words := &tail{}
	cmd := exec.Command(r.Program, c.args...)
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Stdout, cmd.Stderr = out, io.MultiWriter(log, words)
	if r.Verbose != nil {
		cmd.Stderr = io.MultiWriter(log, words, r.Verbose)
	}
	cmd.WaitDelay = 2 * time.Second // a child process may keep stderr open
	ownGroup(cmd)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		done.Problem = err.Error()
		return done, nil
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	rescue.Go(func() {
		defer close(watched)
		if c.watch != nil {
			c.watch(cmd.Process.Pid, ended)
		}
	})
	finished := make(chan error, 1)
	rescue.Go(func() { finished <- cmd.Wait() })
	hung, stopped := waitFor(ctx, cmd, finished, c.limit)
	close(ended)
	<-watched
	done.Seconds = time.Since(began).Seconds()
	done.ExitCode, done.HostPeak = cmd.ProcessState.ExitCode(), peakMemory(cmd.ProcessState)
	switch {
	case stopped:
		done.Problem = "stopped by a signal"
		return done, errStopped
	case hung:
		done.Problem = fmt.Sprintf("did not end within %v and was killed; %s has the stacks of where it hung", c.limit, done.Log)
	case done.ExitCode < 0:
		done.Problem = fmt.Sprintf("%v%s", cmd.ProcessState, words)
	case done.ExitCode > 0:
		done.Problem = fmt.Sprintf("exit code %d%s", done.ExitCode, words)
	}
	if err := readJSON(out.Name(), v); err != nil && done.Problem == "" {
		done.Problem = fmt.Sprintf("what it printed is no result: %v%s", err, words)
	}
	return done, nil
}

// waitFor waits until a command ends, its time is over, or the context ends.
func waitFor(ctx context.Context, cmd *exec.Cmd, finished <-chan error, limit time.Duration) (hung, stopped bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	grace := stacksGrace
	select {
	case <-finished:
		return false, false
	case <-timer.C:
		hung = true
		askStacks(cmd)
	case <-ctx.Done():
		stopped, grace = true, stopGrace
		askStop(cmd)
	}
	select {
	case <-finished:
	case <-time.After(grace):
		kill(cmd)
		<-finished
	}
	return hung, stopped
}

// readJSON reads a file that another program wrote.
func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxOutput+1))
	switch {
	case err != nil:
		return err
	case len(data) > maxOutput:
		return fmt.Errorf("more than %d bytes", maxOutput)
	case len(bytes.TrimSpace(data)) == 0:
		return errors.New("nothing")
	}
	return json.Unmarshal(data, v)
}

// tail keeps the end of the text that is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - 1<<14; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns the program's error, or else the last line, after a colon, without characters that a terminal would
// interpret.
func (t *tail) String() string {
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	from := len(lines) - 1
	for i, line := range lines {
		if strings.HasPrefix(line, "trainer: ") {
			from = i
		}
	}
	if text := plain(strings.Join(lines[from:], "\n")); text != "" {
		return ": " + text
	}
	return ""
}

// plain returns untrusted text as one bounded line.
func plain(s string) string {
	s = strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + " ..."
	}
	return strings.TrimSpace(s)
}
