package train

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// fullMachine is a computer whose free memory is less than what its system keeps for itself.
type fullMachine struct{ *graph.CPU }

func (fullMachine) FreeMemory() (int64, bool, error) { return -2 << 30, true, nil }

// TestFullMachineIsNotUnknown: less than nothing is free, which is no machine that does not say how much is.
func TestFullMachineIsNotUnknown(t *testing.T) {
	_, err := prepareOn(t.Context(), testSpec(t, 2), Env{}, fullMachine{graph.NewCPU(1)})
	if !errors.Is(err, session.ErrDoesNotFit) || !strings.Contains(err.Error(), "the limit is 0 B") ||
		!strings.Contains(err.Error(), "other programs hold the memory of cpu") {
		t.Errorf("a run on a full machine: %v", err)
	}
}
