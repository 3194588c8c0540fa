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
