package objective

import (
	"math"
	"math/bits"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	judges "github.com/tierlora/tierlora/train/reward"
)

// TestPassAt checks the estimate against a count over all subsets of k answers.
func TestPassAt(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for passed := range n + 1 {
			for k := 1; k <= n; k++ {
				some, all := 0, 0
				for set := range 1 << n {
					if bits.OnesCount(uint(set)) != k {
						continue
					}
					if all++; set&(1<<passed-1) != 0 { // the first answers passed
						some++
					}
				}
				want := float64(some) / float64(all)
				if got := PassAt(n, passed, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("pass@%d with %d of %d: %v, want %v", k, passed, n, got, want)
				}
			}
		}
	}
}

// TestEvaluateAnswers checks the numbers of an evaluation by hand.
func TestEvaluateAnswers(t *testing.T) {
	c := Rollouts{NumGenerationsEval: 3, PassReward: "right", PassThreshold: 1, RewardWeights: []string{"0", "2"},
		Rewards: []judges.Config{{Type: "length"}, {Name: "right", Type: "math"}}}
	names := []string{"length", "right"}
	got, err := c.Evaluate([]*dataset.Rollout{
		{Names: names, Rewards: [][]float64{{-1, 1}, {-1, 0}, {-1, 0}}},
		{Names: names, Rewards: [][]float64{{-1, 0}, {-1, 0}, {-1, math.NaN()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"reward": 2. / 6, "reward_std": math.Sqrt((25./9 + 5./9) / 5), "rewards/length/mean": -1,
		"rewards/right/mean": 1. / 5, "pass@1": 1. / 6, "pass@2": 1. / 3, "pass@3": 1. / 2}
	for _, v := range got {
		if math.Abs(v.Value-want[v.Name]) > 1e-12 {
			t.Errorf("%s: %v, want %v", v.Name, v.Value, want[v.Name])
		}
		delete(want, v.Name)
	}
	if len(want) > 0 {
		t.Errorf("no %v", want)
	}
	all := c.problems("grpo")
	if len(all) != 2 || all[0].Error() != "grpo.num_generations_eval: is 3, and with eval_temperature 0 all answers "+
		"to a prompt are the same: set eval_temperature, such as 1" {
		t.Errorf("problems %v", all)
	}
}
