//go:build gpu

package graph

import (
	"sync"

	"github.com/tierlora/tierlora/kernel/gpu"
)

var rangesMu sync.Mutex // runs on several devices start them

// rangesOfCalls: steps are queued call by call.
var rangesOfCalls bool

// startRanges turns ranges on where the environment asks for them, and off where it does not.
func startRanges() error {
	asked, calls, err := RangesAsked()
	rangesMu.Lock()
	defer rangesMu.Unlock()
	if asked == (ranges != nil) && calls == rangesOfCalls { // another device's run has started them
		return err
	}
	ranges, rangesOfCalls = nil, calls
	if asked {
		ranges = gpu.Ranges{}
	}
	return err
}
