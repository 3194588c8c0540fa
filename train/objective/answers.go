package objective

import (
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// answerReport is what an objective over chosen and rejected answers reports of their tokens, as TRL's trainers do. It
// always reports the mean logits of both.
type answerReport struct {
	entropy  bool // the mean entropy of the distributions over the tokens of all answers
	accuracy bool // the share of the chosen answers' tokens that the model finds the likeliest
}

// The names of the hidden numbers that the others of an answerReport are means over.
const (
	answerTokens   = "tokens"
	chosenTokens   = "tokens/chosen"
	rejectedTokens = "tokens/rejected"
)

// numbers returns the numbers of the report. Each is a mean over tokens, whichever rows and micro-batches they are of.
func (r answerReport) numbers() (all []Number) {
	if r.entropy {
		all = append(all, Number{Name: "entropy", Unit: "nats/token", Among: answerTokens})
	}
	all = append(all, Number{Name: "logits/chosen", Among: chosenTokens},
		Number{Name: "logits/rejected", Among: rejectedTokens})
	if r.accuracy {
		all = append(all, Number{Name: "mean_token_accuracy", Among: chosenTokens, HigherIsBetter: true})
	}
	if r.entropy {
		all = append(all, Number{Name: answerTokens, Per: Groups, Hidden: true})
	}
	return append(all, Number{Name: chosenTokens, Per: Groups, Hidden: true},
		Number{Name: rejectedTokens, Per: Groups, Hidden: true})
}

// sums returns the sums of the numbers, in their order, from the statistics f[3,M] of a kernel.LinearLogProbs. answers
// are the pairs i32[P,2] or labelled rows i32[R,3] of a kernel.AnswerSums.
func (r answerReport) sums(n *nn.Net, statistics *graph.Value, p pairInputs, answers *graph.Value) []*graph.Value {
	ofSequences, counts := p.sums(n, statistics.Constant(), p.labels)
	all := n.ApplyAll(kernel.AnswerSums{}, ofSequences.Constant(), counts, answers)
	if n.Err() != nil {
		return nil
	}
	var sums []*graph.Value
	if r.entropy {
		sums = append(sums, all[kernel.AnswerEntropy])
	}
	sums = append(sums, all[kernel.AnswerChosenLogits], all[kernel.AnswerRejectedLogits])
	if r.accuracy {
		sums = append(sums, all[kernel.AnswerLikeliest])
	}
	if r.entropy {
		sums = append(sums, all[kernel.AnswerTokens])
	}
	return append(sums, all[kernel.AnswerChosenTokens], all[kernel.AnswerRejectedTokens])
}
