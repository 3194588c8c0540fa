package train

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
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
	code := m.Run()
	if lasting.dir != "" {
		os.RemoveAll(lasting.dir) //nolint:errcheck // it lies with other temporary files
	}
	os.Exit(code)
}

// lasting is the folder of what several tests read.
var lasting struct {
	once sync.Once
	dir  string
	err  error
}

// untilEnd is a test whose temporary folders stay until the last test of the package ends.
type untilEnd struct{ testing.TB }

// TempDir returns a new folder.
func (u untilEnd) TempDir() string {
	u.Helper()
	lasting.once.Do(func() { lasting.dir, lasting.err = os.MkdirTemp("", "train") })
	dir, err := "", lasting.err
	if err == nil {
		dir, err = os.MkdirTemp(lasting.dir, "")
	}
	if err != nil {
		u.Fatal(err)
	}
	return dir
}
