// Package objective is what training minimises: the loss of a micro-batch, built from hidden states, the vocabulary
// head and what the batch holds, with its divisor and the numbers that it reports beside the loss.
package objective

import (
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// Objectives make the values of training.objective by their names, from the sections of a configuration.
var Objectives = map[string]func(Config) Objective{
	Default:      func(Config) Objective { return crossEntropy{} },
	smoothedName: newSmoothed,
	dftName:      newDFT,
	focalName:    newFocal,
	distillName:  newDistill,
	dpoName:      newDPO,
	cpoName:      newCPO,
	simpoName:    newSimPO,
	orpoName:     newORPO,
	grpoName:     newGRPO,
	rlooName:     newRLOO,
	ktoName:      newKTO,
	rewardName:   newReward,

	classificationName: newClassification,
	tokenClassesName:   newTokenClassification,
	rerankName:         newRerank,
	contrastiveName:    newContrastive,
}

// Default is the name of the objective of a model's own loss. Evaluations outside a training run use it.
const Default = "cross_entropy"

// Objective is a loss: what it needs of a batch, what it is averaged over, the graph that computes it, and the numbers
// that it reports beside it. An Objective holds its settings and no state, so that plans and ranks may share it.
type Objective interface {
	// Divisor is what a step's loss is averaged over. The loss of each micro-batch is scaled by one over the count of
	// the whole window, so that neither accumulation nor the number of ranks changes the result.
	Divisor() Count
	// Numbers are what the objective reports beside the loss, in the order in which files and trackers list them.
	Numbers() []Number
	// Declare adds what a micro-batch of a shape holds besides token ids and positions, under names with a prefix. The
	// shape's tokens are those of this rank.
	Declare(n *nn.Net, prefix string, s session.Shape) Inputs
	// Bind finds that data in the memory of a plan.
	Bind(b *session.Batch) (Filler, error)
	// Train builds a micro-batch's part of the step's loss. It is called in the segment of the micro-batch, whose backward
	// pass follows in the same captured work: weights of the backward pass may be computed from values of all of the
	// micro-batch's sequences without a round trip to the host.
	Train(n *nn.Net, at Network, in Inputs) Outcome
	// Eval builds the loss of a batch without a gradient.
	Eval(n *nn.Net, at Network, in Inputs) Outcome
}

// Inputs are the values that Declare added.
type Inputs []*graph.Value

// Referring is an optional capability of an Objective: its loss compares the policy with a reference.
type Referring interface {
	// Reference reports whether the loss needs the reference's hidden states (Network.Reference).
	Reference() bool
}

// Refers reports whether an objective's loss needs a reference.
func Refers(o Objective) bool {
	r, ok := o.(Referring)
	return ok && r.Reference()
}

// taught is an optional capability of an Objective: its loss learns from a teacher's hidden states.
type taught interface {
	// Taught reports whether the loss needs them (Network.Teacher).
	Taught() bool
}

// Taught reports whether an objective's loss needs a teacher in the computation.
func Taught(o Objective) bool {
	t, ok := o.(taught)
	return ok && t.Taught()
}

// NetworkOf builds the layers over a batch, and before them those of the reference where the objective needs one: the
// base model with the adapter switched off or with the adapter of session.Network.Reference, over the same tokens. No
// gradient reaches the reference, so what its layers keep is free before the policy's layers begin.
func NetworkOf(o Objective, nw session.Network, n *nn.Net, in nn.Batch) (at Network) {
	if Refers(o) {
		n.Fail(checkReference(nw, n))
		nn.AsReference(n, func() { at.Reference = nw.Hidden(n, in) })
	}
	if Taught(o) {
		if nw.Reference != nil {
			n.Fail(checkBase(nw, n, "the teacher is the base model with another adapter", ""))
		}
		at.Teacher, at.TeacherHead, at.TeacherCap = nw.Taught(n, in)
	}
	at.Hidden, at.LogitCap = nw.Hidden(n, in), nw.Config.LogitCap
	if h, ok := o.(headed); ok {
		n.Fail(h.checkTask(nw.Adapter.Task))
		if nw.Adapter.Task.HasScores() && n.Err() == nil {
			at.Scores, at.ScoreBias = nw.Scores(n)
		}
		return at
	}
	if at.Head = nw.Head(n); n.Err() == nil && at.Head.Trained() && !trainsHead(o) {
		n.Fail(errors.New("the run trains the vocabulary head, or the embeddings that are tied to it, and the " +
			"objective computes with a head that is frozen: leave the head out of what is trained (full.train), or " +
			"choose cross_entropy or smoothed_cross_entropy"))
	}
	return at
}

// trainsHead reports whether an objective's loss has a gradient for the vocabulary head. An objective has this optional
// capability by a method TrainsHead.
func trainsHead(o Objective) bool {
	t, ok := o.(interface{ TrainsHead() bool })
	return ok && t.TrainsHead()
}

// checkReference refuses runs in which the base model without the adapter is not the model that the run starts from.
func checkReference(nw session.Network, n *nn.Net) error {
	return checkBase(nw, n, "the reference is the base model with the adapter switched off",
		": training.precompute: yes computes the reference of dpo and kto before the first step")
}

// checkBase refuses runs in which the base model changes. who says what needs it as it is, and way what allows to train
// its weights.
func checkBase(nw session.Network, n *nn.Net, who, way string) error {
	if n.Rewrite != nil {
		return fmt.Errorf("%s, and lora.init_lora_weights moves a part of the base model into the adapter: leave it "+
			"unset", who)
	}
	if names := nw.Adapter.Saved().Names; names != nil {
		return fmt.Errorf("%s, and lora.modules_to_save %v trains weights of the base model itself: leave it out, or "+
			"choose an objective without a reference%s", who, names, way)
	}
	if nw.TrainsBase() {
		return fmt.Errorf("%s, and the run trains weights of the base model itself%s", who, way)
	}
	return nil
}

// Network is where the loss is computed.
type Network struct {
	Hidden *graph.Value // [M,C], the final norm's output
	Head   *graph.Value // [V,C]; nil for an objective over another head
	// Scores [L,C] and ScoreBias [L] are the weight and the bias of a classification head; nil = there is none.
	Scores, ScoreBias *graph.Value
	LossRows          int     // rows of logits that may exist at the same time
	LogitCap          float64 // soft cap of the logits; 0 = none
	// Reference [M,C] are the hidden states of the reference over the same tokens; nil = the objective needs none.
	Reference *graph.Value
	// Teacher [M,D] are the hidden states of a teacher over the same tokens, TeacherHead [V,D] is its vocabulary head,
	// and TeacherCap the soft cap of its logits, 0 = none; nil = the objective needs none.
	Teacher, TeacherHead *graph.Value
	TeacherCap           float64
	Scaling              *graph.Value // state of loss scaling; nil = none
}

// headGradient says whether the vocabulary matrix is trained.
func (at Network) headGradient() kernel.HeadGradient {
	if at.Head.Trained() {
		return kernel.HeadTrained
	}
	return kernel.HeadFrozen
}

// values are the inputs of a kernel that computes the loss from labels, a scale and, where tokens have some, weights.
func (at Network) values(in Inputs) []*graph.Value {
	values := append([]*graph.Value{at.Hidden, at.Head}, in...)
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	return values
}

// Outcome is what an objective computes of a micro-batch or of an evaluation's batch.
type Outcome struct {
	// Loss f[] is the sum over the batch times the scale that Filler.Scale wrote. In training it is differentiated.
	Loss *graph.Value
	// Each f[M] is each token's part of Loss before it is scaled. Evaluations add it up in float64. nil = the loss has no
	// parts by token, and Loss is taken as it is. Training does not read it.
	Each *graph.Value
	// Sums are f[] each: for the Numbers that have a sum of their own, in their order, the sum over the batch, which no
	// scale multiplies.
	Sums []*graph.Value
	// Outputs are what an evaluation of a Judging objective reads of each batch; training has none.
	Outputs []*graph.Value
}

// Filler writes a micro-batch's data for an objective.
type Filler interface {
	// Fill writes what the objective needs of a part of a batch, and returns how many places of the whole are trained.
	Fill(b dataset.Batch, own session.Part) (trained int)
	// Scale sets what the micro-batch's loss is multiplied with: one over the count of the step that Divisor names.
	Scale(s float32)
}
