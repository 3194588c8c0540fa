package objective

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tierlora/tierlora/dataset"
)

// steady is added to a standard deviation before it divides, as TRL does.
const steady = 1e-4

// weights are the weights of n rewards.
func (c Rollouts) weights(n int) ([]float64, error) {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1
	}
	if len(c.RewardWeights) == 0 {
		return w, nil
	}
	if len(c.RewardWeights) != n {
		return nil, fmt.Errorf("reward_weights: %d weights for %d rewards: give one for each", len(c.RewardWeights), n)
	}
	for i, text := range c.RewardWeights {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x-x != 0 {
			return nil, fmt.Errorf("reward_weights: %q is not a finite number", text)
		}
		w[i] = x
	}
	return w, nil
}

// total is the weighted sum of an answer's rewards, without those that could not be given; NaN if none could.
func total(rewards, weights []float64) float64 {
	sum, some := 0.0, false
	for i, x := range rewards {
		if !math.IsNaN(x) {
			sum, some = sum+weights[i]*x, true
		}
	}
	if !some {
		return math.NaN()
	}
	return sum
}

// spread is the mean and the standard deviation, with one less than the count as its divisor, of the numbers that are
// not NaN. The deviation of fewer than two is NaN.
func spread(all []float64) (mean, deviation float64) {
	n := 0.0
	for _, x := range all {
		if !math.IsNaN(x) {
			mean, n = mean+x, n+1
		}
	}
	mean /= n
	for _, x := range all {
		if !math.IsNaN(x) {
			deviation += (x - mean) * (x - mean)
		}
	}
	if n < 2 {
		return mean, math.NaN()
	}
	return mean, math.Sqrt(deviation / (n - 1))
}

// Totals returns the weighted sum of the rewards of each answer of a group; NaN = no reward could be given.
func (c Rollouts) Totals(g *dataset.Rollout) ([]float64, error) {
	w, err := c.weights(len(g.Names))
	if err != nil {
		return nil, err
	}
	own := make([]float64, len(g.Rewards))
	for i, rewards := range g.Rewards {
		own[i] = total(rewards, w)
	}
	return own, nil
}

// leastSpread is the smallest standard deviation of a group's rewards that counts as a difference.
const leastSpread = 1e-8

// Teaches reports whether the rewards of a group's answers differ, so that some answers are preferred to others.
func (c Rollouts) Teaches(g *dataset.Rollout) (bool, error) {
	totals, err := c.Totals(g)
	_, own := spread(totals)
	return own >= leastSpread, err
}

// totals returns the weighted sums of the rewards of all answers, by group.
func (c Rollouts) totals(groups []*dataset.Rollout) (by [][]float64, err error) {
	for _, g := range groups {
		own, err := c.Totals(g)
		if err != nil {
			return nil, err
		}
		by = append(by, own)
	}
	return by, nil
}

// flat is the numbers of all groups, one after the other.
func flat(groups [][]float64) (all []float64) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// advantages sets the advantages of the groups of a step: how much the reward of each answer is above the mean of its
// group, by the deviation that scale_rewards names.
func (c GRPOConfig) advantages(groups []*dataset.Rollout) error {
	totals, err := c.totals(groups)
	if err != nil {
		return err
	}
	if c.MultiObjectiveAggregation == "normalize_then_sum" {
		return c.normalised(groups)
	}
	_, whole := spread(flat(totals))
	for k, g := range groups {
		g.Advantages = make([]float64, len(totals[k]))
		mean, deviation := spread(totals[k])
		if c.ScaleRewards == "batch" {
			deviation = whole
		}
		for i, x := range totals[k] {
			a := x - mean
			if c.ScaleRewards != "none" {
				a /= deviation + steady
			}
			if !math.IsNaN(a) { // an answer without a reward, or alone, has no advantage
				g.Advantages[i] = a
			}
		}
	}
	return nil
}

// normalised sets the advantages of normalize_then_sum: each reward is normalised in its group, their weighted sum in
// the step.
func (c GRPOConfig) normalised(groups []*dataset.Rollout) error {
	for _, g := range groups {
		w, err := c.weights(len(g.Names))
		if err != nil {
			return err
		}
		g.Advantages = make([]float64, len(g.Rewards))
		for i := range g.Names {
			column := make([]float64, len(g.Rewards))
			for j, rewards := range g.Rewards {
				column[j] = rewards[i]
			}
			mean, deviation := spread(column)
			for j, x := range column {
				if a := (x - mean) / (deviation + steady); !math.IsNaN(a) {
					g.Advantages[j] += w[i] * a
				}
			}
		}
	}
	normalise(groups)
	return nil
}

// normalise takes the mean of the step from all advantages, and divides by its deviation.
func normalise(groups []*dataset.Rollout) {
	var all []float64
	for _, g := range groups {
		all = append(all, g.Advantages...)
	}
	mean, deviation := spread(all)
	for _, g := range groups {
		for j, a := range g.Advantages {
			if g.Advantages[j] = (a - mean) / (deviation + steady); math.IsNaN(g.Advantages[j]) {
				g.Advantages[j] = 0
			}
		}
	}
}

// Advantages sets the advantages of the groups of a step and returns TRL's numbers of its rewards.
func (o policy) Advantages(groups []*dataset.Rollout, tokens int) ([]Value, error) {
	if err := o.advantages(groups); err != nil {
		return nil, err
	}
	totals, err := o.totals(groups)
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	var values []Value
	if o.divergence {
		sum := 0.0
		for _, g := range groups {
			for _, d := range g.Divergence {
				sum += d
			}
		}
		values = append(values, Value{"kl", sum / float64(max(tokens, 1))})
	}
	for i, name := range groups[0].Names {
		var column []float64
		for _, g := range groups {
			for _, rewards := range g.Rewards {
				column = append(column, rewards[i])
			}
		}
		mean, deviation := spread(column)
		values = append(values, Value{"rewards/" + name + "/mean", mean}, Value{"rewards/" + name + "/std", deviation})
	}
	mean, deviation := spread(flat(totals))
	still := 0
	for _, g := range totals {
		if _, own := spread(g); own < leastSpread {
			still++
		}
	}
	return append(values, Value{"reward", mean}, Value{"reward_std", deviation},
		Value{"frac_reward_zero_std", float64(still) / float64(len(groups))}), nil
}
