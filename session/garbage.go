package session

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// leastGarbage is the number of bytes that a process allocates on Go's heap before FreeGarbage collects them.
const leastGarbage = 16 << 20

var freedAt atomic.Uint64 // bytes that the process had allocated at the last collection of FreeGarbage

// FreeGarbage gives the memory of garbage back to the system, so that a process stays near its planned memory. It
// collects only if the process allocated at least 16 MiB since the last call that did: less is not worth a collection,
// which takes longer than a step of a small model.
func FreeGarbage() {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	if allocated, last := sample[0].Value.Uint64(), freedAt.Load(); allocated-last >= leastGarbage {
		freedAt.Store(allocated)
		debug.FreeOSMemory()
	}
}
