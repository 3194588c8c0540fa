package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/report/runs"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// look is how often a worker looks after a run that an earlier worker started.
const look = 500 * time.Millisecond

// Work works the queue off: each run in its turn as "program train", until none waits. Where another process does so
// already it returns at once. The end of ctx ends this process's part; the run goes on.
func (q *Queue) Work(ctx context.Context, program string) error {
	for {
		lock, err := q.acquire(ctx)
		if err != nil || lock == nil {
			return err
		}
		err = q.workOff(ctx, program)
		if err := errors.Join(err, lock.Release()); err != nil {
			return err
		}
		if _, ok, err := q.next(); !ok || err != nil { // added while this one still had the lock
			return err
		}
	}
}

// acquire takes the queue; nil where another worker has it. Who asks Working has it for a moment.
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

// Working tells whether a process works the queue off.
func (q *Queue) Working() bool {
	lock, err := checkpoint.Acquire(q.dir)
	if err != nil {
		return errors.As(err, new(*checkpoint.HeldError))
	}
	return lock.Release() != nil
}

// next is the run that has waited longest.
func (q *Queue) next() (e Entry, ok bool, err error) {
	all, err := q.List()
	for _, e := range all {
		if e.State == Waiting {
			return e, true, nil
		}
	}
	return e, false, err
}

func (q *Queue) workOff(ctx context.Context, program string) error {
	for {
		if err := q.await(ctx); err != nil {
			return err
		}
		e, ok, err := q.next()
		if !ok || err != nil {
			return err
		}
		if err := q.run(ctx, program, e); err != nil {
			return err
		}
	}
}

// await waits until no run is on its way that an earlier worker started.
func (q *Queue) await(ctx context.Context) error {
	for {
		all, err := q.List()
		if err != nil {
			return err
		}
		busy := false
		for _, e := range all {
			busy = busy || e.State == Running
		}
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
	}
}

// run starts an entry, if it still waits, and writes down how it ends.
func (q *Queue) run(ctx context.Context, program string, e Entry) error {
	dir := filepath.Join(q.in(Running), e.ID)
	e.Started = time.Now().UTC()
	if err := e.write(filepath.Join(q.in(Waiting), e.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start %s: %w", e.Name, err)
	}
	if err := atomicfile.Rename(filepath.Join(q.in(Waiting), e.ID), dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // taken back meanwhile
		}
		return fmt.Errorf("start %s: %w", e.Name, err)
	}
	log, err := atomicfile.Append(filepath.Join(dir, logFile), 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", e.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(program, append([]string{"train", "--config", filepath.Join(dir, configFile)}, e.Args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.Dir, log, log
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

// Stop asks a run to finish its step, save and end, as SIGTERM does. A run's folder may come from anywhere, so what its
// lock says is proved first: by the process's open files where the system tells, else the run must be one of the queue.
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

// Spawn starts program with these words as a process of its own, which is to work the queue off.
func Spawn(program string, words ...string) error {
	cmd := exec.Command(program, words...)
	alone(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process that works the queue off: %w", err)
	}
	rescue.Go(func() { cmd.Wait() }) //nolint:errcheck // it writes down what comes of its runs
	return nil
}
