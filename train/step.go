package train

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/quant"
)

// The step's segments: begin once, micro for every micro-batch, norm and update once.
const (
	segmentBegin  = "begin"
	segmentMicro  = "micro"
	segmentNorm   = "norm"
	segmentUpdate = "update"
	segmentEval   = "eval"
)

// evalPrefix is before the names of an evaluation's data.
const evalPrefix = "eval "

// State groups of the optimizer, spans like the parameters.
const (
	groupMoment1 = "adam m"
	groupMoment2 = "adam v"
	nameMoment1  = "first moments"
	nameMoment2  = "second moments"
)

// network is what a run trains, before it becomes a plan.
type network struct {
	Config  model.Config
	Build   families.Build
	Float   kernel.DType
	Scheme  *quant.Config // nil = weights as they are
	Decoded bool          // quantised weights are kept as the numbers they stand for
	Method  adapter.Method
	Adapter adapter.Config
	Adapted bool // false = the base model alone
	// DecodedLinears bounds Decoded to the first linear layers; 0 = all.
	DecodedLinears int
	Spaced         bool // a training step's calls may run side by side, for memory
	// LossRows is rows whose logits exist at the same time; 0 = lossChunk.
	LossRows int
}

// shape is the fixed size of a step's data.
type shape struct {
	Tokens    int // M = B*T
	Sequences int // capacity of cu_seqlens less one
	MaxLen    int // positions lie below it
}

// inputs are a plan's batch values.
type inputs struct {
	batch                nn.Batch
	labels, scale, hyper *graph.Value
}

// build starts a net and declares its data under names with a prefix: plans that share a memory have data
// of their own.
func (nw network) build(prefix string, s shape) (*nn.Net, *adapter.Trained, inputs) {
	trained := &adapter.Trained{}
	o := nn.Options{Float: nw.Float, Scheme: nw.Scheme, Dequantised: nw.Decoded, DequantisedLinears: nw.DecodedLinears}
	if nw.Adapted {
		o.Wrap = nw.Method.Wrapper(trained, nw.Adapter)
	}
	n := nn.New(o)
	cu := n.Batch(prefix+"cu_seqlens", kernel.T(kernel.I32, s.Sequences+1))
	return n, trained, inputs{
		batch: nn.Batch{
			IDs:       n.Batch(prefix+"input_ids", kernel.T(kernel.I32, s.Tokens)),
			Positions: n.Batch(prefix+"positions", kernel.T(kernel.I32, s.Tokens)),
			CuQ:       cu, CuK: cu, MaxLen: s.MaxLen,
		},
		labels: n.Batch(prefix+"labels", kernel.T(kernel.I32, s.Tokens)),
		scale:  n.Batch(prefix+"loss scale", kernel.T(n.Float(), 1)),
	}
}

// headName is the checkpoint's name of the vocabulary head's weight.
func headName(c model.Config) string {
	if c.TieEmbeddings {
		return "model.embed_tokens.weight"
	}
	return "lm_head.weight"
}

// spacing is for how many calls memory is kept apart where calls may run side by side. On one H200, Llama shapes
// of 135M and 1.1B at 512 tokens, more is no faster.
const spacing = 6

// lossChunk is rows whose logits exist at the same time: enough to fill the machine.
func lossChunk(on graph.Machine) int {
	if on.Name() == "cpu" {
		return 256
	}
	return 1024
}

// lossRows is rows whose logits exist at the same time.
func (nw network) lossRows(on graph.Machine) int {
	if nw.LossRows > 0 {
		return nw.LossRows
	}
	return lossChunk(on)
}

// trainStep is the training step as one plan.
type trainStep struct {
	net     *nn.Net
	trained *adapter.Trained
	plan    *graph.Plan
	loss    *graph.Value // f[], the optimizer step's loss
	norm    *graph.Value // f[2], gradient norm and clip factor
	scaling *graph.Value // state of loss scaling; nil where the machine's precision needs none
}

// newTrainStep builds forward, backward, clip and optimizer.
func newTrainStep(nw network, s shape, c Config, again graph.Recompute, layers int, on graph.Machine) (*trainStep, error) {
	n, trained, in := nw.build("", s)
	in.hyper = n.Batch("optimizer", kernel.T(n.Float(), 4))
	t := &trainStep{net: n, trained: trained}

	// The parameters exist once the layers do, so the segment that runs first is built last.
	n.Segment(segmentMicro)
	hidden := nw.Build(n, nw.Config, in.batch)                                     // [M,C]
	head := n.Head(headName(nw.Config), nw.Config.VocabSize, nw.Config.HiddenSize) // [V,C]
	scaled := on.Precision().Scaled()
	if scaled {
		t.scaling = n.State("", nameScaling, kernel.T(n.Float(), kernel.LossScalingSize))
	}
	loss := n.Apply(kernel.LinearCrossEntropy{Chunk: nw.lossRows(on), Grad: true, Scaled: scaled}, t.withScaling(hidden, head, in.labels, in.scale)...)
	if err := n.Err(); err != nil {
		return nil, err
	}
	if err := trained.CheckTargets(nw.Adapter); err != nil {
		return nil, err
	}
	grads := n.Grad(loss, trained.Params...)
	for i, p := range trained.Params {
		sum := n.State(adapter.GradGroup, "gradient of "+p.Name, p.Type)
		n.Apply(kernel.AddTo{}, sum, grads[i])
	}
	lossSum := n.State("", "loss", loss.Type)
	n.Apply(kernel.AddTo{}, lossSum, loss)

	n.Segment(segmentNorm)
	g := n.Span(adapter.GradGroup)
	t.norm = n.State("", "gradient norm", kernel.T(n.Float(), 2))
	n.Apply(kernel.GradNorm{MaxNorm: c.MaxGradNorm, Scaled: scaled}, t.withScaling(g, lossSum, t.norm)...)

	n.Segment(segmentUpdate)
	m := n.State(groupMoment1, nameMoment1, g.Type)
	v := n.State(groupMoment2, nameMoment2, g.Type)
	n.Apply(kernel.AdamW{Beta1: c.AdamBeta1, Beta2: c.AdamBeta2, Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay, Scaled: scaled},
		t.withScaling(n.Span(adapter.ParamGroup), g, m, v, t.norm, in.hyper)...)
	if scaled {
		n.Apply(kernel.LossScale{Interval: c.LossScaleInterval}, t.scaling, t.norm, lossSum)
	}

	n.Segment(segmentBegin)
	n.Apply(kernel.Zero{}, g)
	n.Apply(kernel.Zero{}, lossSum)

	t.loss = lossSum
	n.Recompute(again, layers)
	if nw.Spaced {
		n.Space(spacing)
	}
	var err error
	if t.plan, err = on.Compile(n.Builder, t.numbers()...); err != nil {
		return nil, fmt.Errorf("plan the training step: %w", err)
	}
	return t, nil
}

// numbers are what the host reads of a step: loss, norm and clip factor, and the state of loss scaling where there is one.
func (t *trainStep) numbers() []*graph.Value { return t.withScaling(t.loss, t.norm) }

// evalStep is the forward pass and the loss alone.
type evalStep struct {
	net     *nn.Net
	trained *adapter.Trained
	plan    *graph.Plan
	loss    *graph.Value // f[], scale times the sum of negative log-likelihoods
	nll     *graph.Value // f[M]
}

func newEvalStep(nw network, s shape, on graph.Machine) (*evalStep, error) {
	nw.Adapter.Dropout = 0 // of training only
	n, trained, in := nw.build(evalPrefix, s)
	n.Segment(segmentEval)
	hidden := nw.Build(n, nw.Config, in.batch)
	head := n.Head(headName(nw.Config), nw.Config.VocabSize, nw.Config.HiddenSize)
	out := n.ApplyAll(kernel.LinearCrossEntropy{Chunk: nw.lossRows(on)}, hidden, head, in.labels, in.scale)
	e := &evalStep{net: n, trained: trained, loss: out[0], nll: out[1]}
	var err error
	if e.plan, err = on.Compile(n.Builder, e.loss, e.nll); err != nil {
		return nil, fmt.Errorf("plan the evaluation: %w", err)
	}
	return e, nil
}

// shiftLabels writes to each place what it must predict, the next token's label, and returns how many
// places are trained. A sequence's last place predicts nothing. cu are the sequences' borders.
func shiftLabels(dst, labels, cu []int32) (trained int) {
	copy(dst, labels[1:])
	dst[len(labels)-1] = dataset.Ignore
	for _, end := range cu {
		if end > 0 {
			dst[end-1] = dataset.Ignore
		}
	}
	for _, l := range dst {
		if l != dataset.Ignore {
			trained++
		}
	}
	return trained
}

// hyper are the numbers the optimizer reads in step t, from 1: learning rate, bias corrections, and t as the
// bits of a float32 for a device that computes the corrections itself.
func hyper(c Config, lr float64, t int) [4]float64 {
	return [4]float64{lr, 1 - math.Pow(c.AdamBeta1, float64(t)), 1 - math.Pow(c.AdamBeta2, float64(t)), float64(math.Float32frombits(uint32(t)))}
}
