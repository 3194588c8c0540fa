//go:build gpu && linux

package train

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/kernel/gpu/libcuda"
	"github.com/tierlora/tierlora/train/step"
)

// throughDriver is a CPU that waits as a GPU does.
type throughDriver struct{ *faulty }

func (throughDriver) Waiting() (graph.Wait, bool) {
	w, any := gpu.Waiting()
	return graph.Wait(w), any
}

// TestHangingDriver: on any machine a call into the driver that does not return ends the run, with its checkpoint
// named.
func TestHangingDriver(t *testing.T) {
	s := testSpec(t, 6)
	s.Training.SaveSteps, s.Training.DeviceTimeout = 2, 1
	m := throughDriver{newFaulty()}
	restore, err := libcuda.Hang("cuCtxSynchronize")
	if err != nil {
		t.Fatal(err)
	}
	defer restore()
	returned, steps := make(chan struct{}), 0
	m.hangs = func(segment string) {
		if segment == step.SegmentMicro {
			if steps++; steps == 4 {
				new(gpu.Device).Synchronize() //nolint:errcheck // it does not return
				close(returned)
			}
		}
	}
	r, err := startAt(t.Context(), s, Env{}, func() (graph.Machine, error) { return m, nil })
	if !errors.Is(err, ErrDeviceHangs) || r.Steps != 3 || filepath.Base(r.Checkpoint) != "checkpoint-2" ||
		!strings.Contains(err.Error(), "in step 4, wait for the device, for 1s (training.device_timeout: 1)") {
		t.Errorf("ended after step %d, newest checkpoint %s: %v", r.Steps, r.Checkpoint, err)
	}
	restore()
	<-returned
}
