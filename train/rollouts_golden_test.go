package train

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/objective"
)

// rolloutGolden is what TRL computed of sampled answers.
type rolloutGolden struct {
	Args       map[string]any        `json:"args"`
	Loss       float64               `json:"loss_f64"`
	Metrics    map[string]any        `json:"metrics_f64"`
	Advantages []float64             `json:"advantages_f64"`
	Grads      map[string][2]float64 `json:"grads"`
}

// goldenRollouts are the answers that TRL was given: two groups of four.
type goldenRollouts struct {
	EOS     int32                 `json:"eos_and_pad"`
	Rewards map[string][]*float64 `json:"rewards"`
	Each    int                   `json:"generations"`
	Most    int                   `json:"max_completion_length"`
	Rows    []struct {
		Prompt []int32   `json:"prompt_ids"`
		Answer []int32   `json:"completion_ids"`
		Old    []float32 `json:"old_per_token_logps"`
	} `json:"rows"`
}

// row returns group k as a row, with the rewards of the given names.
func (g goldenRollouts) row(k int, names []string, old bool) (row dataset.Row) {
	r := &dataset.Rollout{Names: names}
	for i := k * g.Each; i < (k+1)*g.Each; i++ {
		one := g.Rows[i]
		if len(row.IDs) > 0 {
			row.Borders = append(row.Borders, int32(len(row.IDs)))
		}
		row.IDs = append(append(row.IDs, one.Prompt...), one.Answer...)
		masked := slices.Repeat([]int32{dataset.Ignore}, len(one.Prompt))
		row.Labels = append(append(row.Labels, masked...), one.Answer...)
		if old {
			r.Old = append(append(r.Old, make([]float32, len(one.Prompt))...), one.Old...)
		}
		var rewards []float64
		for _, name := range names {
			x := math.NaN()
			if p := g.Rewards[name][i]; p != nil {
				x = *p
			}
			rewards = append(rewards, x)
		}
		r.Rewards = append(r.Rewards, rewards)
		r.Truncated = append(r.Truncated, one.Answer[len(one.Answer)-1] != g.EOS)
	}
	row.Rollout = r
	return row
}

// step lays the groups out in micro-batches.
func (g goldenRollouts) step(t *testing.T, micro int, names []string, old bool, divergences []float64) (
	s dataset.Step) {
	t.Helper()
	return g.window(t, micro, names, old, divergences, false)
}

// window is step for groups that lay out their prompt once if they are shared.
func (g goldenRollouts) window(t *testing.T, micro int, names []string, old bool, divergences []float64, shared bool) (
	s dataset.Step) {
	t.Helper()
	shape := dataset.Shape{Sequences: 2, T: 256, Budgets: []int{512}, Borders: 32, Longest: 64, Flat: true,
		Prefixes: shared}
	for m := range micro {
		var rows []dataset.Row
		for k := 2 * m / micro; k < 2*(m+1)/micro; k++ {
			row := g.row(k, names, old)
			row.Rollout.Divergence = divergences[k*g.Each : (k+1)*g.Each]
			rows = append(rows, shape.Share(row))
		}
		b, err := shape.Lay([][]dataset.Row{rows}, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.All = append(s.All, b)
		s.Trained, s.Sequences, s.Groups = s.Trained+b.TrainedTokens, s.Sequences+b.Count(), s.Groups+len(rows)
	}
	return s
}

// sampledObjective makes the objective of a golden's arguments, and returns what is not a key: the number of
// micro-batches, the names of the rewards, and whether the log-probabilities of sampling are given.
func sampledObjective(t *testing.T, args map[string]any, most int) (
	o objective.Sampled, micro int, names []string, old bool) {
	t.Helper()
	args, micro, names, old = maps.Clone(args), 1, []string{"a"}, true
	if n, ok := args["micro"]; ok {
		micro = int(n.(float64))
	}
	if list, ok := args["rewards"]; ok {
		names = nil
		for _, name := range list.([]any) {
			names = append(names, name.(string))
		}
	}
	_, onPolicy := args["old"]
	rloo := args["trainer"] == "rloo"
	for _, key := range []string{"micro", "rewards", "old", "trainer"} {
		delete(args, key)
	}
	if rloo {
		var c objective.RLOOConfig
		setTRL(t, &c, args)
		return objective.Of("rloo", objective.Config{RLOO: &c}).(objective.Sampled), micro, names, true
	}
	var c objective.GRPOConfig
	setTRL(t, &c, args)
	c.MaxCompletionLength = most
	return objective.Of("grpo", objective.Config{GRPO: &c}).(objective.Sampled), micro, names, !onPolicy
}

// TestRolloutsEqualTRL compares every loss of sampled answers with TRL's trainers: advantages, the loss, the logged
// numbers and the gradients, in float32 and in float64.
func TestRolloutsEqualTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	var all map[string]rolloutGolden
	golden.JSON(t, golden.Path(t, "rollouts/grpo.json"), &all)
	var given goldenRollouts
	golden.JSON(t, golden.Path(t, "rollouts/rollouts.json"), &given)
	divergences := given.divergences(t, b)
	if len(all) < 30 {
		t.Errorf("%d variants", len(all))
	}
	for _, variant := range slices.Sorted(maps.Keys(all)) {
		want := all[variant]
		for _, c := range []struct {
			float       kernel.DType
			loss, grads float64
		}{{kernel.F32, 1e-3, 1e-3}, {kernel.F64, 1e-9, 1e-6}} {
			t.Run(variant+" "+c.float.String(), func(t *testing.T) {
				o, micro, names, old := sampledObjective(t, want.Args, given.Most)
				window := given.step(t, micro, names, old, divergences)
				values, err := scoreWindow(&window, o)
				if err != nil {
					t.Fatal(err)
				}
				var advantages []float64
				for _, b := range window.All {
					for _, r := range b.Rollouts {
						advantages = append(advantages, r.Advantages...)
					}
				}
				for i, a := range advantages {
					golden.Near(t, "advantage", a, want.Advantages[i], 1e-9)
				}
				counts := objective.Counts{Tokens: int64(window.Trained), Sequences: int64(window.Sequences),
					Groups: int64(window.Groups)}
				s := newPreferenceStep(t, b, c.float, o, 512, 31, Default(), golden.Path(t, "rollouts/adapter"))
				s.run.Run("begin")
				s.by = float64(counts.Of(o.Divisor()))
				for _, b := range window.All {
					s.micro(t, b, 1)
				}
				golden.Near(t, "loss", s.read(t, s.Loss)[0]/s.by, want.Loss, c.loss*math.Max(math.Abs(want.Loss), 1e-3))
				got := s.numbersOf(t, o, counts)
				for _, v := range values {
					got[v.Name] = v.Value
				}
				compareNumbers(t, got, want.Metrics, math.Max(c.loss, 1e-9))
				s.sameRolloutGradients(t, variant, want, c.grads)
			})
		}
	}
}

// divergences are the sums over each answer of how much likelier than the reference the policy finds its tokens: the
// rewards of DPO with a beta of one.
func (g goldenRollouts) divergences(t *testing.T, b *session.Base) (all []float64) {
	t.Helper()
	c := *objective.Defaults().DPO
	c.Beta = 1
	o := objective.Of("dpo", objective.Config{DPO: &c})
	s := newPreferenceStep(t, b, kernel.F64, o, 128, 4, Default(), golden.Path(t, "rollouts/adapter"))
	for _, one := range g.Rows {
		ids := slices.Concat(one.Prompt, one.Answer)
		labels := append(slices.Repeat([]int32{dataset.Ignore}, len(one.Prompt)), one.Answer...)
		s.run.Run("begin")
		s.micro(t, pairBatch([][2][2][]int32{{{ids, labels}, {ids, labels}}}), 1)
		all = append(all, s.numbersOf(t, o, objective.Counts{Tokens: 1, Sequences: 2, Groups: 1})["rewards/chosen"])
	}
	return all
}

// compareNumbers compares the numbers that TRL logs too. It has a list of those of micro-batches, which is left out.
func compareNumbers(t *testing.T, got map[string]float64, want map[string]any, tolerance float64) {
	t.Helper()
	for name, w := range want {
		x, ok := w.(float64)
		if !ok {
			continue
		}
		switch name {
		case "clip_ratio/low_min", "clip_ratio/high_max", "clip_ratio/region_mean": // no means, and the sum of two
			continue
		case "policy_loss", "entropy_coef": // the loss without the bonus, and a key
			continue
		}
		v, ok := got[name]
		if !ok {
			t.Errorf("there is no number %s", name)
			continue
		}
		golden.Near(t, name, v, x, tolerance*math.Max(math.Abs(x), 1))
	}
}

// sameRolloutGradients compares gradients with digests, and where TRAINER_DATA has the set with whole gradients.
func (s *preferenceStep) sameRolloutGradients(t *testing.T, variant string, want rolloutGolden, tolerance float64) {
	t.Helper()
	if variant == "dapo_two_micro_batches" {
		variant = "dapo"
	}
	file := filepath.Join(os.Getenv("TRAINER_DATA"), "goldens/methods/grpo", variant+".grads.safetensors")
	s.sameGradientsAs(t, file, want.Grads, tolerance)
}

// TestWrongAdvantagesFail checks that the tolerance of advantages tells a common mistake apart, and that the right ones
// are those of the set.
func TestWrongAdvantagesFail(t *testing.T) {
	var made map[string][]float64
	golden.JSON(t, golden.Path(t, "rollouts/wrong_on_purpose.json"), &made)
	var given goldenRollouts
	golden.JSON(t, golden.Path(t, "rollouts/rollouts.json"), &given)
	window := given.step(t, 1, []string{"a"}, true, make([]float64, 8))
	o, _, _, _ := sampledObjective(t, map[string]any{"loss_type": "grpo"}, given.Most)
	if _, err := scoreWindow(&window, o); err != nil {
		t.Fatal(err)
	}
	own := slices.Concat(window.All[0].Rollouts[0].Advantages, window.All[0].Rollouts[1].Advantages)
	for name, list := range made {
		if near := distance(own, list) < 1e-9; near != (name == "right") {
			t.Errorf("%s: advantages %v, own %v", name, list, own)
		}
	}
}
