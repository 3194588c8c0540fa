package objective

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// smoothedName is the objective's name in Objectives, and its section's.
const smoothedName = "smoothed_cross_entropy"

// SmoothedConfig is the section of training.objective: smoothed_cross_entropy.
type SmoothedConfig struct {
	// LabelSmoothing is the fraction of each label's weight that is spread evenly over the vocabulary. It is
	// label_smoothing in torch's cross_entropy and label_smoothing_factor in transformers.
	LabelSmoothing float64 `yaml:"label_smoothing" range:"[0,1)" resume:"steers"`
	// ZLoss is the weight of a penalty on the squared logarithm of the softmax normaliser, which keeps logits from
	// drifting. 1e-4 is usual; 0 turns it off.
	ZLoss float64 `yaml:"z_loss" range:"[0,inf)" resume:"steers"`
}

func (c SmoothedConfig) problems() (all []error) {
	if c == (SmoothedConfig{}) {
		all = append(all, fmt.Errorf("%s: set label_smoothing or z_loss above 0, or training.objective: %s, which is the same without them",
			smoothedName, Default))
	}
	return all
}

// smoothed is the mean over the trained tokens of a cross-entropy with smoothed labels and a z-loss. It needs what
// crossEntropy needs of a batch.
type smoothed struct {
	crossEntropy
	SmoothedConfig
}

func newSmoothed(c Config) Objective {
	return smoothed{SmoothedConfig: settings(c.SmoothedCrossEntropy)}
}

func (smoothed) Numbers() []Number {
	return []Number{{Name: "nll", Unit: "nats/token", Per: Tokens}, perplexity("nll"), {Name: "z_squared", Per: Tokens}}
}

func (o smoothed) kernel(at Network) kernel.SmoothedCrossEntropy {
	return kernel.SmoothedCrossEntropy{Chunk: at.LossRows, Cap: at.LogitCap, Smoothing: o.LabelSmoothing, ZLoss: o.ZLoss,
		Weighted: o.weighted}
}

func (o smoothed) Train(n *nn.Net, at Network, in Inputs) Outcome {
	k := o.kernel(at)
	k.Grad, k.Scaled, k.Head = true, at.Scaling != nil, at.headGradient()
	out := n.ApplyAll(k, at.values(in)...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: balanced(n, out[0], at, in), Sums: out[3:5]}
}

func (o smoothed) Eval(n *nn.Net, at Network, in Inputs) Outcome {
	out := n.ApplyAll(o.kernel(at), append([]*graph.Value{at.Hidden, at.Head}, in...)...)
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Each: out[1], Sums: out[2:]}
}
