package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// look is the time between two searches for runs that others started or ended.
const look = 500 * time.Millisecond

// Work starts each run as "program train" in its turn, as soon as the machine has what it needs, until none waits. If
// another process does so already, Work returns at once. When ctx ends, Work returns and the runs continue.
func (q *Queue) Work(ctx context.Context, program string, m Machine) error {
	for {
		lock, err := q.acquire(ctx)
		if err != nil || lock == nil {
			return err
		}
		err = q.workOff(ctx, program, m)
		if err := errors.Join(err, lock.Release()); err != nil {
			return err
		}
		if waits, err := q.waits(); !waits || err != nil { // added while this process still had the lock
			return err
		}
	}
}

// acquire acquires the queue's lock; nil if another worker has it. A caller of Working has it for a moment.
func (q *Queue) acquire(ctx context.Context) (*checkpoint.Lock, error) {
	for range 10 {
		lock, err := checkpoint.Acquire(q.dir)
		if held := (*checkpoint.HeldError)(nil); !errors.As(err, &held) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil, nil
}

// Working reports whether a process works off the queue.
func (q *Queue) Working() bool {
	lock, err := checkpoint.Acquire(q.dir)
	if err != nil {
		return errors.As(err, new(*checkpoint.HeldError))
	}
	return lock.Release() != nil
}

// waits reports whether a run waits.
func (q *Queue) waits() (bool, error) {
	all, err := q.List()
	return slices.ContainsFunc(all, func(e Entry) bool { return e.State == Waiting }), err
}

// workOff starts runs as they fit on the machine, and returns when none waits and those that it started have ended.
func (q *Queue) workOff(ctx context.Context, program string, m Machine) error {
	ended := make(chan error)
	active := 0
	var failed error
	for {
		all, err := q.List()
		failed = errors.Join(failed, err)
		if failed == nil {
			cards := m.cards()
			e, on, ok := choose(all, cards, m.others())
			if ok {
				e.Cards = on
				dir, taken, err := q.take(e)
				if err != nil {
					failed = err
					continue
				}
				if taken {
					var visible []string
					if len(on) < len(cards) {
						visible = on
					}
					active++
					rescue.Go(func() { ended <- q.run(ctx, program, dir, visible) })
				}
				continue
			}
		}
		if active == 0 && (failed != nil || !slices.ContainsFunc(all, func(e Entry) bool { return e.State == Waiting })) {
			return failed
		}
		select {
		case err := <-ended:
			active--
			failed = errors.Join(failed, err)
		case <-ctx.Done():
			for ; active > 0; active-- {
				<-ended
			}
			return ctx.Err()
		case <-time.After(look):
		}
	}
}

// take moves a waiting entry to the started ones; taken is false if it was removed meanwhile.
func (q *Queue) take(e Entry) (dir string, taken bool, err error) {
	dir = filepath.Join(q.in(Running), e.ID)
	e.Started = time.Now().UTC()
	if err := e.write(filepath.Join(q.in(Waiting), e.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return dir, false, fmt.Errorf("start %s: %w", e.Name, err)
	}
	if err := atomicfile.Rename(filepath.Join(q.in(Waiting), e.ID), dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return dir, false, nil
		}
		return dir, false, fmt.Errorf("start %s: %w", e.Name, err)
	}
	return dir, true, nil
}

// run runs a taken entry, on the graphics cards that visible names or on all of them, and records how it ends.
func (q *Queue) run(ctx context.Context, program, dir string, visible []string) error {
	e, ok := q.read(Running, filepath.Base(dir))
	if !ok {
		return fmt.Errorf("start a run: %s can't be read", filepath.Join(dir, entryFile))
	}
	log, err := atomicfile.Append(filepath.Join(dir, logFile), 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", e.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(program, append([]string{"train", "--config", filepath.Join(dir, configFile)}, e.Args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.Dir, log, log
	if visible != nil {
		cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+strings.Join(visible, ","))
	}
	alone(cmd)
	code := -1
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(log, "trainer: the run does not start: %v\n", err)
	} else {
		e.PID = cmd.Process.Pid
		if err := e.write(dir); err != nil {
			fmt.Fprintf(log, "trainer: the queue can't write down that it runs: %v\n", err)
		}
		ended := make(chan struct{})
		rescue.Go(func() { cmd.Wait(); close(ended) }) //nolint:errcheck // the exit code tells
		select {
		case <-ended:
			code = cmd.ProcessState.ExitCode()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e.ExitCode, e.Ended = &code, time.Now().UTC()
	if err := e.write(dir); err != nil { // the disk may be full
		if other := e.overwrite(dir); other != nil {
			return fmt.Errorf("write down how %s ended: %w", e.Name, errors.Join(err, other))
		}
	}
	return nil
}

// Stop asks a run to finish its step, save and end, as SIGTERM does. A run's folder is untrusted, so Stop verifies its
// lock first: by the process's open files if the system reports them, otherwise the run must belong to the queue.
func (q *Queue) Stop(dir string) error {
	all, err := q.List()
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.State == Running && e.PID != 0 && e.OutputDir == dir {
			return terminate(e.PID)
		}
	}
	pid, held := runs.HeldBy(dir)
	if !held {
		return fmt.Errorf("no process of this machine has %s: there is nothing to stop", dir)
	}
	if open, known := hasOpen(pid, filepath.Join(dir, checkpoint.LockFile)); !known {
		return fmt.Errorf("this system does not tell whether process %d is the run in %s, which was not started here: stop it where it was started", pid, dir)
	} else if !open {
		return fmt.Errorf("the lock in %s names process %d, which does not have it open: it is another program", dir, pid)
	}
	return terminate(pid)
}

// Spawn starts program with the given arguments as an independent process that works off the queue.
func Spawn(program string, words ...string) error {
	cmd := exec.Command(program, words...)
	alone(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that works the queue off: %w", err)
	}
	rescue.Go(func() { cmd.Wait() }) //nolint:errcheck // the worker records the results of its runs
	return nil
}
