package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// Network is a model with its adapter, before it is planned.
type Network struct {
	Config  model.Config
	Build   families.Build
	Float   kernel.DType
	Scheme  *quant.Config                   // nil = weights are stored as they are
	Stored  func(name string) *quant.Config // nn.Options.Stored of a checkpoint that is quantised already
	Method  adapter.Method
	Adapter adapter.Config
	// Initialisation of a run's fresh adapter, which may change base weights while they load; nil = they stay.
	Start   *adapter.Start
	Adapted bool // false = the base model alone
	// BaseTask is what the base model is for if it has another head than the vocabulary's.
	BaseTask adapter.Task
	// Trainable is nn.Options.Trainable in place of the method's; nil = the weights that the method trains, if any.
	Trainable func(name string) bool
	// Reference is the adapter of the reference that an objective compares the model with; nil = the base model is the
	// reference.
	Reference *adapter.Reference
	// Teacher is the model that an objective learns from, beside this one; nil = there is none, or it is Reference.
	Teacher *Teacher
	// Several has adapters for the rows of a batch: each row selects its own. nil = one adapter for all rows.
	Several *adapter.Several
	Layout  Layout
	Halves  func(name string) kernel.DType // nn.Options.Halves; nil = all matrices are stored as Float
	// Images says how batches hold images; nil = they have none.
	Images *ImageValues
	// Ranks that share each micro-batch's tokens and attention's heads; 0 = one rank computes all.
	Ranks int
}

// Keep makes the network keep weights that a checkpoint has quantised as they are: all of them, or, for gpt-oss, only
// the experts in MXFP4, while Scheme sets how the others are stored.
func (nw *Network) Keep(b *Base) {
	if b.Tensors().Quantised() == 0 {
		return
	}
	if b.mxfp4() {
		nw.Stored = func(name string) *quant.Config {
			if c := b.Tensors().Config(name); c != nil {
				return c
			}
			return nw.Scheme
		}
		return
	}
	scheme := quantised.Scheme(b.Config.Quantization)
	nw.Scheme, nw.Stored = &scheme, b.Tensors().Config
}

// KeepHalves makes the network keep matrices that a checkpoint has in 16 bits as they are, if the machine computes with
// them in that form. Generation uses it, because reading the matrices bounds its speed.
func (nw *Network) KeepHalves(b *Base, on graph.Machine) {
	if b.Declared || !on.Capabilities().Halves {
		return
	}
	nw.Halves = func(name string) kernel.DType {
		if t, ok := b.Tensors().Tensor(name); ok && (t.DType == weights.BF16 || t.DType == weights.F16) {
			return storedTypes[t.DType]
		}
		return 0
	}
}

// Mixture returns how transformers and PEFT represent the model's mixture of experts.
func (nw *Network) Mixture() adapter.Mixture {
	f := families.Table[nw.Config.ModelType]
	return adapter.Mixture{Stacked: f.Experts != nil && !f.WholeExperts, Renamed: f.PEFTRenames}
}

// AdapterRows is the name, after a plan's prefix, of the value that selects one of Several for each row of a batch; -1
// selects none.
const AdapterRows = adapter.SeveralRows

// Shape is the fixed size of a micro-batch.
type Shape struct {
	Tokens    int // M, over all ranks that share them
	Sequences int // capacity of cu_seqlens minus one
	MaxLen    int // positions are below it
	// Prefixes says that sequences may continue others (dataset.Batch.Prefixes), such as answers their prompt.
	Prefixes bool
}

// Own returns how many tokens of a micro-batch each of the ranks that share it computes: the same number for each, a
// multiple of 8, so that the last ranks may have padding.
func Own(tokens, ranks int) int {
	if ranks < 2 {
		return tokens
	}
	return (tokens + 8*ranks - 1) / (8 * ranks) * 8
}

// Own returns the shape of this rank's part of a micro-batch of a shape.
func (nw Network) Own(s Shape) Shape {
	s.Tokens = Own(s.Tokens, nw.Ranks)
	return s
}

// Declare starts a net and declares its token ids and positions under names with a prefix, because plans that share a
// memory have separate batch values.
func (nw Network) Declare(prefix string, s Shape) (*nn.Net, *adapter.Trained, nn.Batch) {
	trained := &adapter.Trained{NarrowMatrices: nw.Adapted && adapter.RoundsStochastically(nw.Adapter)}
	o := nn.Options{Float: nw.Float, Scheme: nw.Scheme, Stored: nw.Stored, Dequantised: nw.Layout.Dequantised,
		DequantisedLinears: nw.Layout.Linears, DequantisedExperts: nw.Layout.Experts, Halves: nw.Halves,
		Ranks: nw.Ranks}
	if nw.Adapted {
		o.Wrap, o.WrapExperts = nw.Method.Wrapper(trained, nw.Adapter), nw.Method.ExpertWrapper(trained, nw.Adapter)
		o.WrapParameter, o.ExpertParameters = nw.Method.ParameterWrapper(trained, nw.Adapter), nw.Adapter.FusedExperts()
		o.WrapRouter = nw.Method.RouterWrapper(trained, nw.Adapter)
	}
	if nw.Several != nil {
		o.Wrap, o.WrapExperts = nw.Several.Wrapper(prefix, s.Tokens), nw.Several.Experts
		o.WrapRouter = nw.Several.Routers(prefix, s.Tokens)
	}
	if nw.Reference != nil {
		o.WrapReference = nw.Reference.Wrapper(trained)
	}
	o.Trainable, o.Train = nw.trainable(), trained.Train
	if nw.Adapted {
		nw.Method.UseTables(trained, nw.Adapter, nw.Config.HeadName(), &o)
	}
	n := nn.New(o)
	if nw.Adapted {
		rows := adapter.TokenRowsOf(nw.Adapter)
		n.Fail(rows.CheckModel(nw.Config.VocabSize, nw.Config.TieEmbeddings, nw.Adapter.Saved()))
	}
	n.Rewrite = nw.Start.Rewrite(n, trained)
	n.Shard(nw.Layout.Shards)
	own := Own(s.Tokens, nw.Ranks)
	cu := n.Batch(prefix+"cu_seqlens", kernel.T(kernel.I32, s.Sequences+1))
	in := nn.Batch{
		IDs:       n.Batch(prefix+"input_ids", kernel.T(kernel.I32, own)),
		Positions: n.Batch(prefix+"positions", kernel.T(kernel.I32, own)),
		CuQ:       cu, CuK: cu, Real: n.Batch(prefix+"real_tokens", kernel.T(kernel.I32, own)), MaxLen: s.MaxLen,
	}
	if nw.Images != nil {
		in.Spans = nw.Images.declare(n, prefix, own, nw.Config.HiddenSize)
		if nw.Ranks > 1 {
			n.Fail(errors.New("rows have images: training.context_parallel_size must be 1"))
		}
	}
	if s.Prefixes {
		in.Prefix = n.Batch(prefix+namePrefixes, kernel.T(kernel.I32, s.Sequences))
	}
	return n, trained, in
}

// namePrefixes is the name, after a plan's prefix, of the sequence that each sequence continues.
const namePrefixes = "prefixes"

// CheckPrefixes returns why the network cannot compute sequences that continue others, nil if it can. longest is the
// most tokens of a sequence with its prefix; gpu says that a GPU computes it.
func (nw Network) CheckPrefixes(longest int, gpu bool) error {
	n, _, in := nw.Declare("", Shape{Tokens: 1, Sequences: 1, MaxLen: longest, Prefixes: true})
	nw.Hidden(n, in)
	if err := n.Err(); errors.Is(err, nn.ErrPrefix) {
		return err
	}
	if gpu {
		return n.PrefixesGPU
	}
	return nil
}

// trainable is nn.Options.Trainable: what Trainable says, or the adapter's method.
func (nw Network) trainable() func(name string) bool {
	if nw.Trainable != nil || !nw.Adapted || nw.Method.Trains == nil {
		return nw.Trainable
	}
	trains := nw.Method.Trains(nw.Adapter)
	if embeddings := nw.Config.HeadName(); nw.Config.TieEmbeddings && nw.Adapter.Saved().TiesHead(embeddings) {
		return func(name string) bool { return name == embeddings || trains(name) }
	}
	return trains
}

// Trains returns what reports whether a weight of the base model is trained, by its name.
func (nw Network) Trains() func(name string) bool {
	if trains := nw.trainable(); trains != nil {
		return trains
	}
	return func(string) bool { return false }
}

// UntiedHead reports whether the head of a model that ties it to its embeddings has weights of its own once the adapter
// is merged, because the adapter changes one of the two, or both apart.
func (nw Network) UntiedHead() bool {
	if !nw.Adapted || !nw.Config.TieEmbeddings {
		return false
	}
	embeddings := nw.Config.HeadName()
	return nw.ownHead() || adapter.AdaptsTable(nw.Adapter, strings.TrimSuffix(embeddings, ".weight")) ||
		adapter.AdaptsTable(nw.Adapter, strings.TrimSuffix(adapter.HeadWeight, ".weight"))
}

// ownHead reports whether the network has a matrix of its own for the head of a model that ties it to its embeddings.
// LoRA beside one of the two leaves both frozen, as one matrix.
func (nw Network) ownHead() bool {
	return nw.Adapted && nw.Config.TieEmbeddings && nw.Adapter.Saved().UntiesHead(nw.Config.HeadName())
}

// TrainsBase reports whether weights of the base model are trained.
func (nw Network) TrainsBase() bool { return nw.trainable() != nil }

// Head returns the vocabulary head's weight [V,C]; a tied model's embeddings, unless ownHead. It fails the network
// if its adapter is for a task without one.
func (nw Network) Head(n *nn.Net) *graph.Value {
	if nw.BaseTask.Type != "" {
		n.Fail(fmt.Errorf("the base model has no vocabulary head: config.json says that it is a model for %s, which "+
			"gives scores or vectors of texts and no tokens", nw.BaseTask.Type))
	}
	if nw.Adapted {
		n.Fail(nw.Adapter.Task.CheckWrites())
	}
	if nw.ownHead() {
		return nn.HeadFrom(n, adapter.HeadWeight, nw.Config.HeadName(), nw.Config.VocabSize, nw.Config.HiddenSize)
	}
	return n.Head(nw.Config.HeadName(), nw.Config.VocabSize, nw.Config.HiddenSize)
}

// Task returns what the model is for: its adapter's task, or the base model's if it carries no adapter.
func (nw Network) Task() adapter.Task {
	if nw.Adapted {
		return nw.Adapter.Task
	}
	return nw.BaseTask
}

// Scores returns the weight [L,C] of the classification head of the adapter's task, and its bias [L]; nil = none.
// Without an adapter the weight is the base model's, whose bias ScoreBias reads.
func (nw Network) Scores(n *nn.Net) (weight, bias *graph.Value) {
	if !nw.Adapted {
		return n.Head(adapter.ScoreWeight, nw.BaseTask.Labels, nw.Config.HiddenSize), nil
	}
	if nw.BaseTask.HasScores() {
		n.Fail(errors.New("the base model has a classification head already, and the run trains one: name the model " +
			"that it was made from"))
	}
	return nw.Adapter.Task.Scores(n, nw.Config.HiddenSize)
}

// Hidden builds the layers and returns the final norm's output [M,C] of a micro-batch.
func (nw Network) Hidden(n *nn.Net, in nn.Batch) *graph.Value { return nw.Build(n, nw.Config, in) }

// Declared returns the network with its weights and trained tensors, but no plan.
func (nw Network) Declared() (*nn.Net, *adapter.Trained, error) {
	n, trained, in := nw.Declare("", Shape{Tokens: 1, Sequences: 1, MaxLen: 1})
	nw.Hidden(n, in)
	switch task := nw.Task(); {
	case task.Type == "":
		nw.Head(n)
	case task.HasScores():
		nw.Scores(n)
	}
	return n, trained, n.Err()
}

// LossRows returns the number of rows of logits that exist at the same time.
func (nw Network) LossRows(on graph.Machine) int {
	if nw.Layout.LossRows > 0 {
		return nw.Layout.LossRows
	}
	return on.Capabilities().LogitRows
}

// Program is a network with its plan.
type Program struct {
	Net     *nn.Net
	Trained *adapter.Trained
	Plan    *graph.Plan
}

// TargetNames returns the names by which PEFT saves the target modules of all-linear, in the order of a layer, and the
// target parameters that a model has.
func TargetNames(c model.Config) (linears, parameters []string, err error) {
	build, err := families.For(c)
	if err != nil {
		return nil, nil, err
	}
	one := func(o nn.Options) error {
		n := nn.New(o)
		value := func(name string) *nn.Value { return n.Batch(name, kernel.T(kernel.I32, 1)) }
		cu := n.Batch("cu_seqlens", kernel.T(kernel.I32, 2))
		build(n, c, nn.Batch{IDs: value("input_ids"), Positions: value("positions"), CuQ: cu, CuK: cu, MaxLen: 1})
		return n.Err()
	}
	err = one(nn.Options{Wrap: func(_ *nn.Net, path string, base nn.Linear) nn.Linear {
		if name := path[strings.LastIndexByte(path, '.')+1:]; (adapter.Targets{adapter.AllLinear}).Match(path) &&
			!slices.Contains(linears, name) {
			linears = append(linears, name)
		}
		return base
	}, WrapExperts: func(_ *nn.Net, paths []string, base nn.Experts) nn.Experts {
		if name := paths[0][strings.LastIndexByte(paths[0], '.')+1:]; !slices.Contains(linears, name) {
			linears = append(linears, name)
		}
		return base
	}})
	if err != nil {
		return nil, nil, err
	}
	err = one(nn.Options{ExpertParameters: true, WrapParameter: func(_ *nn.Net, p nn.Parameter,
		parts []nn.Experts) []nn.Experts {
		if name := adapter.ParameterEnd(p.Name()); !slices.Contains(parameters, name) {
			parameters = append(parameters, name)
		}
		return parts
	}})
	return linears, parameters, err
}
