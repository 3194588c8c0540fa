package graph

import "github.com/tierlora/tierlora/kernel"

// readGathered lets the gradients of experts' matrices read tokens' rows where they are, so that the copies that
// GatherTokens makes, one for each expert of a token, are not kept for the backward pass. The numbers are the same bit
// for bit.
func readGathered(c *compilation) error {
	for _, call := range c.calls {
		k, ok := call.kernel.(kernel.ExpertWeightGrad)
		if !ok || call.in[1].call == nil {
			continue
		}
		from := call.in[1].call
		if _, ok := from.kernel.(kernel.GatherTokens); !ok || from.segment != call.segment {
			continue
		}
		x, rows, source := from.in[0], from.in[1], from.in[2]
		call.kernel = kernel.ExpertWeightGradGathered{Experts: k.Experts, PerToken: rows.Type.Shape[1], Alpha: k.Alpha}
		call.in = []*Value{call.in[0], x, source, call.in[2]}
	}
	return nil
}
