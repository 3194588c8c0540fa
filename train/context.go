package train

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
)

// sharing is how many ranks share a row's tokens.
func (c Config) sharing() int { return max(c.ContextParallelSize, 1) }

// checkSharing refuses a number of devices among which the model's attention heads cannot be divided, and says which can.
func (p *prepared) checkSharing() error {
	n, c := p.spec.Training.sharing(), p.Base.Config
	if n == 1 {
		return nil
	}
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
