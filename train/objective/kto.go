package objective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// ktoName is the objective's name in Objectives, and its section's.
const ktoName = "kto"

// KTOConfig is the section of training.objective: kto. It has the keys and defaults of TRL's KTOConfig.
type KTOConfig struct {
	// LossType is the loss of an answer. kto compares it with an estimate of the model's divergence from the reference,
	// which takes a second sequence for each row; apo_zero_unpaired needs no estimate.
	LossType string `yaml:"loss_type" default:"kto" resume:"fixed"`
	// Beta is how strongly the loss holds the model near the reference: a smaller one lets it move further.
	Beta float64 `yaml:"beta" default:"0.1" range:"(0,inf)" resume:"steers"`
	// DesirableWeight is the factor of the loss of desirable answers. Where one label is rarer, its factor times its
	// rows should be 1 to 1.33 times the other's.
	DesirableWeight float64 `yaml:"desirable_weight" default:"1" range:"[0,inf)" resume:"steers"`
	// UndesirableWeight is the factor of the loss of undesirable answers.
	UndesirableWeight float64 `yaml:"undesirable_weight" default:"1" range:"[0,inf)" resume:"steers"`
	// KLRows is the number of consecutive rows of the data set that exchange their answers for the estimate of the
	// divergence. 0 = training.batch_size, as in TRL.
	KLRows int `yaml:"kl_rows" range:"[0,1000000]" resume:"compared"`
}

// Choices are the names of the losses.
func (KTOConfig) Choices() map[string][]string {
	return map[string][]string{"loss_type": kernel.UnpairedFormNames[:]}
}

func (c KTOConfig) problems() []error {
	if c.DesirableWeight == 0 && c.UndesirableWeight == 0 {
		return []error{errors.New("kto.desirable_weight: is 0, and so is kto.undesirable_weight: nothing would be " +
			"learnt")}
	}
	return nil
}

// kto is Kahneman-Tversky Optimization (Ethayarajh et al. 2024) and APO-zero on single answers: each answer is labelled
// desirable or undesirable, and its loss is a function of how much more likely than the reference the policy finds it.
type kto struct {
	KTOConfig
	knownReference
}

func newKTO(c Config) Objective { return kto{KTOConfig: settings(c.KTO)} }

// Divisor is the number of rows.
func (kto) Divisor() Count { return Groups }

// Numbers are TRL's rewards and log-probabilities, each a mean over the answers of one label, the share of each label,
// the estimate of the divergence, and what TRL logs of tokens. The first seven have the order of the sums of
// kernel.UnpairedLoss.
func (kto) Numbers() []Number {
	const desirable, undesirable = "share/chosen", "share/rejected"
	return append([]Number{
		{Name: "rewards/chosen", Among: desirable, HigherIsBetter: true},
		{Name: "rewards/rejected", Among: undesirable},
		{Name: "logps/chosen", Unit: "nats", Among: desirable, HigherIsBetter: true},
		{Name: "logps/rejected", Unit: "nats", Among: undesirable},
		{Name: desirable, Per: Groups},
		{Name: undesirable, Per: Groups},
		{Name: "kl", Unit: "nats", Per: Groups},
		{Name: "rewards/margins", Of: "rewards/chosen", Less: "rewards/rejected", HigherIsBetter: true},
	}, ktoReport.numbers()...)
}

// ktoReport is what TRL's KTOTrainer logs of tokens. Mismatched sequences count nowhere.
var ktoReport = answerReport{entropy: true}

// unpairedNumbers is the number of the sums of kernel.UnpairedLoss.
const unpairedNumbers = 7

// Reference reports whether the reference is computed in the step.
func (o kto) Reference() bool { return o.precomputed == nil }

// referenceForm is the sums of answers, those of mismatched sequences included.
func (kto) referenceForm() ReferenceForm { return ReferenceForm{} }

func (o kto) reading(values *ReferenceValues) Objective {
	o.precomputed = values
	return o
}

// estimates tells whether the loss compares answers with an estimate of the divergence.
func (o kto) estimates() bool { return o.LossType == kernel.UnpairedFormNames[kernel.UnpairedKTO] }

// SharesPrompts reports that an answer and its mismatched answer may continue one prompt.
func (o kto) SharesPrompts() bool { return o.estimates() }

// Read makes labelled rows of pairs and, for the estimate of the divergence, adds mismatched sequences to rows.
func (o kto) Read(c *dataset.Config, batchSize int) {
	c.Unpaired = true
	if o.estimates() {
		if c.Mismatched = o.KLRows; c.Mismatched == 0 {
			c.Mismatched = batchSize
		}
	}
}

// CheckBatch refuses batches of one row, whose mismatched answer is the row's own.
func (o kto) CheckBatch(batchSize int) error {
	if o.estimates() && (o.KLRows == 1 || o.KLRows == 0 && batchSize == 1) {
		return errors.New("kto.kl_rows: the estimate of the divergence takes the answers of other rows, and 1 row " +
			"has none: set training.batch_size or kto.kl_rows to 2 or more")
	}
	return nil
}

// BatchTerm is the estimate of the divergence, if the loss has one.
func (o kto) BatchTerm() string {
	if o.estimates() {
		return "the estimate of the divergence is one"
	}
	return ""
}

// CheckRows refuses rows without a label.
func (kto) CheckRows(r *dataset.Report) error {
	if labelled := r.Groups.Desirable + r.Groups.Undesirable; r.Groups.Rows > 0 || labelled < r.Kept {
		return fmt.Errorf("it learns from answers that are each labelled desirable or undesirable, and %d of %d rows "+
			"have no label: write dataset.format: unpaired, with dataset.fields where the columns have other names, or "+
			"give preference pairs, of which each becomes two labelled answers", r.Kept-labelled, r.Kept)
	}
	return nil
}

const nameLabelled = "labelled rows"

// Declare adds labels, the scale and the rows: the sequences of each row and its label.
func (o kto) Declare(n *nn.Net, prefix string, s session.Shape) Inputs {
	if n.Ranks() > 1 {
		n.Fail(errors.New("a loss of labelled answers needs all tokens of an answer, and each rank has a part of " +
			"them: training.context_parallel_size must be 1"))
	}
	in := crossEntropy{}.Declare(n, prefix, s)
	rows := s.Sequences
	if o.estimates() {
		rows = max(rows/2, 1)
	}
	in = append(in, n.Batch(prefix+nameBorders, kernel.T(kernel.I32, s.Sequences+1)),
		n.Batch(prefix+nameLabelled, kernel.T(kernel.I32, rows, 3)))
	return o.declare(n, prefix, s, o.referenceForm(), in)
}

// Bind finds the data of Declare in the memory of a plan.
func (o kto) Bind(b *session.Batch) (Filler, error) {
	own, err := crossEntropy{}.Bind(b)
	if err != nil {
		return nil, err
	}
	f := &ktoFiller{labelled: own.(*labelled)}
	if f.rows, err = b.Int32s(nameLabelled); err != nil {
		return nil, err
	}
	return o.bind(b, o.referenceForm(), f)
}

// ktoFiller writes a micro-batch's labelled rows.
type ktoFiller struct {
	*labelled
	rows []int32 // [R,3], see kernel.UnpairedLoss
}

// Fill writes a micro-batch and returns its trained tokens.
func (f *ktoFiller) Fill(b dataset.Batch, own session.Part) int {
	trained := f.labelled.Fill(b, own)
	for i := range f.rows {
		f.rows[i] = -1
	}
	groups, segments := b.Sequences()
	for k := range b.Rows {
		row := f.rows[3*k:]
		row[0] = segments[groups[k]]
		if row[2] = 0; k < len(b.Desirable) {
			row[2] = int32(b.Desirable[k])
		}
		if groups[k+1]-groups[k] == 2 {
			row[1] = segments[groups[k]+1]
		}
	}
	return trained
}

// Train builds the loss with its gradient.
func (o kto) Train(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, true) }

// Eval builds the loss without a gradient.
func (o kto) Eval(n *nn.Net, at Network, in Inputs) Outcome { return o.build(n, at, in, false) }

func (o kto) build(n *nn.Net, at Network, in Inputs, grad bool) Outcome {
	refuseBalanceLoss(n)
	in, reference, _ := o.take(in, o.referenceForm())
	p := pairInputs{labels: in[0], scale: in[1], borders: in[2]}
	head := kernel.LinearLogProbs{Chunk: at.LossRows, Cap: at.LogitCap}
	if o.precomputed == nil {
		reference, _ = p.sums(n, n.Apply(head, at.Reference, at.Head, p.labels), p.labels)
	}
	head.Grad, head.Statistics = grad, true
	ofTokens := n.ApplyAll(head, at.Hidden, at.Head, p.labels)
	policy, _ := p.sums(n, ofTokens[0], p.labels)
	values := []*graph.Value{policy, reference, in[3], p.scale}
	if at.Scaling != nil {
		values = append(values, at.Scaling)
	}
	out := n.ApplyAll(kernel.UnpairedLoss{
		Form: kernel.UnpairedForm(slices.Index(kernel.UnpairedFormNames[:], o.LossType)), Beta: o.Beta,
		Desirable: o.DesirableWeight, Undesirable: o.UndesirableWeight, Grad: grad, Scaled: at.Scaling != nil,
	}, values...)
	sums := ktoReport.sums(n, ofTokens[len(ofTokens)-1], p, in[3])
	if n.Err() != nil {
		return Outcome{}
	}
	return Outcome{Loss: out[0], Sums: slices.Concat(out[len(out)-unpairedNumbers:], sums)}
}
