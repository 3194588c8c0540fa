package train

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// explain adds to a device's error how far the run came and what continues it.
func (r *running) explain(err error) error {
	var e *gpu.Error
	if !errors.As(err, &e) {
		return err
	}
	goOn := "no checkpoint was saved yet"
	if r.result.Checkpoint != "" {
		goOn = r.result.Checkpoint + " is whole: --resume auto goes on from it"
	}
	if e.Sticky() {
		goOn += "; trainer selfcheck tries every kernel on this device"
	}
	return fmt.Errorf("after step %d of %d: %w; %s", r.state.GlobalStep, r.total, err, goOn)
}
