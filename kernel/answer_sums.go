package kernel

import (
	"fmt"
	"slices"
)

// AnswerSums sums statistics of tokens over the answers of a batch, chosen and rejected ones apart. It takes their sums
// over sequences.
//
//	sums f[3,S], counts f[S], answers i32[R,2] or i32[R,3]
//	  -> entropies f[], mean logits of the chosen f[], of the rejected f[], likeliest tokens of the chosen f[],
//	     tokens f[], tokens of the chosen f[], of the rejected f[]
//
// sums are the sums over sequences of LinearLogProbs' statistics, and counts the sequences' numbers of labelled tokens
// (SequenceSums). Two columns of answers are the pairs of PairLoss: the sequences of the chosen and of the rejected
// answer; a negative index means that there is no pair. Three columns are the rows of UnpairedLoss: an answer's
// sequence, a mismatched sequence, which counts nowhere, and a label: 1 = chosen, -1 = rejected, 0 = no row. All
// arithmetic is in float64, and nothing has a gradient.
type AnswerSums struct{}

// The outputs of AnswerSums.
const (
	AnswerEntropy        = iota // entropies of the tokens of all answers
	AnswerChosenLogits          // mean logits of the tokens of chosen answers
	AnswerRejectedLogits        // mean logits of the tokens of rejected answers
	AnswerLikeliest             // tokens of chosen answers that the model finds the likeliest
	AnswerTokens                // tokens of all answers
	AnswerChosenTokens          // tokens of chosen answers
	AnswerRejectedTokens        // tokens of rejected answers
	AnswerStatistics            // the number of outputs
)

// Name returns "answer_sums".
func (AnswerSums) Name() string { return "answer_sums" }

// Shape returns the types of the sums.
func (AnswerSums) Shape(in []Type) ([]Type, error) {
	answers := "i32[R,2]"
	if len(in) == 3 && len(in[2].Shape) == 2 && in[2].Shape[1] == 3 {
		answers = "i32[R,3]"
	}
	if _, err := Want(in, "f[3,S]", "f[S]", answers); err != nil {
		return nil, err
	}
	if in[1].DType != in[0].DType {
		return nil, fmt.Errorf("input 1 is %v, input 0 is %v: they must have one element type", in[1], in[0])
	}
	return slices.Repeat([]Type{T(in[0].DType)}, AnswerStatistics), nil
}

// Grads gives nothing a gradient.
func (AnswerSums) Grads() Backward { return Backward{Grads: make([]Ref, 3)} }

// CPU binds the float64 or the float32 body.
func (AnswerSums) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindAnswerSums[float32], bindAnswerSums[float64])(c, in, out)
}

func bindAnswerSums[F Float](_ *CPU, in, out []Tensor) func() {
	sums, counts, answers, columns := Floats[F](in[0]), Floats[F](in[1]), in[2].I32(), in[2].Shape[1]
	S := len(counts)
	var to [AnswerStatistics][]F
	for i := range to {
		to[i] = Floats[F](out[i])
	}
	return func() {
		var all [AnswerStatistics]float64
		for r := 0; r < len(answers); r += columns {
			for side, s := range answersOf(answers[r:r+columns], S) {
				if s < 0 {
					continue
				}
				all[AnswerEntropy] += float64(sums[LogitEntropy*S+s])
				all[AnswerChosenLogits+side] += float64(sums[LogitMean*S+s])
				if side == 0 {
					all[AnswerLikeliest] += float64(sums[LogitTop*S+s])
				}
				all[AnswerTokens] += float64(counts[s])
				all[AnswerChosenTokens+side] += float64(counts[s])
			}
		}
		for i, x := range all {
			to[i][0] = F(x)
		}
	}
}

// answersOf returns the sequences of the chosen and of the rejected answer of a row; -1 = there is none. There are S
// sequences.
func answersOf(row []int32, S int) (at [2]int) {
	known := func(i int32) bool { return i >= 0 && int(i) < S }
	at = [2]int{-1, -1}
	switch {
	case len(row) == 2 && known(row[0]) && known(row[1]):
		at = [2]int{int(row[0]), int(row[1])}
	case len(row) == 3 && known(row[0]) && row[2] > 0:
		at[0] = int(row[0])
	case len(row) == 3 && known(row[0]) && row[2] < 0:
		at[1] = int(row[0])
	}
	return at
}

// Cost counts a few sums for each answer.
func (AnswerSums) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), int64(in[2].Elems()) * 5}
}

// Stored keeps sums in fp32, and answers as they are.
func (AnswerSums) Stored([]DType) (want, out []DType) {
	return []DType{F32, F32, I32}, slices.Repeat([]DType{F32}, AnswerStatistics)
}
