package train

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain lets the garbage of hundreds of small runs grow, and samples no allocations unless a memory profile is asked
// for: collections of that garbage, each of which visits the samples, took a quarter of the tests' processor time.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.memprofile"); f == nil || f.Value.String() == "" {
		runtime.MemProfileRate = 0
	}
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
