package session

import (
	"runtime/debug"
	"runtime/metrics"
)

// FreeGarbage frees the garbage of loading programs of at least leastProgram bytes, and else where Go's heap holds at
// least leastGarbage bytes beyond its live objects. In a process that lets its garbage grow to a multiple of Go's
// default (GOGC), it is that multiple of leastGarbage.
const (
	leastProgram = 64 << 20
	leastGarbage = 16 << 20
)

// FreeGarbage gives the memory of garbage back to the system, so that a process stays near its planned memory. program
// is the size in bytes of the programs that were loaded. It does nothing where little can be freed: a collection takes
// longer than a step of a small model.
func FreeGarbage(program int64) {
	if idle, growth := idleHeap(); program >= leastProgram || float64(idle) >= leastGarbage*growth {
		debug.FreeOSMemory()
	}
}

// idleHeap returns the bytes of Go's heap that the process holds beyond the objects that the last collection found
// live, and how much garbage GOGC allows, as a multiple of Go's default.
func idleHeap() (idle int64, growth float64) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(samples)
	for _, s := range samples[:3] {
		idle += int64(s.Value.Uint64())
	}
	return idle - int64(samples[3].Value.Uint64()), float64(samples[4].Value.Uint64()) / 100
}
