package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/optimizer"
)

// TestPlanOffloadsOptimizerStates: with every optimizer, states in host memory leave the device's by as many bytes as
// the report says; auto moves them only where vram asks for it, and never names auto where that would fit.
func TestPlanOffloadsOptimizerStates(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(optimizer.Optimizers)) {
		s := fullSpec(t, 2)
		s.Device, s.Training.Optimizer, s.Training.GradientCheckpointing = "cuda", name, "full"
		s.Training.GradientAccumulationSteps = 1
		if name == "schedule_free_adamw" {
			s.Training.LRScheduler = "constant"
		}
		plan := func(offload, vram string) (PlanReport, error) {
			s.Training.OptimizerOffload, s.VRAM = offload, vram
			return PlanFor(context.Background(), s, Env{}, chipOf(t, "h100"))
		}
		must := func(offload, vram string) PlanReport {
			r, err := plan(offload, vram)
			if err != nil {
				t.Fatalf("%s, optimizer_offload %s, vram %q: %v", name, offload, vram, err)
			}
			return r
		}
		here, there := must("never", "64GiB"), must("always", "64GiB")
		if here.OffloadedBytes != 0 || there.OffloadedBytes == 0 ||
			here.TotalBytes-there.TotalBytes != there.OffloadedBytes {
			t.Errorf("%s: %d bytes with the states, %d without, %d of them on the host", name, here.TotalBytes,
				there.TotalBytes, there.OffloadedBytes)
		}
		if auto := must("auto", "64GiB"); auto.OffloadedBytes != 0 || auto.TotalBytes != here.TotalBytes {
			t.Errorf("%s: auto offloads %d bytes that fit", name, auto.OffloadedBytes)
		}
		tight := fmt.Sprint(there.TotalBytes)
		if must("auto", tight).OffloadedBytes != there.OffloadedBytes {
			t.Errorf("%s: auto keeps states on a device without memory for them", name)
		}
		_, err := plan("never", tight)
		if !errors.Is(err, session.ErrDoesNotFit) ||
			!strings.Contains(err.Error(), "training.optimizer_offload: auto would fit, in as little as ") {
			t.Errorf("%s: never is refused with %v", name, err)
		}
	}
}
