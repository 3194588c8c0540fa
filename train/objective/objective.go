// Package objective is what training minimises: the loss of a micro-batch, built from hidden states, the vocabulary
// head and what the batch holds.
package objective

import (
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// Objectives are the values of training.objective.
var Objectives = map[string]Objective{
	"cross_entropy": crossEntropy{},
}

// Default is the objective of a model's own loss, which evaluation uses too.
const Default = "cross_entropy"

// Objective is a loss, and the data it needs.
type Objective interface {
	// Declare adds what a micro-batch of M tokens holds besides token ids and positions, under names with a prefix.
	Declare(n *nn.Net, prefix string, tokens int) Inputs
	// Bind finds that data in the memory of a plan.
	Bind(b *session.Batch) (Filler, error)
	// Train is a micro-batch's part of the step's loss, f[], which is differentiated.
	Train(n *nn.Net, at Network, in Inputs) *graph.Value
	// Eval is the loss f[] without a gradient, and each token's part of it f[M] before it is scaled.
	Eval(n *nn.Net, at Network, in Inputs) (loss, each *graph.Value)
}

// Inputs are the values that Declare added.
type Inputs []*graph.Value

// Network is where the loss is worked out.
type Network struct {
	Hidden   *graph.Value // [M,C], the final norm's output
	Head     *graph.Value // [V,C]
	LossRows int          // rows of logits that may exist at the same time
	LogitCap float64      // soft cap of the logits; 0 = none
	Scaling  *graph.Value // state of loss scaling; nil = none
}

// Filler writes a micro-batch's data for an objective.
type Filler interface {
	// Fill writes what the objective needs of a part of a batch, and returns how many places of the whole are trained.
	Fill(b dataset.Batch, own session.Part) (trained int)
	// Scale is what the micro-batch's loss is multiplied with: 1 / (trained places of the whole step).
	Scale(s float32)
}
