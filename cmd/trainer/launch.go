package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/train/ranks"
)

type launchOptions struct {
	processes int
	devices   []string
	grace     float64
}

// launchedVariable is set in processes that trainer launch starts. Such a process exits with exitLost if another
// process of the run failed.
const launchedVariable = "TRAINER_LAUNCHED"

// maxProcesses is the most processes of one host.
const maxProcesses = 256

// defaultGrace is the time in seconds that the other processes have to end after one has failed. They notice within
// training.ddp_timeout.
const defaultGrace = 60

func newLaunch(c *console) *cobra.Command {
	o := &launchOptions{}
	cmd := &cobra.Command{
		Use:   "launch --nproc N FILE",
		Short: "Train with one process per device on this host",
		Long: `Start several processes of trainer train on this host, as ranks of one run: one for each GPU, or --nproc of them on a
CPU. All flags but those below, and everything after --, go to trainer train.

Rank 0 writes the results and the log; lines of other ranks begin with their rank. A signal goes to all ranks: they
finish the same step and save. If a process fails, launch ends the others and exits with that process's code. No process
outlives launch.

For several hosts use torchrun, srun, mpirun or Kubernetes: trainer train reads their variables.`,
		Example: `  trainer launch --nproc 2 run.yaml
  trainer launch --devices 0,2 --config run.yaml --resume auto
  trainer launch --nproc 4 -- train --config run.yaml --set training.max_steps=10`,
		DisableFlagParsing: true, // trainer train parses its own flags
		RunE: func(cmd *cobra.Command, args []string) error {
			ours, theirs := splitFlags(args)
			if slices.Contains(ours, "--help") {
				return cmd.Help()
			}
			if err := cmd.Flags().Parse(ours); err != nil {
				return usage(err)
			}
			return runLaunch(cmd.Context(), c, o, theirs)
		},
	}
	cmd.Flags().IntVar(&o.processes, "nproc", 0, "number of processes; default: one for each of --devices")
	cmd.Flags().StringSliceVar(&o.devices, "devices", nil,
		"GPUs to use, one for each process, such as 0,2; default: from GPU 0 on")
	cmd.Flags().Float64Var(&o.grace, "grace", defaultGrace,
		"seconds to wait for the other processes after one has failed")
	return cmd
}

// splitFlags separates launch's flags from the arguments of train.
func splitFlags(args []string) (ours, theirs []string) {
	for i := 0; i < len(args); i++ {
		name, _, valued := strings.Cut(args[i], "=")
		switch name {
		case "--":
			return ours, append(theirs, args[i+1:]...)
		case "-h", "--help":
			ours = append(ours, "--help")
		case "--nproc", "--devices", "--grace":
			ours = append(ours, args[i])
			if !valued && i+1 < len(args) {
				i++
				ours = append(ours, args[i])
			}
		default:
			theirs = append(theirs, args[i])
		}
	}
	return ours, theirs
}

// trainWords returns the command line of trainer train.
func trainWords(args []string) ([]string, error) {
	switch {
	case len(args) > 0 && args[0] == "train":
		args = args[1:]
	case len(args) > 0 && isCommand(args[0]):
		return nil, usage(fmt.Errorf("launch starts train alone, not %s", args[0]))
	}
	if len(args) == 0 {
		return nil, usage(errors.New("name a configuration: trainer launch --nproc 2 FILE"))
	}
	return append([]string{"train"}, args...), nil
}

// isCommand reports whether a word is a command of this program.
func isCommand(word string) bool {
	return slices.ContainsFunc(newRoot(&console{out: io.Discard, err: io.Discard}).Commands(),
		func(c *cobra.Command) bool {
			return c.Name() == word
		})
}

func (o *launchOptions) check() error {
	if o.processes == 0 {
		o.processes = len(o.devices)
	}
	switch n := len(o.devices); {
	case o.processes < 1 || o.processes > maxProcesses:
		return usage(fmt.Errorf("--nproc: %d is not a number of processes from 1 to %d", o.processes, maxProcesses))
	case n > 0 && n != o.processes:
		return usage(fmt.Errorf("--devices: %d GPUs for %d processes", n, o.processes))
	case !(o.grace >= 0 && o.grace <= 3600):
		return usage(fmt.Errorf("--grace: %v is not a number of seconds from 0 to 3600", o.grace))
	}
	for i, d := range o.devices {
		if strings.TrimSpace(d) == "" || slices.Contains(o.devices[:i], d) {
			return usage(fmt.Errorf("--devices: %q is empty or stands in the list twice", d))
		}
	}
	p, err := ranks.FromEnv(os.Getenv)
	if err == nil && p.World > 1 {
		err = fmt.Errorf("this is process %d of %d of %s already: call trainer train, which reads its variables",
			p.Rank, p.World, p.Launcher)
	}
	return usage(err)
}

func runLaunch(ctx context.Context, c *console, o *launchOptions, args []string) error {
	words, err := trainWords(args)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := withinGroup("/", debug.SetMemoryLimit).holdsProcesses(o.processes); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	port, err := anyPort(ctx)
	if err != nil {
		return fmt.Errorf("launch: a port for rank 0: %w", err)
	}
	l := &launched{grace: time.Duration(o.grace * float64(time.Second)), exits: make(chan int, o.processes),
		errOut: &lineWriter{w: c.err}}
	common := o.environment(port)
	for rank := range o.processes {
		cmd := exec.Command(program, words...)
		cmd.Env = append(slices.Clip(common), "RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank))
		if len(o.devices) > 0 {
			cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+o.devices[rank])
		}
		if rank == 0 {
			cmd.Stdout, cmd.Stderr = c.out, c.err
			if f, ok := behind(c.out).(*os.File); ok { // the child escapes control characters itself
				cmd.Stdout = f
			}
			if f, ok := behind(c.err).(*os.File); ok {
				cmd.Stderr = f
			}
		} else {
			cmd.Stdout, cmd.Stderr = io.Discard, &prefixed{to: l.errOut, prefix: fmt.Sprintf("rank %d: ", rank)}
		}
		tie(cmd)
		l.all = append(l.all, cmd)
	}
	return l.run(c)
}

// environment returns the variables that all processes get: rank 0's address, and an id and a secret of this start.
func (o *launchOptions) environment(port int) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "TORCHELASTIC_") || name == ranks.CoordinatorVariable ||
			name == ranks.LauncherVariable
	})
	env = append(env, fmt.Sprintf("WORLD_SIZE=%d", o.processes), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", o.processes),
		"MASTER_ADDR=127.0.0.1", fmt.Sprintf("MASTER_PORT=%d", port), ranks.RunVariable+"="+random(),
		launchedVariable+"=1")
	if os.Getenv(ranks.KeyVariable) == "" {
		env = append(env, ranks.KeyVariable+"="+random())
	}
	return env
}

func random() string {
	b := make([]byte, 16)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

// anyPort returns a free port of this host.
func anyPort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // rank 0 takes it
	return l.Addr().(*net.TCPAddr).Port, nil
}

// launched is the set of processes of a run.
type launched struct {
	all    []*exec.Cmd
	grace  time.Duration
	errOut *lineWriter
	exits  chan int // receives the rank of each process that ends
	killed bool
}

// run starts all processes and returns when all have ended.
func (l *launched) run(c *console) error {
	// The kernel kills a process together with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	for rank, cmd := range l.all {
		if err := cmd.Start(); err != nil {
			l.kill()
			for range rank {
				<-l.exits
			}
			return fmt.Errorf("launch: start rank %d: %w", rank, err)
		}
		rescue.Go(func() {
			cmd.Wait() //nolint:errcheck // its state tells
			if p, ok := cmd.Stderr.(*prefixed); ok && len(p.partial) > 0 {
				p.line(p.partial)
			}
			l.exits <- rank
		})
	}
	// first is the first process that failed by itself, others the first that failed because of another
	first, others, signalled := -1, -1, false
	var late <-chan time.Time
	for running := len(l.all); running > 0; {
		select {
		case rank := <-l.exits:
			running--
			switch code := l.all[rank].ProcessState.ExitCode(); {
			case code == exitLost:
				others = rank
			case code != 0 && first < 0 && !l.killed:
				first = rank
			}
			if first+others > -2 && late == nil {
				late = time.After(l.grace)
			}
		case sig := <-signals:
			signalled = true
			for _, cmd := range l.all {
				cmd.Process.Signal(sig) //nolint:errcheck // one that has ended needs none
			}
		case <-late:
			c.say("launch: %d of %d processes have not ended %v after the first that failed: they are killed", running,
				len(l.all), l.grace)
			l.kill()
		}
	}
	switch {
	case first >= 0:
	case others >= 0:
		return &exitError{code: exitFailed, err: errors.New("a rank was lost"), silent: true}
	default:
		return nil
	}
	code, how := ending(l.all[first].ProcessState)
	if !signalled && !slices.Contains([]int{exitHangup, exitInterrupt, exitTerminated}, code) {
		c.say("launch: rank %d of %d failed first: %s", first, len(l.all), how)
	}
	return &exitError{code: code, err: errors.New(how), silent: true}
}

func (l *launched) kill() {
	l.killed = true
	for _, cmd := range l.all {
		if cmd.Process != nil {
			cmd.Process.Kill() //nolint:errcheck // it may have ended
		}
	}
}

// ending returns a process's exit code as a shell reports it, and a description.
func ending(s *os.ProcessState) (code int, how string) {
	if w, ok := s.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	}); ok && w.Signaled() {
		return 128 + int(w.Signal()), fmt.Sprintf("it was ended by the signal %d, %v", int(w.Signal()), w.Signal())
	}
	return s.ExitCode(), fmt.Sprintf("exit code %d", s.ExitCode())
}

// lineWriter writes whole lines of several processes.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// prefixed adds a rank to the beginning of each line that has none.
type prefixed struct {
	to      *lineWriter
	prefix  string
	partial []byte
}

// maxLine is the most bytes of an unfinished line that are buffered.
const maxLine = 64 << 10

func (p *prefixed) Write(b []byte) (int, error) {
	p.partial = append(p.partial, b...)
	for {
		i := bytes.IndexByte(p.partial, '\n')
		if i < 0 && len(p.partial) < maxLine {
			return len(b), nil
		}
		line := p.partial
		if i >= 0 {
			line = p.partial[:i]
		}
		p.line(line)
		p.partial = append([]byte(nil), p.partial[min(len(line)+1, len(p.partial)):]...)
	}
}

func (p *prefixed) line(text []byte) {
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	out := bufio.NewWriter(p.to.w)
	if !bytes.HasPrefix(text, []byte(p.prefix)) {
		out.WriteString(p.prefix) //nolint:errcheck // Flush tells
	}
	out.Write(text)     //nolint:errcheck // as above
	out.WriteByte('\n') //nolint:errcheck // as above
	out.Flush()         //nolint:errcheck // who does not read the log does not stop the run
}
