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

// Names of a micro-batch's data beside the labels and the scale.
const (
	nameBorders = "cu_seqlens" // session.Network.Declare declares it
	namePairs   = "pairs"
	nameTail    = "tail labels"
)

// pairInputs is what a micro-batch of preference pairs holds besides token ids and positions.
type pairInputs struct {
	labels, scale *graph.Value
	borders       *graph.Value // of the sequences: the batch's cu_seqlens
	pairs         *graph.Value // i32[P,2], sequences of the chosen and of the rejected answer; negative = no pair
	tail          *graph.Value // i32[M], labels of the tokens behind the length of a pair's shorter answer; nil = none
}

// declarePairs adds the data of preference pairs: labels and scale as crossEntropy has them, pairs, and the tail's
// labels where they are wanted.
func declarePairs(n *nn.Net, prefix string, s session.Shape, tail bool) Inputs {
	if n.Ranks() > 1 {
		n.Fail(errors.New("a loss of preference pairs needs all tokens of an answer, and each rank has a part of " +
			"them: training.context_parallel_size must be 1"))
	}
	in := crossEntropy{}.Declare(n, prefix, s)
	in = append(in, n.Batch(prefix+nameBorders, kernel.T(kernel.I32, s.Sequences+1)),
		n.Batch(prefix+namePairs, kernel.T(kernel.I32, max(s.Sequences/2, 1), 2)))
	if tail {
		in = append(in, n.Batch(prefix+nameTail, kernel.T(kernel.I32, s.Tokens)))
	}
	return in
}

// pairInputsOf returns the data that declarePairs added.
func pairInputsOf(in Inputs) pairInputs {
	p := pairInputs{labels: in[0], scale: in[1], borders: in[2], pairs: in[3]}
	if len(in) > 4 {
		p.tail = in[4]
	}
	return p
}

// sums returns for each sequence the sum of perToken f[M] over its labelled tokens, and the number of these.
func (p pairInputs) sums(n *nn.Net, perToken, labels *graph.Value) (sums, counts *graph.Value) {
	out := n.ApplyAll(kernel.SequenceSums{}, perToken, labels, p.borders)
	return out[0], out[1].Constant()
}

// bindPairs finds the data of declarePairs in the memory of a plan.
func bindPairs(b *session.Batch, tail bool) (*pairFiller, error) {
	own, err := crossEntropy{}.Bind(b)
	if err != nil {
		return nil, err
	}
	f := &pairFiller{labelled: own.(*labelled)}
	if f.pairs, err = b.Int32s(namePairs); err != nil {
		return nil, err
	}
	if tail {
		f.tail, err = b.Int32s(nameTail)
	}
	return f, err
}

// pairFiller writes a micro-batch's preference pairs.
type pairFiller struct {
	*labelled
	pairs []int32 // [P,2]
	tail  []int32 // [M]; nil = the loss has no tail
}

// Fill writes a micro-batch and returns its trained tokens, those of the answers.
func (f *pairFiller) Fill(b dataset.Batch, own session.Part) int {
	trained := f.labelled.Fill(b, own)
	for i := range f.pairs {
		f.pairs[i] = -1
	}
	groups, segments := b.Sequences()
	for k := range b.Rows {
		f.pairs[2*k], f.pairs[2*k+1] = segments[groups[k]], segments[groups[k]+1]
	}
	if f.tail != nil {
		f.placeTails(b)
	}
	return trained
}

// placeTails labels the tails of all pairs of a batch, whose labels are written.
func (f *pairFiller) placeTails(b dataset.Batch) {
	for i := range f.tail {
		f.tail[i] = dataset.Ignore
	}
	groups, segments := b.Sequences()
	for k := range b.Rows {
		f.placeTail(b.CuSeqlens, segments[groups[k]], segments[groups[k]+1])
	}
}

// placeTail labels the answers' tokens behind the length of the shorter one.
func (f *pairFiller) placeTail(cu []int32, chosen, rejected int32) {
	count := func(s int32) (n int) {
		for _, l := range f.labels[cu[s]:cu[s+1]] {
			if l != dataset.Ignore {
				n++
			}
		}
		return n
	}
	shorter := min(count(chosen), count(rejected))
	for _, s := range []int32{chosen, rejected} {
		n := 0
		for t := cu[s]; t < cu[s+1]; t++ {
			if f.labels[t] == dataset.Ignore {
				continue
			}
			if n++; n > shorter {
				f.tail[t] = f.labels[t]
			}
		}
	}
}

// pairNumbers are what an objective over pairs reports beside the loss, by TRL's names, in the order of the sums of
// kernel.PairLoss.
func pairNumbers() []Number {
	return []Number{
		{Name: "rewards/chosen", Per: Groups, HigherIsBetter: true},
		{Name: "rewards/rejected", Per: Groups},
		{Name: "rewards/accuracies", Per: Groups, HigherIsBetter: true},
		{Name: "rewards/margins", Per: Groups, HigherIsBetter: true},
		{Name: "logps/chosen", Unit: "nats", Per: Groups, HigherIsBetter: true},
		{Name: "logps/rejected", Unit: "nats", Per: Groups},
	}
}

// checkPairs refuses rows that are not preference pairs.
func checkPairs(r *dataset.Report) error {
	rows, g := r.Kept, r.Groups
	switch {
	case g.Most > 2:
		return fmt.Errorf("it learns from pairs of a chosen and a rejected answer, and a row has %d sequences", g.Most)
	case g.Rows == 0 && g.Desirable+g.Undesirable > 0:
		return errors.New("it learns from pairs of a chosen and a rejected answer, and these are single answers with a " +
			"label")
	case g.Rows < rows:
		return fmt.Errorf("it learns from pairs of a chosen and a rejected answer, and %d of %d rows are none: write "+
			"dataset.format: preference, with dataset.fields where the columns have other names", rows-g.Rows, rows)
	}
	return nil
}

// refuseBalanceLoss refuses models whose configuration asks for a loss of their experts' balance, which losses of pairs
// don't add.
func refuseBalanceLoss(n *nn.Net) {
	if n.Balance() != nil {
		n.Fail(errors.New("the model's config.json asks for a loss of its experts' balance (output_router_logits, " +
			"router_aux_loss_coef), which this objective does not have: set output_router_logits to " +
			"false there"))
	}
}
