package objective

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/kernel"
)

// RLOOConfig is the section of training.objective: rloo. It has the keys of TRL's RLOOConfig.
type RLOOConfig struct {
	// Beta is the weight of the KL divergence from the reference, which is taken from the reward of each answer. It
	// needs ref_logprobs in the rollouts. 0 = none; TRL's default is 0.05.
	Beta float64 `yaml:"beta" range:"[0,inf)" resume:"steers"`
	// Epsilon is how far below one the ratio of an answer is clipped, and above one where epsilon_high is 0.
	Epsilon float64 `yaml:"epsilon" default:"0.2" range:"[0,inf)" resume:"steers"`
	// EpsilonHigh is how far above one the ratio is clipped; 0 = epsilon.
	EpsilonHigh float64 `yaml:"epsilon_high" range:"[0,inf)" resume:"steers"`
	// NormalizeAdvantages takes the mean of the step from all advantages and divides by their standard deviation.
	NormalizeAdvantages bool `yaml:"normalize_advantages" resume:"steers"`
	// RewardClipRange is the least and the largest sum of an answer's rewards; others are clipped to it. Empty = not
	// clipped.
	RewardClipRange []string `yaml:"reward_clip_range" form:"numbers" resume:"steers"`
	Rollouts        `yaml:",inline"`
}

// bounds are the least and the largest sum of rewards.
func (c RLOOConfig) bounds() (low, high float64, err error) {
	if len(c.RewardClipRange) == 0 {
		return math.Inf(-1), math.Inf(1), nil
	}
	if len(c.RewardClipRange) != 2 {
		return 0, 0, fmt.Errorf("rloo.reward_clip_range: has %d numbers, want the least and the largest reward",
			len(c.RewardClipRange))
	}
	for i, to := range []*float64{&low, &high} {
		if *to, err = strconv.ParseFloat(c.RewardClipRange[i], 64); err != nil || *to-*to != 0 {
			return 0, 0, fmt.Errorf("rloo.reward_clip_range: %q is not a finite number", c.RewardClipRange[i])
		}
	}
	if low >= high {
		return 0, 0, fmt.Errorf("rloo.reward_clip_range: the least reward %v must be below the largest %v", low, high)
	}
	return low, high, nil
}

func (c RLOOConfig) problems() (all []error) {
	if _, _, err := c.bounds(); err != nil {
		all = append(all, err)
	}
	return append(all, c.Rollouts.problems(rlooName)...)
}

func newRLOO(c Config) Objective {
	s := settings(c.RLOO)
	k := kernel.PolicyLoss{Level: kernel.RatioSum, Low: s.Epsilon, High: s.EpsilonHigh, TopEntropy: 1}
	if k.High == 0 {
		k.High = s.Epsilon
	}
	return policy{Rollouts: s.Rollouts, loss: k, divisor: Sequences, mean: true, advantages: s.advantages,
		divergence: s.Beta != 0}
}

// advantages sets the advantages of the groups of a step: how much the reward of each answer is above the mean of the
// others of its group (REINFORCE leave-one-out; Ahmadian et al. 2024).
func (c RLOOConfig) advantages(groups []*dataset.Rollout) error {
	totals, err := c.totals(groups)
	if err != nil {
		return err
	}
	low, high, err := c.bounds()
	if err != nil {
		return err
	}
	for k, g := range groups {
		if c.Beta != 0 && len(g.Divergence) != len(totals[k]) {
			return errors.New("rloo.beta: the rollouts have no ref_logprobs and old_logprobs, which the divergence " +
				"from the reference needs: set it to 0, or add them")
		}
		sum, n := 0.0, 0.0
		for i, x := range totals[k] {
			if totals[k][i] = min(max(x, low), high); c.Beta != 0 {
				totals[k][i] -= c.Beta * g.Divergence[i]
			}
			if x = totals[k][i]; !math.IsNaN(x) {
				sum, n = sum+x, n+1
			}
		}
		g.Advantages = make([]float64, len(totals[k]))
		for i, x := range totals[k] {
			if a := x - (sum-x)/(n-1); !math.IsNaN(a) && !math.IsInf(a, 0) {
				g.Advantages[i] = a
			}
		}
	}
	if c.NormalizeAdvantages {
		normalise(groups)
	}
	return nil
}
