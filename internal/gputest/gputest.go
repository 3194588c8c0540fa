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
