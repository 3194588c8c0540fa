//go:build gpu

package infer

import (
	"testing"

	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/quant"
)

// TestGPUEngineSequencesAreTheirOwn is the CPU's test: the same bits alone, together, in any slot.
func TestGPUEngineSequencesAreTheirOwn(t *testing.T) {
	gputest.Need(t)
	sequencesAreTheirOwn(t, "cuda", nil)
}

func TestGPUEngineSequencesAreTheirOwnInNF4(t *testing.T) {
	gputest.Need(t)
	nf4 := quant.Default()
	sequencesAreTheirOwn(t, "cuda", &nf4)
}

// TestGPUAnswersAreTheirOwn is the CPU's test: sampled answers have the same bits with any number of slots.
func TestGPUAnswersAreTheirOwn(t *testing.T) {
	gputest.Need(t)
	nf4 := quant.Default()
	for _, scheme := range []*quant.Config{nil, &nf4} {
		answersAreTheirOwn(t, "cuda", scheme, []int{3, 16, 24, 70, 200})
	}
}
