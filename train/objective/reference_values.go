package objective

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/logprobs"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// ReferenceForm is what a loss reads of its reference. The reference never changes, so these numbers can be computed
// before training.
type ReferenceForm struct {
	// Tails adds, for each answer of a pair, the sum over the tokens behind the length of the pair's shorter answer
	// (length desensitisation). The sum over all tokens of an answer is always read.
	Tails bool
}

// String names the form, for keys of caches.
func (f ReferenceForm) String() string {
	if f.Tails {
		return "sums and tails of sequences"
	}
	return "sums of sequences"
}

// Numbers returns how many numbers of a sequence the form has.
func (f ReferenceForm) Numbers() int {
	if f.Tails {
		return 2
	}
	return 1
}

// precomputing is an optional capability of a Referring Objective: its loss can read numbers of the reference that were
// computed before training.
type precomputing interface {
	Referring
	// referenceForm says which numbers.
	referenceForm() ReferenceForm
	// reading returns the objective that reads them from values in place of computing the reference.
	reading(values *ReferenceValues) Objective
}

// PrecomputedForm returns what an objective's loss reads of its reference; ok is false where the objective has no
// reference, or needs it in every step.
func PrecomputedForm(o Objective) (f ReferenceForm, ok bool) {
	p, ok := o.(precomputing)
	if !ok || !p.Reference() {
		return f, false
	}
	return p.referenceForm(), true
}

// WithReferenceValues returns the objective that takes the numbers of its reference from values, which may be filled
// after plans are made and must be filled before the first batch. PrecomputedForm must be ok for the objective.
func WithReferenceValues(o Objective, values *ReferenceValues) Objective {
	return o.(precomputing).reading(values)
}

// ReferenceValues are the numbers of a ReferenceForm for the rows of a data set, found by a hash of a row's tokens and
// labels. Rows are added before training; afterwards any number of goroutines may read them.
type ReferenceValues struct {
	rows map[uint64][]float32 // for each sequence of a row the numbers of the form
}

// NewReferenceValues returns values without rows.
func NewReferenceValues() *ReferenceValues { return &ReferenceValues{map[uint64][]float32{}} }

// Len returns the number of different rows.
func (v *ReferenceValues) Len() int { return len(v.rows) }

// Rows yields the rows in ascending order of their keys.
func (v *ReferenceValues) Rows() iter.Seq2[uint64, []float32] {
	return func(yield func(uint64, []float32) bool) {
		for _, key := range slices.Sorted(maps.Keys(v.rows)) {
			if !yield(key, v.rows[key]) {
				return
			}
		}
	}
}

// RowKey is the hash by which the values of row k of a batch are found.
func RowKey(b dataset.Batch, k int) uint64 {
	key := logprobs.Key(b.Row(k))
	for _, border := range b.Borders(k) {
		key = session.Mix(key ^ uint64(border))
	}
	return key
}

// Add sets the values of a row.
func (v *ReferenceValues) Add(key uint64, values []float32) { v.rows[key] = values }

// of returns the values of row k of a batch. All rows have values once training begins.
func (v *ReferenceValues) of(b dataset.Batch, k int) []float32 {
	values, ok := v.rows[RowKey(b, k)]
	if !ok {
		panic(fmt.Errorf("training.precompute: no log-probabilities of the reference for the row %v", b.Where()[k]))
	}
	return values
}

// Names of a micro-batch's numbers of the reference.
const (
	nameReferenceSums  = "sums of the reference"
	nameReferenceTails = "tails of the reference"
)

// knownReference reads the numbers of the reference from values. It is embedded in objectives that can be so.
type knownReference struct{ precomputed *ReferenceValues }

// declare adds the numbers of a form to a batch of sequences.
func (r knownReference) declare(n *nn.Net, prefix string, s session.Shape, f ReferenceForm, in Inputs) Inputs {
	if r.precomputed == nil {
		return in
	}
	in = append(in, n.Batch(prefix+nameReferenceSums, kernel.T(n.Float(), s.Sequences)))
	if f.Tails {
		in = append(in, n.Batch(prefix+nameReferenceTails, kernel.T(n.Float(), s.Sequences)))
	}
	return in
}

// take separates the numbers of the reference, which declare has added, from the other inputs. tails is nil where the
// form has none. Both are nil where the reference is computed in the step.
func (r knownReference) take(in Inputs, f ReferenceForm) (others Inputs, sums, tails *graph.Value) {
	if r.precomputed == nil {
		return in, nil, nil
	}
	others = in[:len(in)-f.Numbers()]
	if f.Tails {
		tails = in[len(in)-1]
	}
	return others, in[len(others)], tails
}

// bind returns a Filler that writes what own writes, and the numbers of the reference.
func (r knownReference) bind(b *session.Batch, f ReferenceForm, own Filler) (Filler, error) {
	if r.precomputed == nil {
		return own, nil
	}
	filler := &referenceFiller{Filler: own, known: r.precomputed}
	for _, name := range []string{nameReferenceSums, nameReferenceTails}[:f.Numbers()] {
		to, err := b.Float32s(name)
		if err != nil {
			return nil, err
		}
		filler.to = append(filler.to, to)
	}
	return filler, nil
}

// referenceFiller writes a micro-batch's numbers of the reference.
type referenceFiller struct {
	Filler
	known *ReferenceValues
	to    [][]float32 // for each number of the form [S]
}

// Fill writes a micro-batch and returns its trained tokens.
func (f *referenceFiller) Fill(b dataset.Batch, own session.Part) int {
	trained := f.Filler.Fill(b, own)
	for _, to := range f.to {
		clear(to)
	}
	groups, segments := b.Sequences()
	for k := range b.Rows {
		values := f.known.of(b, k)
		for _, segment := range segments[groups[k]:groups[k+1]] {
			for i, to := range f.to {
				to[segment] = values[i]
			}
			values = values[len(f.to):]
		}
	}
	return trained
}

// ReferencePass computes the numbers of a form for batches of rows: a forward pass of the reference alone.
type ReferencePass struct{ ReferenceForm }

// Declare adds the labels of a batch of a shape, and those of the tails.
func (p ReferencePass) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	in := Inputs{n.Batch(prefix+nameLabels, kernel.T(kernel.I32, s.Tokens)),
		n.Batch(prefix+nameBorders, kernel.T(kernel.I32, s.Sequences+1))}
	if p.Tails {
		in = append(in, n.Batch(prefix+nameTail, kernel.T(kernel.I32, s.Tokens)))
	}
	return in
}

// Build records the reference's layers over a batch, and returns the numbers of the form, each f[S].
func (p ReferencePass) Build(nw session.Network, n *nn.Net, batch nn.Batch, in Inputs, lossRows int) []*graph.Value {
	if !nw.TrainsBase() { // before the first step trained weights are the base model's
		n.Fail(checkReference(nw, n))
	}
	var hidden, weight *graph.Value
	nn.AsReference(n, func() { hidden, weight = nw.Hidden(n, batch), nw.Head(n) })
	head := kernel.LinearLogProbs{Chunk: lossRows, Cap: nw.Config.LogitCap}
	perToken := n.Apply(head, hidden, weight, in[0])
	if n.Err() != nil {
		return nil
	}
	of := pairInputs{borders: in[1]}
	sums, _ := of.sums(n, perToken, in[0])
	if !p.Tails {
		return []*graph.Value{sums}
	}
	tails, _ := of.sums(n, perToken, in[2])
	return []*graph.Value{sums, tails}
}

// Bind finds the data of Declare in the memory of a plan.
func (p ReferencePass) Bind(b *session.Batch) (*ReferenceReader, error) {
	r := &ReferenceReader{pairFiller{labelled: &labelled{}}}
	var err error
	if r.data.labels, err = b.Int32s(nameLabels); err == nil && p.Tails {
		r.data.tail, err = b.Int32s(nameTail)
	}
	return r, err
}

// ReferenceReader writes the labels of batches for a ReferencePass, and finds the numbers of each row.
type ReferenceReader struct{ data pairFiller }

// Fill writes the labels of a batch.
func (r *ReferenceReader) Fill(b dataset.Batch) {
	r.data.labelled.Fill(b, session.Part{})
	if r.data.tail != nil {
		r.data.placeTails(b)
	}
}

// Rows calls add with the key and the values of each row of a batch, given the numbers of the form, each [S].
func (r *ReferenceReader) Rows(b dataset.Batch, numbers [][]float32, add func(key uint64, values []float32)) {
	groups, segments := b.Sequences()
	for k := range b.Rows {
		var values []float32
		for _, segment := range segments[groups[k]:groups[k+1]] {
			for _, of := range numbers {
				values = append(values, of[segment])
			}
		}
		add(RowKey(b, k), values)
	}
}
