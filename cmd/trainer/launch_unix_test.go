//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/journal"
)

// shared is a run whose step has six rows on any number of processes.
func sharedRun(out string) []string {
	return []string{"--config", "cpu_stories_quick", "--set", "dataset.max_length=160", "--set",
		"training.max_steps=10", "--set", "training.batch_size=1",
		"--set", "training.global_batch_size=6", "--set", "training.save_steps=2", "--set", "expect.loss_decrease=0",
		"--set", "output_dir=" + out, "--quiet"}
}

// undisturbed is the adapter of that run in one process.
var undisturbed = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "launch")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if out, err := program(dir, append([]string{"train"}, sharedRun("run")...)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "run", "adapter_model.safetensors"))
})

func sameAdapter(t *testing.T, dir string) {
	t.Helper()
	want, err := undisturbed()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "run", "adapter_model.safetensors")); err != nil ||
		!bytes.Equal(got, want) {
		t.Errorf("the adapter is not that of the undisturbed run in one process: %v", err)
	}
}

// launchIt runs launch to its end with so many processes, and what happens to one of them.
func launchIt(t *testing.T, dir string, processes int, breaks string, more ...string) (code int, out, said string) {
	t.Helper()
	if strings.HasPrefix(breaks, "stop") || strings.HasPrefix(breaks, "hang") { // which time alone shows
		more = append(more, "--set", "training.ddp_timeout=2")
	}
	args := append([]string{"launch", "--nproc", strconv.Itoa(processes), "--grace", "3"}, sharedRun("run")...)
	return trainer(t, dir, []string{breakVariable + "=" + breaks}, "", append(args, more...)...)
}

func TestLaunch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// slower than a sign of life, faster than the timeout
	code, out, said := launchIt(t, dir, 3, "slow 1 4", "--set", "training.ddp_timeout=5")
	if code != 0 || strings.Count(out, "steps    10 of 10") != 1 || strings.Contains(said, "rank ") {
		t.Errorf("exit code %d\n%s%s", code, out, said)
	}
	sameAdapter(t, dir)
}

// Whatever happens to a rank, the others end soon and say which it was and where, the newest checkpoint is whole, and
// fewer processes go on from it to the bytes of the undisturbed run.
func TestLaunchFaults(t *testing.T) {
	for _, c := range []struct {
		breaks string
		code   []int // of launch
		want   []string
		saved  int // the newest checkpoint
		state  journal.State
		ranks  []int // that failed, as the status in the run's folder says
	}{
		{"kill 1 6", []int{137}, []string{"\ntrainer: after step 5 of 10: segment sum: rank 1, step 6, training: the " +
			"connection was closed; run/checkpoint-4 is whole: --resume auto continues from it",
			"rank 2: trainer: after step 5 of 10: segment sum: rank 1, step 6",
			"launch: rank 1 of 3 failed first: it was ended by the signal 9, killed"}, 4, journal.Failed, []int{1}},
		{"kill 0 6", []int{137}, []string{"rank 1: trainer: after step 5 of 10: segment sum: rank 0, step 6, " +
			"training: the connection was closed\n", "rank 2: trainer:"}, 4, journal.Running, nil},
		// whether its silence or the others' waiting is 2 s old first is a matter of milliseconds
		{"stop 2 6", []int{1}, []string{"\ntrainer: after step 5 of 10: segment sum: rank 2, step 6, training: ",
			"run/checkpoint-4 is whole: --resume auto continues from it",
			"launch: 1 of 3 processes have not ended 3s after the first that failed: they are killed"}, 4,
			journal.Failed, []int{2}},
		{"hang 1 6", []int{1}, []string{`rank 1, step 6, training: others have waited for it in "the gradients" for `,
			"and it does not get on; run/checkpoint-4 is whole"}, 4, journal.Failed, []int{1}},
		{"full 0 6", []int{1}, []string{"rank 1: trainer: after step 6 of 10: rank 0, step 7, training: save " +
			"run/checkpoint-6: no room for", "launch: rank 0 of 3 failed first: exit code 1"}, 4,
			journal.Failed, []int{0}},
		{"term 2 6", []int{143}, []string{"terminated: stopping", "stopped after step ",
			"resume, on any number of devices, with: "}, 6, journal.Interrupted, nil},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			code, _, said := launchIt(t, dir, 3, c.breaks)
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("lacks %q", want)
				}
			}
			if !strings.Contains(fmt.Sprint(c.code), fmt.Sprint(code)) || t.Failed() {
				t.Errorf("exit code %d\n%s", code, said)
			}
			if steps, err := checkpoint.Steps(filepath.Join(dir, "run")); err != nil || len(steps) == 0 ||
				steps[len(steps)-1] < c.saved {
				t.Errorf("checkpoints %v, %v", steps, err)
			}
			status, err := journal.Read(filepath.Join(dir, "run", journal.StatusFile))
			if err != nil {
				t.Fatal(err)
			}
			var failed []int
			for _, r := range status.Ranks {
				failed = append(failed, r.Rank)
			}
			if status.State != c.state || !slices.Equal(failed, c.ranks) || status.State == journal.Failed &&
				status.Error == "" {
				t.Errorf("the status is %+v, want %s, ranks %v", status, c.state, c.ranks)
			}
			if code, _, said := launchIt(t, dir, 2, "", "--resume", "auto"); code != 0 {
				t.Errorf("resumed: exit code %d\n%s", code, said)
			}
			sameAdapter(t, dir)
		})
	}
}

// Two processes that drive three devices each are six ranks.
func TestProcessesOfSeveralRanks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port, err := anyPort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for rank := range 2 {
		wait.Go(func() {
			env := []string{"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=" +
				strconv.Itoa(port), "TRAINER_RANKS_KEY=secret"}
			if code, out, said := trainer(t, dir, env, "", append(append([]string{"train"}, sharedRun("run")...),
				"--devices", "3")...); code != 0 || (out == "") != (rank == 1) {
				t.Errorf("rank %d: exit code %d\n%s%s", rank, code, out, said)
			}
		})
	}
	wait.Wait()
	sameAdapter(t, dir)
}

// running starts a launch whose ranks wait in their first step, and returns their processes.
func running(t *testing.T, dir string) (cmd *exec.Cmd, pids []int) {
	t.Helper()
	cmd = program(dir, append([]string{"launch", "--nproc", "2", "--grace", "3"}, sharedRun("run")...)...)
	cmd.Env = append(cmd.Env, breakVariable+"=wait 1 1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for rank := range 2 {
		text, err := soon(func() ([]byte, error) {
			return os.ReadFile(filepath.Join(dir, fmt.Sprintf("pid.%d", rank)))
		})
		pid, perr := strconv.Atoi(string(text))
		if err := errors.Join(err, perr); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return cmd, pids
}

// soon tries again for a while.
func soon[T any](try func() (T, error)) (v T, err error) {
	for range 400 {
		if v, err = try(); err == nil {
			return v, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return v, err
}

// No process outlives launch, even where it is killed.
func TestLaunchLeavesNoOrphans(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	cmd, pids := running(t, t.TempDir())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	for _, pid := range pids {
		if _, err := soon(func() (int, error) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || bytes.Contains(stat, []byte(") Z ")) { // nobody has asked how it ended
				return 0, nil
			}
			return 0, errors.New("it lives")
		}); err != nil {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

// A signal reaches every rank once: they would stop at once at a second one.
func TestLaunchHandsSignalsOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := program(dir, append([]string{"launch", "--nproc", "2"}, append(sharedRun("run"), "--set",
		"training.max_steps=100000", "--set", "training.save_steps=10")...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() //nolint:errcheck // it has ended
	if _, err := soon(func() (os.FileInfo, error) {
		return os.Stat(filepath.Join(dir, "run", checkpoint.Name(10)))
	}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(), "stopped after step") ||
		strings.Contains(said.String(), "failed first") {
		t.Errorf("exit code %d, %v\n%s", code, err, said.String())
	}
}

func TestLaunchRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		env  string
		code int
		want string
	}{
		{[]string{"launch", "--nproc", "2"}, "", 2, "name a configuration: trainer launch --nproc 2 FILE"},
		{[]string{"launch", "--nproc", "2", "eval"}, "", 2, "launch starts train alone, not eval"},
		{[]string{"launch", "x.yaml"}, "", 2, "--nproc: 0 is not a number of processes from 1 to 256"},
		{[]string{"launch", "--nproc", "x", "x.yaml"}, "", 2, "--nproc"},
		{[]string{"launch", "--nproc=3", "--devices=0,1", "x.yaml"}, "", 2, "--devices: 2 GPUs for 3 processes"},
		{[]string{"launch", "--devices=1,1", "x.yaml"}, "", 2, `--devices: "1" is empty or stands in the list twice`},
		{[]string{"launch", "--nproc", "2", "nowhere.yaml"}, "", 2,
			`rank 1: trainer: there is no configuration "nowhere.yaml"`},
		{[]string{"launch", "--nproc", "2", "x.yaml"}, "RANK=1", 2, "RANK=1 is set and WORLD_SIZE is not"},
		{[]string{"train", "cpu_stories_quick"}, "WORLD_SIZE=2", 2, "WORLD_SIZE=2 is set and RANK is not (variables " +
			"of torchrun; TRAINER_LAUNCHER=none trains in this process alone)"},
	} {
		if code, _, said := trainer(t, dir, []string{c.env}, "", c.args...); code != c.code ||
			!strings.Contains(said, c.want) {
			t.Errorf("%v: exit code %d, %s; want %s", c.args, code, said, c.want)
		}
	}
}
