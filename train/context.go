package train

import (
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
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

// suggestSharing looks for devices of the run that would fit a layout if they shared rows, of which a batch has one.
func (p *prepared) suggestSharing(limit int64, l session.Layout, z shapes, rows int) string {
	for n := 2; n <= p.world() && rows == 1; n++ {
		with := *p
		with.spec.Training.ContextParallelSize = n
		if n <= p.spec.Training.sharing() || p.world()%n != 0 || with.checkSharing() != nil {
			continue
		}
		planned, err := with.planIn(l, z)
		if err != nil {
			return "" // a model that cannot share rows
		}
		if need := planned.Need.Total(); need <= limit {
			return fmt.Sprintf("training.context_parallel_size: %d would fit, in as little as %s on each device", n, session.FormatBytes(need))
		}
	}
	return ""
}
