package session

import (
	"runtime"
	"testing"
)

// TestFreeGarbage checks that a process with much garbage collects it, and that one with little does not.
func TestFreeGarbage(t *testing.T) {
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	buffer := make([]byte, leastGarbage)
	FreeGarbage()
	first := collections()
	FreeGarbage()
	if n := collections(); n != first {
		t.Errorf("%d collections without garbage", n-first)
	}
	runtime.KeepAlive(buffer)
	buffer = make([]byte, leastGarbage)
	FreeGarbage()
	if n := collections(); n != first+1 {
		t.Errorf("%d collections with garbage, want 1", n-first)
	}
	runtime.KeepAlive(buffer)
}
