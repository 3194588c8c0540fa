package train

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// sharing returns the number of ranks that share a row's tokens, at least 1.
func (c Config) sharing() int { return max(c.ContextParallelSize, 1) }

// checkSharing returns an error if the model's attention heads cannot be divided among n ranks that share a row's
// tokens. The error names the numbers that are possible.
func (p *opened) checkSharing(n int) error {
	if n == 1 {
		return nil
	}
	c := p.Base.Config
	of := kernel.HeadShares{Heads: c.NumHeads, KVHeads: c.NumKVHeads}
	check := func(n int) error {
		of.Ranks = n
		return of.Check()
	}
	err := check(n)
	if err == nil {
		return nil
	}
	var fit []string
	for n := 1; n <= min(c.NumHeads, MaxDevices); n++ {
		if check(n) == nil {
			fit = append(fit, fmt.Sprint(n))
		}
	}
	return fmt.Errorf("training.context_parallel_size: %d: %w; this model takes %s", n, err, strings.Join(fit, ", "))
}
