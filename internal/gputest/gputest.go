// Package gputest is for tests that need a GPU.
package gputest

import (
	"os"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

// Need skips where there is no device, and fails instead where TRAINER_GPU=require.
func Need(t testing.TB) {
	t.Helper()
	if n, reason := graph.GPUs(); n == 0 {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatalf("TRAINER_GPU=require: %s", reason)
		}
		t.Skip(reason)
	}
}

// Open is the first GPU in the precision that suits it, closed at the test's end.
func Open(t testing.TB) graph.Machine {
	t.Helper()
	Need(t)
	on, err := graph.NewGPU(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { on.Close() }) //nolint:errcheck // the numbers were read
	return on
}
