package objective

import (
	"math"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/session"
)

// policyFiller writes a micro-batch's sampled answers.
type policyFiller struct {
	*labelled
	policy
	old     []float32 // [M], log-probability at sampling of what each place predicts
	answers []float32 // [S,6], as kernel.PolicyLoss has it
}

// Fill writes labels, log-probabilities of sampling and what the loss takes of each answer. The batch's rollouts must
// have advantages.
func (f *policyFiller) Fill(b dataset.Batch, own session.Part) int {
	trained := f.labelled.Fill(b, own)
	nan := float32(math.NaN())
	for t := range f.old {
		f.old[t] = nan
	}
	clear(f.answers)
	groups, segments := b.Sequences()
	for k := range b.Rows {
		r := b.Rollouts[k]
		if r.Old != nil {
			copy(f.old[b.Starts[k]:], r.Old[1:]) // a place predicts the token after it
		}
		for j, segment := range segments[groups[k]:groups[k+1]] {
			from, to := b.CuSeqlens[segment], b.CuSeqlens[segment+1]
			f.old[to-1] = nan
			loss, entropy := f.factors(f.count(from, to), trained, b.Count())
			for i, x := range [3]float64{r.Advantages[j], loss, entropy} {
				high := float32(x)
				f.answers[6*int(segment)+2*i], f.answers[6*int(segment)+2*i+1] = high, float32(x-float64(high))
			}
		}
	}
	return trained
}

// count returns the number of labelled places of a sequence.
func (f *policyFiller) count(from, to int32) (n int) {
	for _, l := range f.labels[from:to] {
		if l != dataset.Ignore {
			n++
		}
	}
	return n
}

// factors returns the factors of the losses and of the entropies of an answer's tokens. The micro-batch has so many
// trained tokens and answers. A step divides both by its tokens or by its answers.
func (f *policyFiller) factors(tokens, trained, answers int) (loss, entropy float64) {
	each := float64(answers) / float64(max(trained, 1))
	loss, entropy = 1, 1
	switch {
	case f.mean:
		loss = 1 / float64(max(tokens, 1))
	case f.batch:
		loss = each
	case f.length:
		loss = 1 / float64(f.MaxCompletionLength)
	}
	if f.divisor != Tokens {
		entropy = each
	}
	return loss, entropy
}
