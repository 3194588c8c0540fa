//go:build gpu

package graph

import "github.com/tierlora/tierlora/kernel/gpu"

// startRanges turns ranges on where the environment asks for them.
func startRanges() error {
	asked, calls, err := RangesAsked()
	if asked {
		ranges, rangesOfCalls = gpu.Ranges{}, calls
	}
	return err
}
