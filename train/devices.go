package train

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/ranks"
)

// MaxDevices is the largest number of devices of one process.
const MaxDevices = 64

// devicesAll is the value of `devices` for every GPU of this computer.
const devicesAll = "all"

// parseDevices parses the value of `devices`: a number n, or a list of GPUs; 0 and nil mean all.
func parseDevices(text string) (n int, which []int, err error) {
	wrong := fmt.Errorf("devices: %q is not all, a number of devices from 1 to %d, or a list of GPUs such as [0, 2]",
		text, MaxDevices)
	if list, ok := strings.CutPrefix(text, "["); ok {
		list, ok = strings.CutSuffix(list, "]")
		if !ok || strings.TrimSpace(list) == "" {
			return 0, nil, wrong
		}
		for word := range strings.SplitSeq(list, ",") {
			i, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || i < 0 || len(which) == MaxDevices {
				return 0, nil, wrong
			}
			if slices.Contains(which, i) {
				return 0, nil, fmt.Errorf("devices: GPU %d stands in the list twice", i)
			}
			which = append(which, i)
		}
		return len(which), which, nil
	}
	switch text {
	case "":
		return 1, nil, nil
	case devicesAll:
		return 0, nil, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < 1 || n > MaxDevices {
		return 0, nil, wrong
	}
	return n, nil, nil
}

// ValidateDevices returns an error that says what is wrong with the value of `devices`.
func (s Spec) ValidateDevices() error {
	_, _, err := parseDevices(s.Devices)
	return err
}

// placed returns the GPU of each of this process's ranks. alone is the device of a single rank if the key names none.
func (s Spec) placed(alone int) ([]int, error) {
	n, which, err := parseDevices(s.Devices)
	if err != nil {
		return nil, err
	}
	kind, err := graph.DeviceKind(s.Device)
	if err != nil {
		return nil, err
	}
	if kind == "cpu" {
		if which != nil {
			return nil, fmt.Errorf("devices: %s names GPUs, and device: %s is the CPU", s.Devices, s.Device)
		}
		return make([]int, max(n, 1)), nil
	}
	there, _ := graph.GPUs()
	switch {
	case which != nil:
	case n == 0:
		n = max(there, 1)
		fallthrough
	case n > 1:
		for i := range n {
			which = append(which, i)
		}
	default:
		which = []int{alone}
	}
	if n := graph.GPUShares(); n > 1 && len(which) > 1 {
		return nil, fmt.Errorf("devices: %s is %d ranks in one process, and TRAINER_SHARE_GPU=%d shares a GPU "+
			"among processes: start them with trainer launch --nproc %d", s.Devices, len(which), n, len(which))
	}
	if last := slices.Max(which); last >= there && len(which) > 1 {
		return nil, fmt.Errorf("devices: %s needs GPU %d, and there are %d here (0 to %d): %w", s.Devices, last, there,
			there-1, session.ErrNoDevice)
	}
	return which, nil
}

// spread returns the spec of a run on world ranks. If training.global_batch_size is set, it decides the accumulation.
func (s Spec) spread(world int) (Spec, error) {
	c := &s.Training
	share := c.sharing()
	if err := s.CheckSharing(world); err != nil {
		return s, err
	}
	rows, groups := c.GlobalBatchSize, world/share
	if rows == 0 {
		return s, nil
	}
	if each := c.BatchSize * groups; rows%each != 0 {
		of := "devices"
		if share > 1 {
			of = fmt.Sprintf("groups of %d devices", share)
		}
		return s, fmt.Errorf("training.global_batch_size: %d rows are not whole batches of %d on each of %d %s: "+
			"choose a multiple of %d, or another number of devices", rows, c.BatchSize, groups, of, each)
	}
	c.GradientAccumulationSteps = rows / (c.BatchSize * groups)
	return s, nil
}

// CheckSharing returns an error if world ranks cannot be divided into groups that share rows.
func (s Spec) CheckSharing(world int) error {
	share := s.Training.sharing()
	if world%share == 0 {
		return nil
	}
	return fmt.Errorf("training.context_parallel_size: %d devices share each row, and this run has %s: give it a "+
		"multiple of %d by devices, or set the key to 1", share, count(world, "device"), share)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// RanksAsked returns the number of ranks of the run in one process: one per GPU. On a CPU it is the configured number
// of ranks, which share the CPU. all means every GPU of this computer.
func (s Spec) RanksAsked() (int, error) {
	n, _, err := parseDevices(s.Devices)
	if err == nil && n == 0 {
		on, err := s.placed(0)
		return len(on), err
	}
	return n, err
}

// asOne returns the same run on one device. With context parallelism its numbers are the same up to rounding.
func (s Spec) asOne() (Spec, error) {
	n, err := s.RanksAsked()
	if err == nil {
		s, err = s.spread(n)
	}
	s = s.alone(n)
	s.Devices, s.Training.ContextParallelSize = "1", 1
	return s, err
}

// alone returns the same run on one device, or on one context-parallel group: it accumulates the windows of all ranks,
// which gives the same numbers.
func (s Spec) alone(world int) Spec {
	share := s.Training.sharing()
	s.Training.GradientAccumulationSteps *= max(world/share, 1)
	s.Devices, s.Training.GlobalBatchSize = fmt.Sprint(share), 0
	s.Training.BaseSharding, s.Training.OptimizerSharding = "auto", "auto"
	return s
}

// Start trains: it plans, loads, then runs the loop to its last step, or until it is interrupted. With `devices` it
// trains on several devices, with env.Groups as some of the ranks of a run of several processes. After ErrDeviceHangs a
// goroutine of the run still waits for the device, so the process should end.
func Start(ctx context.Context, s Spec, env Env) (Result, error) {
	on, err := s.placed(env.GPU)
	if err != nil {
		return Result{}, err
	}
	groups := env.Groups
	switch {
	case groups == nil && len(on) == 1:
		if s, err = s.spread(1); err != nil {
			return Result{}, err
		}
		env.GPU = on[0]
		return startAt(ctx, s, env, openMachine(s, env))
	case groups == nil:
		groups = s.localGroups(len(on), env)
	case len(groups) != len(on):
		return Result{}, fmt.Errorf("devices: this process has %d ranks of the run and %d devices", len(groups),
			len(on))
	}
	if s, err = s.spread(groups[0].World()); err != nil {
		return Result{}, errors.Join(err, groups[0].Leave(err))
	}
	return startAll(ctx, s, env, on, groups)
}

// localGroups returns the groups of n ranks that one process drives. Groups of GPUs have a watchdog, because one GPU
// that hangs blocks the others.
func (s Spec) localGroups(n int, env Env) []ranks.Group {
	if kind, _ := graph.DeviceKind(s.Device); kind == "cpu" {
		return ranks.NewLocal(n)
	}
	return ranks.Watched(ranks.Options{Ranks: n, Timeout: time.Duration(max(s.Training.DDPTimeout, 1)) * time.Second,
		Quick: StepsPhase, Devices: true, Logf: env.Logf})
}

// startAll trains on several devices, with one goroutine for each. Only the first of this process's ranks gets the
// whole environment; the others are silent.
func startAll(ctx context.Context, s Spec, env Env, on []int, groups []ranks.Group) (Result, error) {
	results, problems := make([]Result, len(on)), make([]error, len(on))
	eachRank(ctx, s, env, on, groups, func(ctx context.Context, i int, env Env) error {
		results[i], problems[i] = startAt(ctx, s, env, openMachine(s, env))
		return problems[i]
	})
	for i, err := range problems {
		if err != nil && env.Failed != nil && !errors.As(err, new(*ranks.LostError)) {
			env.Failed(groups[i].Rank(), err)
		}
	}
	return results[0], causeOf(problems, groups)
}

// eachRank runs the ranks of this process side by side, each with its environment, and returns when all have ended.
func eachRank(ctx context.Context, s Spec, env Env, on []int, groups []ranks.Group,
	run func(ctx context.Context, i int, env Env) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shared := &sharedData{ready: make(chan struct{})}
	env.Workers = s.workersOf(len(on), env)
	var all sync.WaitGroup
	for i, g := range groups {
		own := env
		own.GPU, own.Groups = on[i], nil
		own.team = &team{Group: g, ctx: ctx, local: i, locals: len(groups), shared: shared}
		if i > 0 {
			own.Interrupted, own.phases = nil, nil
		}
		if g.Rank() > 0 {
			own.Observers, own.Config, own.Log, own.Reading, own.silent = nil, nil, nil, nil, true
		}
		all.Go(rescue.Wrap(func() {
			err := errors.New("it ended without a result")
			defer func() { own.team.leave(err) }()
			err = run(ctx, i, own)
		}))
	}
	all.Wait()
}

// workersOf returns the number of CPU threads of each rank of one process; ranks on a CPU share the cores.
func (s Spec) workersOf(ranks int, env Env) int {
	if kind, _ := graph.DeviceKind(s.Device); kind == "cpu" && env.Workers == 0 && ranks > 1 {
		return max(1, runtime.NumCPU()/ranks)
	}
	return env.Workers
}

// Together calls work on each of the devices that a spec names, concurrently as the ranks of a run. With one device it
// calls work directly. The spec that work receives is the one for one rank.
func Together(ctx context.Context, s Spec, env Env, work func(ctx context.Context, s Spec, env Env) error) error {
	on, err := s.placed(env.GPU)
	if err == nil {
		s, err = s.spread(len(on))
	}
	if err != nil {
		return err
	}
	if len(on) == 1 {
		env.GPU = on[0]
		return work(ctx, s, env)
	}
	groups, problems := ranks.NewLocal(len(on)), make([]error, len(on))
	eachRank(ctx, s, env, on, groups, func(ctx context.Context, i int, env Env) error {
		problems[i] = work(ctx, s, env)
		return problems[i]
	})
	return causeOf(problems, groups)
}

// Rank returns this rank's index and the number of ranks in an environment of Together.
func (e Env) Rank() (rank, ranks int) {
	if e.team == nil {
		return 0, 1
	}
	return e.team.Rank(), e.team.World()
}

// Join joins a machine to the ranks of the run; the caller calls leave when it closes the machine.
func (e Env) Join(on graph.Machine) (leave func(), err error) { return e.team.join(on) }

// causeOf returns the error that ended the ranks of this process. It prefers an error of a rank's own to errors that
// another rank caused, and returns the first of these.
func causeOf(problems []error, groups []ranks.Group) error {
	var first error
	for i, err := range problems {
		if err == nil {
			continue
		}
		if r := groups[i].Rank(); r > 0 && len(groups) > 1 {
			err = fmt.Errorf("rank %d: %w", r, err)
		}
		if !errors.As(err, new(*ranks.LostError)) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}
