package objective

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// rewardName is the objective's name in Objectives, and its section's.
const rewardName = "reward"

// RewardConfig is the section of training.objective: reward. It has the key and default of TRL's RewardConfig.
type RewardConfig struct {
	// CenterRewardsCoefficient is the weight of the squared sum of a pair's rewards, which pulls rewards to a mean of
	// zero. 0.01 is usual; 0 turns it off.
	CenterRewardsCoefficient float64 `yaml:"center_rewards_coefficient" range:"[0,inf)" resume:"steers"`
}

func (RewardConfig) problems() []error { return nil }

// reward is the loss of a reward model (Bradley and Terry 1952; Ouyang et al. 2022): a head of one score gives the
// chosen answer of a pair a larger number than the rejected one. A pair with a margin wants at least that difference.
type reward struct{ RewardConfig }

func newReward(c Config) Objective { return reward{settings(c.Reward)} }

const nameMargins = "margins"

// Divisor is the number of pairs.
func (reward) Divisor() Count { return Groups }

// Numbers are TRL's, in the order of the scalars of kernel.RewardLoss. As in TRL, min_reward and max_reward are means
// over micro-batches of the least and the largest reward in each, so that they depend on training.batch_size.
func (reward) Numbers() []Number {
	const batches = "micro-batches"
	return []Number{
		{Name: "mean_reward", Per: Groups},
		{Name: "accuracy", Per: Groups, HigherIsBetter: true},
		{Name: "margin", Per: Groups, HigherIsBetter: true},
		{Name: "min_reward", Among: batches},
		{Name: "max_reward", Among: batches},
		{Name: batches, Per: Groups, Hidden: true},
	}
}

// Aim reads the margins of pairs.
func (reward) Aim() dataset.Aim { return dataset.Aim{Kind: dataset.AimMargin} }

// CheckRows refuses rows that are not pairs.
func (reward) CheckRows(r *dataset.Report) error { return checkPairs(r) }

func (reward) scores() int { return 1 }

func (reward) checkTask(t adapter.Task) error {
	switch {
	case t.Type != adapter.SequenceClassification:
		return wrongTask(adapter.SequenceClassification, t.Type)
	case t.Labels != 1:
		return fmt.Errorf("a reward is one score, and the adapter's head has %d", t.Labels)
	}
	return nil
}

// Declare adds pooled tokens, pairs, margins and the scale.
func (reward) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	checkWhole(n)
	pairs := max(s.Sequences/2, 1)
	return Inputs{declareSpans(n, prefix, s), n.Batch(prefix+namePairs, kernel.T(kernel.I32, pairs, 2)),
		n.Batch(prefix+nameMargins, kernel.T(n.Float(), pairs)), n.Batch(prefix+nameScale, kernel.T(n.Float(), 1))}
}

// Bind finds the data of Declare in the memory of a plan.
func (reward) Bind(b *session.Batch) (Filler, error) {
	f := &rewardFiller{}
	err := bindInts(b, map[string]*[]int32{nameSpans: &f.spans, namePairs: &f.pairs})
	return f, errors.Join(err, bindFloats(b, map[string]*[]float32{nameMargins: &f.margins, nameScale: &f.scale}))
}

// rewardFiller writes a micro-batch's pairs.
type rewardFiller struct {
	spans, pairs   []int32 // [S,2], [P,2]
	margins, scale []float32
}

// Fill writes a micro-batch and returns its trained tokens, those of the answers.
func (f *rewardFiller) Fill(b dataset.Batch, _ session.Part) int {
	groups, segments := b.Sequences()
	lastTokens(f.spans, b, segments)
	for i := range f.pairs {
		f.pairs[i] = -1
	}
	clear(f.margins)
	for k := range b.Rows {
		f.pairs[2*k], f.pairs[2*k+1] = segments[groups[k]], segments[groups[k]+1]
		if targets := b.RowTargets(k); len(targets) > 0 {
			f.margins[k] = targets[0]
		}
	}
	return trainedIn(b)
}

// Scale sets what the loss is multiplied with.
func (f *rewardFiller) Scale(s float32) { f.scale[0] = s }

// Train builds the loss with its gradient.
func (o reward) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

// Eval builds the loss without a gradient.
func (o reward) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

func (o reward) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	if n.Err() != nil {
		return Outcome{}
	}
	values := []*graph.Value{scoresOf(n, at, in[0]), in[1], in[2], in[3]}
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(kernel.RewardLoss{Centre: o.CenterRewardsCoefficient, Grad: grad, Scaled: at.Scaling != nil},
		values...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Sums: out[len(out)-len(o.Numbers()):]}
}

// trainedIn counts the trained tokens of a batch.
func trainedIn(b dataset.Batch) (n int) {
	for _, l := range b.Labels {
		if l != dataset.Ignore {
			n++
		}
	}
	return n
}

// bindInts finds integers of a batch by their names.
func bindInts(b *session.Batch, to map[string]*[]int32) (err error) {
	for name, dst := range to {
		var failed error
		*dst, failed = b.Int32s(name)
		err = errors.Join(err, failed)
	}
	return err
}

// bindFloats finds real numbers of a batch by their names.
func bindFloats(b *session.Batch, to map[string]*[]float32) (err error) {
	for name, dst := range to {
		var failed error
		*dst, failed = b.Float32s(name)
		err = errors.Join(err, failed)
	}
	return err
}
