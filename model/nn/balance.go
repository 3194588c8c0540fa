package nn

import (
	"errors"

	"github.com/tierlora/tierlora/kernel"
)

// Balance is the part of the loss that penalises uneven use of a network's experts.
type Balance struct {
	coef   float64
	topK   int
	scores bool
	real   *Value
	logits []*Value
}

// BalanceExperts adds coef times the balance of all RouterLogits so far to the loss; 0 = no balance loss. For scores
// see kernel.BalanceLoss.
func (n *Net) BalanceExperts(coef float64, topK int, scores bool, in Batch) {
	if coef > 0 && n.Ranks() > 1 {
		n.Fail(errors.New("the balance of experts (router_aux_loss_coef) is of all tokens of a batch, and each rank " +
			"has a share: training.context_parallel_size must be 1, or the model's router_aux_loss_coef 0"))
	}
	if coef > 0 && len(n.RouterLogits) > 0 {
		n.balance = &Balance{coef, topK, scores, in.Real, n.RouterLogits}
	}
}

// Balance returns the balance loss that BalanceExperts set up, or nil.
func (n *Net) Balance() *Balance { return n.balance }

// Add returns the loss f[] plus the balance loss. For labels and scale see kernel.BalanceLoss. scaling is the state of
// loss scaling; nil = none.
func (b *Balance) Add(n *Net, loss, labels, scale, scaling *Value) *Value {
	if b.real == nil {
		n.Fail(errors.New("the balance of experts leaves padding out, and the batch does not say where there is any"))
		return loss
	}
	in := []*Value{loss, labels, scale, b.real}
	if scaling != nil {
		in = append(in, scaling)
	}
	return n.Apply(kernel.BalanceLoss{Layers: len(b.logits), TopK: b.topK, Scores: b.scores, Coef: b.coef,
		Scaled: scaling != nil}, append(in, b.logits...)...)
}
