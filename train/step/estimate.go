package step

import (
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// MicroSeconds estimates how long a micro-batch of sequences of equal length takes on a GPU of these rates. Layouts of
// the same micro-batch are compared by it.
func MicroSeconds(s *Step, rates graph.Rates) float64 {
	return s.Plan.Seconds(rates, kernel.Content{}, SegmentMicro)
}

// Seconds estimates how long a step of accumulate micro-batches takes on a GPU of these rates, without the exchange
// between ranks. steps has a plan for each token budget; batches are examples of micro-batches, and their mean counts.
func Seconds(steps []*Step, rates graph.Rates, accumulate int, batches []dataset.Batch) float64 {
	if len(steps) == 0 || len(batches) == 0 {
		return 0
	}
	largest := steps[0]
	for _, s := range steps {
		if s.Tokens > largest.Tokens {
			largest = s
		}
	}
	once := append([]string{SegmentUpdate}, lastOfWindow...)
	each := []string{SegmentBegin, SegmentMicro}
	if accumulate > 1 {
		once, each = append(once, firstOfWindow...), eachOfWindow
	}
	var micro float64
	for _, b := range batches {
		s := largest
		for _, t := range steps {
			if len(b.IDs) <= t.Tokens && t.Tokens < s.Tokens {
				s = t
			}
		}
		micro += s.Plan.Seconds(rates, contentOf(b), each...)
	}
	return largest.Plan.Seconds(rates, kernel.Content{}, once...) +
		float64(accumulate)*micro/float64(len(batches))
}
