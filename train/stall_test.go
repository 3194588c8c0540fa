package train

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/ranks"
	"github.com/tierlora/tierlora/train/step"
)

// linked is a machine whose device waits for those of other ranks, where the group does not see it, until it is
// abandoned.
type linked struct {
	*faulty
	abandoned chan struct{}
}

func newLinked(hangs func(m *linked, segment string)) *linked {
	m := &linked{&faulty{CPU: graph.NewCPU(1)}, make(chan struct{})}
	m.hangs = func(segment string) { hangs(m, segment) }
	return m
}

func (m *linked) Abandon() {
	err := errors.New("the exchange with the other devices was ended")
	m.ended.Store(&err)
	close(m.abandoned)
}

// waitFor is a wait for the device.
func (m *linked) waitFor(end <-chan struct{}) {
	m.waits.Store(&graph.Wait{What: "wait for an event", Since: time.Now()})
	<-end
	m.waits.Store(nil)
}

// onMachines runs ranks of one process on machines of their own, and says how each ended, and after which time.
func onMachines(t *testing.T, s Spec, machines ...*linked) (results []Result, problems []error, took []time.Duration) {
	t.Helper()
	s.Devices = "1"
	n := len(machines)
	groups := ranks.Watched(ranks.Options{Ranks: n, Timeout: time.Duration(s.Training.DDPTimeout) * time.Second,
		Quick: StepsPhase, Devices: true})
	results, problems, took = make([]Result, n), make([]error, n), make([]time.Duration, n)
	began := time.Now()
	eachRank(context.Background(), s, Env{Env: session.Env{Workers: 1}}, make([]int, n), groups,
		func(ctx context.Context, i int, env Env) error {
			results[i], problems[i] = startAt(ctx, s, env, func() (graph.Machine, error) { return machines[i], nil })
			took[i] = time.Since(began)
			return problems[i]
		})
	return results, problems, took
}

// TestHangingRank: where the device of one rank hangs, the devices of the others wait for it and no host sees it: all
// end within the timeout and a little, they name the rank that hangs, the checkpoint is whole, and one rank goes on to
// the bytes of an undisturbed run.
func TestHangingRank(t *testing.T) {
	t.Parallel() // it waits most of the time
	whole := testSpec(t, 6)
	whole.Training.GradientAccumulationSteps, whole.Training.BatchSize, whole.Training.SaveSteps = 3, 1, 2
	mustStart(t, whole, oneWorker)
	for name, hanging := range map[string]int{"rank 0": 0, "rank 1": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := over(t, whole, 3)
			s.Training.DDPTimeout = 2
			answer := make(chan struct{})
			t.Cleanup(func() { close(answer) })
			var machines []*linked
			for rank := range 3 {
				steps := 0
				machines = append(machines, newLinked(func(m *linked, segment string) {
					if segment != step.SegmentMicro {
						return
					}
					time.Sleep(300 * time.Millisecond) // so that a step is seen to take some time
					if steps++; steps < 4 {
						return
					}
					if rank == hanging {
						m.waitFor(answer)
					} else {
						m.waitFor(m.abandoned)
					}
				}))
			}
			results, problems, took := onMachines(t, s, machines...)
			for rank, err := range problems {
				var lost *ranks.LostError
				if !errors.As(err, &lost) || lost.Rank != hanging || lost.Step != 4 ||
					!strings.Contains(err.Error(), "it alone did not answer when the exchange was ended") {
					t.Errorf("rank %d: %v", rank, err)
				}
				hung := strings.Contains(err.Error(), "the process ends without it")
				if hung != (rank == hanging) {
					t.Errorf("rank %d was given up: %v: %v", rank, hung, err)
				}
				if results[rank].Steps != 3 || took[rank] > 2*time.Minute {
					t.Errorf("rank %d ended behind step %d after %v", rank, results[rank].Steps, took[rank])
				}
				t.Logf("rank %d ended after %v: %v", rank, took[rank].Round(100*time.Millisecond), err)
			}
			if newest := results[0].Checkpoint; filepath.Base(newest) != "checkpoint-2" {
				t.Errorf("the newest checkpoint is %q", newest)
			}
			last := over(t, whole, 1)
			last.OutputDir, last.Training.Resume = s.OutputDir, "auto"
			if r := mustStart(t, last, oneWorker); r.Resumed != 2 {
				t.Errorf("resumed behind step %d", r.Resumed)
			}
			sameRun(t, "one rank after three", whole.OutputDir, s.OutputDir)
		})
	}
}
