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

// headed is an optional capability of an Objective: its loss stands on another head than the vocabulary's.
type headed interface {
	// checkTask refuses networks whose adapter is for another task than the objective's.
	checkTask(t adapter.Task) error
	// scores is the number of scores of the head; 0 for vectors.
	scores() int
}

// Labels returns the number of scores that an objective's head has; 0 for an objective without one.
func Labels(o Objective) int {
	if h, ok := o.(headed); ok {
		return h.scores()
	}
	return 0
}

// nameSpans is the name of a micro-batch's pooled tokens, i32[S,2].
const nameSpans = "pooled tokens"

// checkWhole refuses networks whose ranks share a batch's tokens, for objectives that need whole sequences.
func checkWhole(n *nn.Net) {
	if n.Ranks() > 1 {
		n.Fail(errors.New("a loss over whole sequences needs all tokens of a sequence, and each rank has a part of " +
			"them: training.context_parallel_size must be 1"))
	}
}

// declareSpans adds the tokens that each sequence's vector is taken from.
func declareSpans(n *nn.Net, prefix string, s session.Shape) *graph.Value {
	return n.Batch(prefix+nameSpans, kernel.T(kernel.I32, s.Sequences, 2))
}

// lastTokens writes for each segment of a batch the token whose vector stands for the sequence: the last one that is
// not the padding token, as transformers chooses it, which passes over an end token that is the padding token too. If
// there is no other token it is the first. Segments that are not in sequences have an empty span.
func lastTokens(spans []int32, b dataset.Batch, segments []int32) {
	eachSpan(spans, b, segments, func(from, to int32) (int32, int32) {
		last := from + int32(LastToken(b.IDs[from:to], b.Pad))
		return last, last + 1
	})
}

// LastToken returns the index of the last of a sequence's tokens that is not the padding token; 0 if there is none.
func LastToken(ids []int32, pad int32) int {
	for last := len(ids) - 1; last > 0; last-- {
		if ids[last] != pad {
			return last
		}
	}
	return 0
}

// eachSpan writes the span that of returns for each of the segments, from the segment's tokens. Starts and ends of
// spans never fall, as kernel.Pool wants them: a segment that is not listed has an empty span behind the one before.
func eachSpan(spans []int32, b dataset.Batch, segments []int32, of func(from, to int32) (int32, int32)) {
	end := int32(0)
	for s := 0; 2*s < len(spans); s++ {
		spans[2*s], spans[2*s+1] = end, end
		if len(segments) > 0 && segments[0] == int32(s) {
			spans[2*s], spans[2*s+1] = of(b.CuSeqlens[s], b.CuSeqlens[s+1])
			end, segments = spans[2*s+1], segments[1:]
		}
	}
}

// scoresOf returns the scores f[S,L] of pooled sequences, without the head's bias.
func scoresOf(n *nn.Net, at Network, spans *graph.Value) *graph.Value {
	return n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, n.Apply(kernel.Pool{}, at.Hidden, spans), at.Scores)
}

// wrongTask returns the error of an adapter for another task.
func wrongTask(want, got string) error {
	if got == "" {
		got = "CAUSAL_LM"
	}
	return fmt.Errorf("the objective needs an adapter with task_type %s, and the adapter has %s", want, got)
}

// Head returns what the scores of an objective's head mean, and their number; false for an objective without one. task
// is the value of the configuration's task.
func Head(o Objective, task string) (h adapter.Head, count int, ok bool) {
	count = Labels(o)
	h = adapter.Head{Task: task, Problem: adapter.Regression} // rewards are numbers
	if c, is := o.(classes); is {
		h.Labels = c.Labels
		h.Problem = map[kernel.ClassForm]string{kernel.ClassSingle: adapter.SingleLabel,
			kernel.ClassMulti: adapter.MultiLabel, kernel.ClassRegression: adapter.Regression}[c.form]
	}
	return h, count, count > 0
}
