package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/ranks"
)

// atTheirPlaces receives this process's ranks after they have joined a run. Tests replace it to inject faults.
var atTheirPlaces = func(groups []ranks.Group) []ranks.Group { return groups }

// allot returns the spec and GPU of a process that a launcher started. A process alone on its host uses the devices of
// the configuration, or else those that the launcher requests; several processes on a host use one device each.
func allot(s train.Spec, p ranks.Place) (train.Spec, int, error) {
	if p.LocalWorld != 1 {
		return s.OneOf(p.LocalRank, p.LocalWorld)
	}
	if p.Devices == 0 || s.Devices != train.DefaultSpec().Devices {
		return s, 0, nil
	}
	kind, err := graph.DeviceKind(s.Device)
	if err != nil || kind == "cpu" {
		return s, 0, err
	}
	if s.Devices = fmt.Sprint(p.Devices); p.Devices == ranks.AllDevices {
		s.Devices = "all"
	}
	if err := s.ValidateDevices(); err != nil {
		return s, 0, fmt.Errorf("%s asks for %d devices: %w", p.Launcher, p.Devices, err)
	}
	return s, 0, nil
}

// join makes this process part of the run that a launcher started.
func join(ctx context.Context, c *console, s train.Spec, p ranks.Place) ([]ranks.Group, error) {
	n, err := s.RanksAsked()
	if err != nil {
		return nil, err
	}
	o := rankOptions(s)
	o.Ranks, o.Logf = n, c.say
	groups, err := ranks.Join(ctx, p, o)
	if errors.Is(err, context.Canceled) {
		err = &train.Stopped{Doing: "waiting for the other processes"}
	}
	if err != nil {
		return nil, err
	}
	return atTheirPlaces(groups), nil
}

// rankOptions returns how the processes of a run communicate.
func rankOptions(s train.Spec) ranks.Options {
	kind, err := graph.DeviceKind(s.Device)
	return ranks.Options{
		Version: strings.TrimSpace(version() + " " + built.Commit), Key: []byte(os.Getenv(ranks.KeyVariable)),
		Timeout: time.Duration(max(s.Training.DDPTimeout, 1)) * time.Second, Quick: train.StepsPhase,
		Devices: err == nil && kind != "cpu",
	}
}

// cannot reports, here and to the other processes, which would wait for it, why this process cannot take part in a run.
func cannot(ctx context.Context, c *console, p ranks.Place, err error) error {
	exit := (*exitError)(nil)
	if !errors.As(err, &exit) || !exit.silent {
		c.say("trainer: %s", shortened(err.Error()))
	}
	ranks.Report(ctx, p, rankOptions(train.DefaultSpec()), err)
	return &exitError{code: exitCode(err), err: err, silent: true}
}

// leave ends this process's ranks. They have ended already unless the run failed before it began.
func leave(groups []ranks.Group, err error) {
	if err == nil {
		err = errors.New("it ended before the run began")
	}
	for _, g := range groups {
		g.Leave(err) //nolint:errcheck // the run's own error is told
	}
}
