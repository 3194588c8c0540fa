package graph

import "github.com/tierlora/tierlora/kernel/gpu"

// Wait is a call of a device's driver that has not returned yet: what was asked for, and when.
type Wait = gpu.Wait

// Waiter is a Machine that knows which of its calls has been waiting for its device for the longest time. It may be
// asked from any goroutine.
type Waiter interface {
	Waiting() (w Wait, any bool)
}

// Sized is a Machine that knows how much memory it has, in use or not.
type Sized interface {
	TotalMemory() (bytes int64, known bool)
}
