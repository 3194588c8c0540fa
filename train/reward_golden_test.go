package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// rewardMargins are the margins of the batch's pairs in the variant margin.
var rewardMargins = []float32{0.25, 0.5, 0, 1.5}

// rewardPairs are the four pairs of the batch of goldens. The padding token is the end token, as TRL has it.
func rewardPairs(t *testing.T, margins bool) dataset.Batch {
	t.Helper()
	file := golden.Open(t, golden.Path(t, "preferences/batches.safetensors"))
	ids, mask, T := file.Ints("reward.input_ids"), file.Ints("reward.attention_mask"), file.Shape("reward.input_ids")[1]
	row := func(r int) [2][]int32 {
		n := 0
		for _, m := range mask[r*T : (r+1)*T] {
			n += int(m)
		}
		return [2][]int32{ids[r*T:][:n], ids[r*T:][:n]}
	}
	var rows [][2][2][]int32
	for k := range 4 {
		rows = append(rows, [2][2][]int32{row(k), row(k + 4)})
	}
	b := pairBatch(rows)
	b.Pad = 2
	if margins {
		b.Targets, b.TargetEnds = rewardMargins, []int32{1, 2, 3, 4}
	}
	return b
}

// rewardOf makes the objective from the trainer's arguments.
func rewardOf(t *testing.T, args map[string]any) objective.Objective {
	t.Helper()
	own := maps.Clone(args)
	delete(own, "margin") // a column of the rows
	var c objective.RewardConfig
	setTRL(t, &c, own)
	return objective.Of("reward", objective.Config{Reward: &c})
}

// TestRewardEqualsTRL compares loss, logged numbers and gradients of every variant with TRL's trainer.
func TestRewardEqualsTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	all := preferenceGoldens(t, "reward")
	if len(all) != 3 {
		t.Errorf("%d variants", len(all))
	}
	for _, variant := range slices.Sorted(maps.Keys(all)) {
		want := all[variant]
		comparePairs(t, b, "reward", variant, want, rewardOf(t, want.Args), rewardPairs(t, want.Args["margin"] == true))
	}
}

// TestWrongRewardsFail checks that the tolerance of the losses above tells common mistakes apart: the vector of the end
// token, swapped answers, a margin with the wrong sign, and centring that squares each reward by itself.
func TestWrongRewardsFail(t *testing.T) {
	t.Parallel()
	b := stories(t)
	loss := func(variant string, change func(b *dataset.Batch)) float64 {
		want := preferenceGoldens(t, "reward")[variant]
		batch := rewardPairs(t, variant == "margin")
		change(&batch)
		s := newPreferenceStep(t, b, kernel.F64, rewardOf(t, want.Args), len(batch.IDs), len(batch.Segments), Default(),
			golden.Path(t, "preferences/"+want.Adapter))
		s.run.Run(step.SegmentBegin)
		s.micro(t, batch, len(batch.Rows))
		return s.read(t, s.Loss)[0]
	}
	for what, c := range map[string]struct {
		variant string
		change  func(b *dataset.Batch)
	}{
		"the vector of the end token": {"bradley_terry", func(b *dataset.Batch) { b.Pad = -1 }},
		"swapped answers": {"bradley_terry", func(b *dataset.Batch) {
			for k := 0; k < len(b.Segments); k += 2 {
				b.Segments[k], b.Segments[k+1] = b.Segments[k+1], b.Segments[k]
			}
		}},
		"a margin of the wrong sign": {"margin", func(b *dataset.Batch) {
			b.Targets = slices.Clone(b.Targets)
			for i := range b.Targets {
				b.Targets[i] *= -1
			}
		}},
	} {
		right := preferenceGoldens(t, "reward")[c.variant].Loss
		if got := loss(c.variant, func(*dataset.Batch) {}); math.Abs(got-right) > 1e-9 {
			t.Errorf("%s: the loss that is right is %v, want %v", what, got, right)
		}
		if got := loss(c.variant, c.change); !(math.Abs(got-right) > 1e-4*right) {
			t.Errorf("%s gives %v, which the tolerance takes for %v", what, got, right)
		}
	}
}

// TestRewardCurveEqualsTRL trains 20 steps as TRL's trainer did.
func TestRewardCurveEqualsTRL(t *testing.T) {
	t.Parallel()
	b := stories(t)
	var all map[string]json.RawMessage
	golden.JSON(t, golden.Path(t, "preferences/curves.json"), &all)
	var want struct {
		Args  map[string]any
		Micro int `json:"micro_batch"`
		Steps map[string][]float64
	}
	if err := json.Unmarshal(all["reward"], &want); err != nil {
		t.Fatal(err)
	}
	var raw map[string]json.RawMessage
	golden.JSON(t, golden.Path(t, "preferences/curve_rows.json"), &raw)
	var rows []map[string][]int32
	if err := json.Unmarshal(raw["reward"], &rows); err != nil {
		t.Fatal(err)
	}
	var pairs [][2][2][]int32
	for _, r := range rows {
		pairs = append(pairs, [2][2][]int32{{r["chosen_ids"], r["chosen_ids"]}, {r["rejected_ids"], r["rejected_ids"]}})
	}
	for _, c := range []struct {
		float      kernel.DType
		loss, norm float64
	}{{kernel.F32, 1e-3, 1e-2}, {kernel.F64, 1e-6, 1e-6}} {
		t.Run(fmt.Sprint(c.float), func(t *testing.T) {
			o := rewardOf(t, want.Args)
			config := Default()
			config.WeightDecay = 0.01
			s := newPreferenceStep(t, b, c.float, o, want.Micro*2*256, want.Micro*2+1, config,
				golden.Path(t, "preferences/curve_init_reward"))
			for at, loss := range want.Steps["loss"] {
				for _, u := range s.Rates {
					h := adamNumbers(config, want.Steps["lr"][at]*u.Factor, at+1)
					s.set(t, u.Numbers, h[:]...)
				}
				s.run.Run(step.SegmentBegin)
				batch := pairBatch(pairs[2*at : 2*at+2])
				batch.Pad = 2
				s.micro(t, batch, 2)
				s.run.Run(step.SegmentNorm)
				s.run.Run(step.SegmentUpdate)
				near := func(what string, got, want, relative float64) {
					if d := math.Abs(got - want); !(d <= relative*math.Max(math.Abs(want), 1e-3)) {
						t.Errorf("step %d: %s %.9g, TRL %.9g", at, what, got, want)
					}
				}
				near("loss", s.read(t, s.Loss)[0], loss, c.loss)
				near("gradient norm", s.read(t, s.Norm)[0], want.Steps["grad_norm"][at], c.norm)
				for name, v := range s.numbersOf(t, o, objective.Counts{Tokens: 1, Sequences: 4, Groups: 2}) {
					if w, ok := want.Steps[name]; ok && name != objective.Loss {
						near(name, v, w[at], 10*c.norm)
					}
				}
			}
			s.sameAdapter(t, "reward")
		})
	}
}
