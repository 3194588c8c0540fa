package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/step"
)

// waiting is a machine that has been waiting since a time.
type waiting struct{ since time.Time }

func (w waiting) Waiting() (graph.Wait, bool) {
	return graph.Wait{What: "wait for an event", Since: w.since}, !w.since.IsZero()
}

// TestWatchdogLooks: a wait is warned of once, behind ten median steps or the floor, and given up behind the limit.
func TestWatchdogLooks(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name  string
		took  []time.Duration
		limit time.Duration
		lasts time.Duration
		want  string // in the warning, or "gives up"; "" = silence
	}{
		{"nothing long", nil, time.Hour, 59 * time.Second, ""},
		{"the first step", nil, time.Hour, 61 * time.Second,
			"warning: in step 8 the device has not answered for 1m1s (wait for an event); after 1h0m0s the run " +
				"ends (training.device_timeout)"},
		{"quick steps", []time.Duration{3, 1, 2}, time.Hour, 59 * time.Second, ""},
		{"slow steps", []time.Duration{20 * time.Second, 30 * time.Second, 40 * time.Second}, time.Hour,
			299 * time.Second, ""},
		{"slower than slow steps", []time.Duration{20 * time.Second, 30 * time.Second, 40 * time.Second}, 0,
			301 * time.Second, "for 5m1s (wait for an event), a step takes 30s in the median; " +
				"training.device_timeout: 0"},
		{"behind the limit", nil, time.Hour, time.Hour, "gives up"},
		{"without a limit", nil, 0, 100 * time.Hour, "warning: in step 8 the device has not answered for 100h0m0s"},
	} {
		var said []string
		at := &whereabouts{now: phaseSteps, took: c.took, result: Result{Steps: 7, Checkpoint: "run/checkpoint-5"}}
		dog := &watchdog{on: waiting{begin}, at: at, limit: c.limit, floor: slowFloor,
			logf: func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) }}
		err := dog.look(begin.Add(c.lasts))
		if again := dog.look(begin.Add(c.lasts)); (again == nil) != (err == nil) {
			t.Errorf("%s: first %v, then %v", c.name, err, again)
		}
		switch text := strings.Join(said, "\n"); {
		case c.want == "gives up":
			for _, want := range []string{"the device does not answer: in step 8, wait for an event, for 1h0m0s " +
				"(training.device_timeout: 3600)", "run/checkpoint-5 is whole: --resume auto continues from it"} {
				if !errors.Is(err, ErrDeviceHangs) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
		case err != nil || (c.want == "") != (text == "") || !strings.Contains(text, c.want) || len(said) > 1:
			t.Errorf("%s: %v, said %q", c.name, err, text)
		}
	}
	if err := (&watchdog{on: waiting{}, at: &whereabouts{}, limit: 1}).look(begin); err != nil {
		t.Errorf("nothing waits: %v", err)
	}
}

// TestHangingDevice: a run whose device does not answer ends with an error that says so, its checkpoint is whole, its
// folder free, and it resumes. What is left behind writes nothing when the device answers after all.
func TestHangingDevice(t *testing.T) {
	for name, where := range map[string]string{"in a step": step.SegmentMicro, "in an update": step.SegmentUpdate} {
		t.Run(name, func(t *testing.T) {
			s := testSpec(t, 6)
			s.Training.SaveSteps, s.Training.DeviceTimeout = 2, 1
			m, answer, left := newFaulty(), make(chan struct{}), make(chan struct{})
			steps := 0
			m.hangs = func(segment string) {
				if segment == where {
					steps++
				}
				if segment == where && steps == 4 {
					m.waits.Store(&graph.Wait{What: "wait for an event", Since: time.Now()})
					<-answer
				}
			}
			env := Env{}
			r, err := startFaulty(t, m, s, env)
			if !errors.Is(err, ErrDeviceHangs) || r.Steps != 3 || filepath.Base(r.Checkpoint) != "checkpoint-2" {
				t.Fatalf("ended after step %d, newest checkpoint %s: %v", r.Steps, r.Checkpoint, err)
			}
			for _, want := range []string{"in step 4, wait for an event, for 1s (training.device_timeout: 1)",
				"checkpoint-2 is whole: --resume auto continues from it"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			if _, err := os.Stat(filepath.Join(s.OutputDir, checkpoint.LockFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is still locked: %v", err)
			}
			before := fileLines(t, filepath.Join(s.OutputDir, MetricsFile))
			m.CPU.Close() //nolint:errcheck // it does nothing
			close(answer) // too late
			go func() { defer close(left); time.Sleep(200 * time.Millisecond) }()
			<-left
			if after := fileLines(t, filepath.Join(s.OutputDir, MetricsFile)); len(after) != len(before) ||
				exists(s.OutputDir, "checkpoint-4") {
				t.Errorf("a run that was given up went on: %d lines, then %d", len(before), len(after))
			}
			s.Training.Resume = "auto"
			if r := mustStart(t, s, Env{}); r.Resumed != 2 || r.Steps != 6 {
				t.Errorf("resumed after %d, ended at %d", r.Resumed, r.Steps)
			}
		})
	}
}
