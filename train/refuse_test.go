package train

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// TestRefuseOnAFullMachine: no smaller model helps where nothing is free, and no negative number of bytes is printed.
func TestRefuseOnAFullMachine(t *testing.T) {
	p := &prepared{Session: &session.Session{On: graph.NewCPU(1)}}
	p.found.Need = graph.Bytes{Frozen: 5 << 20, Arena: 6 << 20}
	err := p.refuse(-2<<30, shapes{})
	if !errors.Is(err, session.ErrDoesNotFit) || !strings.Contains(err.Error(), "holds 11.0 MiB, 0 B may be held, 11.0 MiB too much; other programs hold the memory of cpu") {
		t.Errorf("refused with %v", err)
	}
}

// fullMachine is a computer whose free memory is less than what its system keeps for itself.
type fullMachine struct{ *graph.CPU }

func (fullMachine) FreeMemory() (int64, bool, error) { return -2 << 30, true, nil }

// TestFullMachineIsNotUnknown: less than nothing is free, which is no machine that does not say how much is.
func TestFullMachineIsNotUnknown(t *testing.T) {
	_, err := prepareOn(t.Context(), testSpec(t, 2), Env{}, fullMachine{graph.NewCPU(1)})
	if !errors.Is(err, session.ErrDoesNotFit) || !strings.Contains(err.Error(), "0 B may be held") || !strings.Contains(err.Error(), "other programs hold the memory of cpu") {
		t.Errorf("a run on a full machine: %v", err)
	}
}
