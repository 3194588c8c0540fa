package session

import (
	"runtime/debug"
	"runtime/metrics"
)

// FreeGarbage frees the garbage of loading programs of at least leastProgram bytes, and else where Go's heap holds at
// least leastGarbage bytes beyond its live objects.
const (
	leastProgram = 64 << 20
	leastGarbage = 16 << 20
)

// FreeGarbage gives the memory of garbage back to the system, so that a process stays near its planned memory. program
// is the size in bytes of the programs that were loaded. It does nothing where little can be freed: a collection takes
// longer than a step of a small model.
func FreeGarbage(program int64) {
	if program >= leastProgram || idleHeap() >= leastGarbage {
		debug.FreeOSMemory()
	}
}

// idleHeap returns the bytes of Go's heap that the process holds beyond the objects that the last collection found
// live.
func idleHeap() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	held := int64(0)
	for _, s := range samples[:3] {
		held += int64(s.Value.Uint64())
	}
	return held - int64(samples[3].Value.Uint64())
}
