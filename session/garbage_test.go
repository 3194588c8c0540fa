package session

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestFreeGarbage checks that a process with much garbage or a large program collects, and that another one does not.
func TestFreeGarbage(t *testing.T) {
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	FreeGarbage(leastProgram)
	first := collections()
	FreeGarbage(leastProgram - 1)
	if n := collections(); n != first {
		t.Errorf("%d collections without garbage", n-first)
	}
	buffer := make([]byte, leastGarbage)
	FreeGarbage(0)
	if n := collections(); n != first+1 {
		t.Errorf("%d collections with garbage, want 1", n-first)
	}
	FreeGarbage(leastProgram)
	if n := collections(); n != first+2 {
		t.Errorf("%d collections after a large program, want 1", n-first-1)
	}
	runtime.KeepAlive(buffer)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	buffer = make([]byte, leastGarbage)
	FreeGarbage(0)
	if n := collections(); n != first+2 {
		t.Errorf("%d collections of garbage that GOGC=400 allows", n-first-2)
	}
	runtime.KeepAlive(buffer)
}
