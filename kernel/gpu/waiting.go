package gpu

import (
	"sync"
	"time"
)

// Wait is a call of the driver that has not returned yet.
type Wait struct {
	What  string
	Since time.Time
}

// waits are the calls under way that return when the device has done something. A call into the driver cannot be
// interrupted: who watches can only tell, or end the process. Slots that are free have no Since. More calls at a time
// than there are slots are not noted.
var waits struct {
	sync.Mutex
	slots [64]Wait
}

// Waiting returns the oldest call that waits for a device. It may be called from any goroutine.
func Waiting() (oldest Wait, any bool) {
	waits.Lock()
	defer waits.Unlock()
	for _, w := range waits.slots {
		if !w.Since.IsZero() && (!any || w.Since.Before(oldest.Since)) {
			oldest, any = w, true
		}
	}
	return oldest, any
}

// waitFor notes that a call may wait for the device from now on. It allocates nothing.
func waitFor(what string) (slot int) {
	now := time.Now()
	waits.Lock()
	defer waits.Unlock()
	for i := range waits.slots {
		if w := &waits.slots[i]; w.Since.IsZero() {
			w.What, w.Since = what, now
			return i
		}
	}
	return -1
}

// came ends a wait.
func came(slot int) {
	if slot < 0 {
		return
	}
	waits.Lock()
	waits.slots[slot] = Wait{}
	waits.Unlock()
}
