package train

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/graph"
)

// explain adds to a device's error how far the run came and what continues it.
func (r *running) explain(err error) error {
	if !errors.Is(err, graph.ErrDevice) {
		return err
	}
	goOn := "no checkpoint was saved yet"
	if r.result.Checkpoint != "" {
		goOn = r.result.Checkpoint + " is whole: --resume auto goes on from it"
	}
	if errors.Is(err, graph.ErrDeviceLost) {
		goOn += "; trainer selfcheck tries every kernel on this device"
	}
	return fmt.Errorf("after step %d of %d: %w; %s", r.state.GlobalStep, r.total, err, goOn)
}
