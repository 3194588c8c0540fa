package objective

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	judges "github.com/tierlora/tierlora/train/reward"
)

// passReward returns the index of the reward that says whether an answer passes; -1 = there is none.
func (c Rollouts) passReward() int {
	if c.PassReward == "" {
		return min(len(c.Rewards), 1) - 1
	}
	return slices.IndexFunc(c.Rewards, func(r judges.Config) bool { return r.Title() == c.PassReward })
}

// passSizes are the values of k for which evaluations report pass@k: the powers of two up to the number of answers to
// each prompt, and that number.
func (c Rollouts) passSizes() (all []int) {
	for k := 1; k < c.NumGenerationsEval; k *= 2 {
		all = append(all, k)
	}
	return append(all, max(c.NumGenerationsEval, 1))
}

// evaluated returns the numbers of an evaluation on sampled answers.
func (c Rollouts) evaluated() []Number {
	all := []Number{{Name: "reward", Judged: true, HigherIsBetter: true}, {Name: "reward_std", Judged: true}}
	for _, r := range c.Rewards {
		all = append(all, Number{Name: "rewards/" + r.Title() + "/mean", Judged: true, HigherIsBetter: true})
	}
	for _, k := range c.passSizes() {
		all = append(all, Number{Name: fmt.Sprintf("pass@%d", k), Judged: true, HigherIsBetter: true})
	}
	return append(all, Number{Name: "completions/mean_length", Judged: true},
		Number{Name: "completions/clipped_ratio", Judged: true})
}

// Evaluate returns the numbers of an evaluation on sampled answers, without those of their lengths. pass@k is the
// probability that one of k answers passes, estimated without bias from the n answers to each prompt: one minus the
// share of the subsets of k answers in which none passes (Chen et al. 2021).
func (c Rollouts) Evaluate(groups []*dataset.Rollout) ([]Value, error) {
	totals, err := c.totals(groups)
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	mean, deviation := spread(flat(totals))
	all := []Value{{"reward", mean}, {"reward_std", deviation}}
	for i, name := range groups[0].Names {
		var column []float64
		for _, g := range groups {
			for _, rewards := range g.Rewards {
				column = append(column, rewards[i])
			}
		}
		mean, _ := spread(column)
		all = append(all, Value{"rewards/" + name + "/mean", mean})
	}
	if at := c.passReward(); at >= 0 {
		for _, k := range c.passSizes() {
			sum := 0.0
			for _, g := range groups {
				passed := 0
				for _, rewards := range g.Rewards {
					if rewards[at] >= c.PassThreshold {
						passed++
					}
				}
				sum += PassAt(len(g.Rewards), passed, k)
			}
			all = append(all, Value{fmt.Sprintf("pass@%d", k), sum / float64(len(groups))})
		}
	}
	return slices.DeleteFunc(all, func(v Value) bool { return math.IsNaN(v.Value) || math.IsInf(v.Value, 0) }), nil
}

// PassAt returns the unbiased estimate of the probability that at least one of k answers passes, where passed of n
// answers did; k is at most n.
func PassAt(n, passed, k int) float64 {
	if n-passed < k {
		return 1
	}
	none := 1.0
	for i := n - passed + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}
