package nn

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// Experts is a linear layer for each of E experts: y = x W_eᵀ.
type Experts interface {
	// Apply multiplies rows sorted by expert: [S,In] -> [S,Out].
	Apply(x *Value, at Sorted) *Value
	Size() (experts, in, out int)
}

// Sorted maps token slots to rows sorted by expert, as kernel.SortByExpert computes it.
type Sorted struct {
	Rows   *Value // i32[M,K], the sorted row of each slot; -1 for padding
	Source *Value // i32[S], the slot of each sorted row; -1 = unused row
	Starts *Value // i32[E+1], the first row of each expert
}

// sortByExpert sorts the slots of the chosen experts [M,K]. real is Batch.Real; nil = no padding.
func (n *Net) sortByExpert(experts int, chosen, real *Value) Sorted {
	in := []*Value{chosen}
	if real != nil {
		in = append(in, real)
	}
	s := n.ApplyAll(kernel.SortByExpert{Experts: experts, Real: real != nil}, in...)
	return Sorted{s[0], s[1], s[2]}
}

// experts declares the linear layers 0.name ... E-1.name of the current scope, stored as the run's options say, one
// after the other.
func (n *Net) experts(name string, experts, in, out int) (x Experts, paths []string) {
	paths = make([]string, experts)
	for e := range paths {
		paths[e] = fmt.Sprintf("%s.%d.%s", n.Scope(), e, name)
	}
	return once(n, name, func() (x Experts) {
		n.In(name, func() {
			if scheme := n.expertScheme(paths); scheme == nil {
				x = newDenseExperts(n, paths, in, out)
			} else {
				x = newQuantisedExperts(n, paths, in, out, *scheme)
			}
		})
		return x
	}), paths
}

// expertScheme returns how the experts' matrices are quantised, all alike; nil = unquantised.
func (n *Net) expertScheme(paths []string) *quant.Config {
	if n.Stored == nil {
		return n.Scheme
	}
	first := n.Stored(paths[0] + ".weight")
	for _, path := range paths[1:] {
		s := n.Stored(path + ".weight")
		if (s == nil) != (first == nil) || s != nil && *s != *first {
			n.Fail(fmt.Errorf(
				"%s.weight and %s.weight are stored in different ways: experts of a layer must be stored alike",
				paths[0], path))
			break
		}
	}
	return first
}

// denseExperts holds experts whose matrices are not quantised.
type denseExperts struct {
	n                *Net
	experts, in, out int
	w                *Value // [E*Out,In]
}

func newDenseExperts(n *Net, paths []string, in, out int) Experts {
	name, member := n.Scope()+".weight", newStack(dense{}, len(paths))
	names := make([]string, len(paths))
	for e, path := range paths {
		own := path + ".weight"
		names[e] = own
		n.frozen(own, "in a stack of experts")
		n.declare(Weight{Name: own, Shape: []int{out, in}, Into: []string{name}, storage: member(e)})
	}
	return &denseExperts{n, len(paths), in, out, n.Frozen(name, matrix(n, len(paths)*out, in, names...))}
}

func (d *denseExperts) Size() (experts, in, out int) { return d.experts, d.in, d.out }

func (d *denseExperts) Apply(x *Value, at Sorted) *Value {
	return d.n.Apply(kernel.ExpertMatMul{Experts: d.experts, TransB: true}, x, d.w, at.Starts)
}

// quantisedExperts holds experts whose matrices stay packed, each as in Quantised.
type quantisedExperts struct {
	n                *Net
	experts, in, out int
	matMul           kernel.Kernel
	packed           []*Value // parts of the matrices; each value holds that part of all experts, one after the other
}

func newQuantisedExperts(n *Net, paths []string, in, out int, cfg quant.Config) Experts {
	kernels, ok := kernel.Packed[cfg.Type]
	if !ok || kernels.ExpertMatMul == nil {
		n.Fail(fmt.Errorf("quantization.type: no grouped GEMM takes experts stored as %q; use nf4, fp4 or int8, of a "+
			"folder that is quantised so the model that it was made from", cfg.Type))
		return &denseExperts{n: n, experts: len(paths), in: in, out: out}
	}
	parts, name := cfg.Parts(out, in), n.Scope()+".weight"
	member := newStack(packed{rows: out, cols: in, scheme: cfg, gemm: kernels.MatMul(out, in, cfg), parts: parts},
		len(paths))
	q := &quantisedExperts{n, len(paths), in, out, kernels.ExpertMatMul(len(paths), out, in, cfg), nil}
	var into []string
	for _, p := range parts {
		d := kernel.U8
		if p.Floats != nil {
			d = kernel.F32
		}
		q.packed = append(q.packed, n.Frozen(name+p.Suffix, kernel.T(d, len(paths)*p.Len)))
		into = append(into, name+p.Suffix)
	}
	for e, path := range paths {
		own := path + ".weight"
		n.frozen(own, "quantised")
		n.declare(Weight{Name: own, Shape: []int{out, in}, Into: into, storage: member(e)})
	}
	return q
}

func (q *quantisedExperts) Size() (experts, in, out int) { return q.experts, q.in, q.out }

func (q *quantisedExperts) Apply(x *Value, at Sorted) *Value {
	return q.n.Apply(q.matMul, append([]*Value{x, at.Starts}, q.packed...)...)
}

// uninfluential records that the linear layer at path has no gradient.
func (n *Net) uninfluential(path string) {
	if !slices.Contains(n.Uninfluential, path) {
		n.Uninfluential = append(n.Uninfluential, path)
	}
}

// MoE describes a mixture of experts in place of an MLP.
type MoE struct {
	Experts, PerToken, Inner int
	Normalise                bool   // divide a token's weights by their sum
	Gate, Up, Down           string // names of an expert's linear layers; without a Gate it is down(activation(up x))
	Latent                   int    // columns that experts read and write (latentMixture); 0 = as many as the rows have
	Shared                   int    // intermediate size of the shared expert; 0 = none
	Activation               string // activation of the experts' gates, a value of model.Config.HiddenAct
	Module                   string // name of the block in transformers 5; "" = mlp
	Router                   string // name of the router within the block; "" = gate
	// SharedName is the name of a shared expert without a gate; "" = the shared expert has a gate.
	SharedName string
	// LinearRouter reports that the router is a linear layer in transformers although it is one by scores.
	LinearRouter bool
	// PlainRouter reports that a router by a softmax is a parameter in transformers: it stays as it is stored.
	PlainRouter bool
	// Scores replaces the softmax of the router's logits; nil = the softmax.
	Scores *Scores
	// Parameters reports that transformers holds the experts' matrices as parameters, and the router not as a linear
	// layer, whatever is adapted: the router then stays as it is stored.
	Parameters bool
}

// Scores is a router by scores. Its TopK is MoE's PerToken and need not be set.
type Scores struct {
	kernel.RouteScores
	Correction string // the correction's name within the block, if RouteScores.Corrected
	Shape      []int  // its shape in the checkpoint, of as many numbers as there are experts
}

// MoE sums weight * down(activation(gate x) * up x) over a token's PerToken experts: [M,C] -> [M,C]. The router, a
// linear layer named gate, selects the experts and computes the weights; its logits [M,Experts] are appended to
// RouterLogits. A router by scores is a parameter in transformers, as with MoE.Parameters. A shared expert, an MLP, is
// added, with a sigmoid gate for each token if it has no SharedName. Experts skip padding, whose result is zero; real
// is Batch.Real, nil = no padding.
func (n *Net) MoE(name string, x, real *Value, m MoE) *Value {
	var y *Value
	// transformers 5's module, whatever the checkpoint's name is
	module := n.Scope() + "." + cmp.Or(m.Module, "mlp") + ".experts"
	n.In(name, func() {
		width := x.Width()
		parameters := m.Parameters || n.ExpertParameters
		var router Linear
		plain, gate := m.Parameters || m.PlainRouter || m.Scores != nil && !m.LinearRouter, cmp.Or(m.Router, "gate")
		if plain {
			n.In(gate, func() { router = newDense(n, width, m.Experts, nil) })
		} else {
			router = n.linear(gate, width, m.Experts, false, !parameters || m.LinearRouter)
		}
		if (plain || parameters) && m.Router == "" { // adapters know a router by the name that transformers has too
			router = n.router(gate, router)
		}
		logits := router.Apply(x)
		n.RouterLogits = append(n.RouterLogits, logits)
		alone := m.Experts == 1 && (m.Scores == nil || m.Scores.Weigh.Softmax)
		if alone || m.PerToken == 1 && m.Normalise { // the weight is always the same
			n.uninfluential(n.Scope() + "." + gate)
		}
		weights, experts := m.route(n, logits)
		y = m.latentMixture(n, x, weights, n.sortByExpert(m.Experts, experts, real), module, parameters)
		if m.Shared > 0 && m.SharedName != "" {
			shared := MLP{"gate_proj", "up_proj", "down_proj"}
			if m.Gate == "" {
				shared.Gate = ""
			}
			y = n.Add(y, shared.Apply(n, m.SharedName, x, m.Shared, false, m.Activation))
		} else if m.Shared > 0 {
			shared := n.GatedMLP("shared_expert", x, m.Shared, false, m.Activation)
			open := n.Linear("shared_expert_gate", width, 1, false).Apply(x) // [M,1]
			y = n.Add(y, n.Apply(kernel.SigmoidGate{}, shared, open))
		}
	})
	return y
}

// route returns the weights f[M,PerToken] and the numbers i32[M,PerToken] of the experts that a router of the current
// scope chooses by its logits [M,Experts].
func (m MoE) route(n *Net, logits *Value) (weights, experts *Value) {
	if m.Scores == nil {
		routed := n.ApplyAll(kernel.RouteExperts{TopK: m.PerToken, Normalise: m.Normalise}, logits)
		return routed[0], routed[1]
	}
	by, in := m.Scores.RouteScores, []*Value{logits}
	by.TopK = m.PerToken
	if by.Corrected {
		in = append(in, n.add(n.Scope()+"."+m.Scores.Correction, m.Scores.Shape, kernel.T(n.Float(), m.Experts)))
	}
	routed := n.ApplyAll(by, in...)
	return routed[0], routed[1]
}

// latentMixture is Net.mixture between two linear layers, fc1_latent_proj and fc2_latent_proj, if m.Latent is not 0.
func (m MoE) latentMixture(n *Net, x, weights *Value, at Sorted, module string, parameters bool) *Value {
	if m.Latent == 0 {
		return n.mixture(x, weights, at, m, module, parameters)
	}
	y := n.mixture(n.Linear("fc1_latent_proj", x.Width(), m.Latent, false).Apply(x), weights, at, m, module, parameters)
	return n.Linear("fc2_latent_proj", m.Latent, x.Width(), false).Apply(y)
}

// mixture sums weight * down(activation(gate x) * up x) over a token's experts, with the layers under experts in the
// current scope: [M,C] -> [M,C]. module is the module of transformers 5 that holds the experts' parameters.
func (n *Net) mixture(x, weights *Value, at Sorted, m MoE, module string, parameters bool) *Value {
	width := x.Width()
	each := n.Apply(kernel.GatherTokens{}, x, at.Rows, at.Source) // [M,C] -> [M*PerToken,C]
	first, names := gateUpParameter, []string{m.Gate, m.Up}
	if m.Gate == "" {
		first, names = upParameter, names[1:]
	}
	var parts []*Value
	for _, layer := range n.expertLayers("experts", expertParameter(module, first, first), parameters, m.Experts,
		width, m.Inner, names...) {
		parts = append(parts, layer.Apply(each, at))
	}
	inner := n.Apply(kernel.ScaleSlots{}, activate(n, m.Activation, parts...), weights, at.Rows, at.Source)
	down := n.expertLayers("experts", expertParameter(module, first, downParameter), parameters, m.Experts, m.Inner,
		width, m.Down)[0]
	return n.Apply(kernel.SumTokens{}, down.Apply(inner, at), at.Rows, at.Source) // [M*PerToken,C] -> [M,C]
}

// ScaledMoE is Gemma 4's mixture of experts for rows x: [M,C] -> [M,C]. The router, a linear layer router.proj, selects
// the experts from rows from [M,C] after a norm and scaling. An expert's weight is its own scale times its share among
// the selected experts. Padding is handled as in MoE.
func (n *Net) ScaledMoE(x, from, real *Value, m MoE, eps float64) *Value {
	width := x.Width()
	var weights, chosen *Value
	n.In("router", func() {
		scale := n.add(n.Scope()+".scale", []int{width}, kernel.T(n.Float(), width))
		h := n.Scale(n.Apply(kernel.RMSNorm{Eps: eps, Heads: 1}, from, scale), 1/math.Sqrt(float64(width)))
		routed := n.ApplyAll(kernel.RouteExperts{TopK: m.PerToken, Normalise: true}, n.Linear("proj", width, m.Experts,
			false).Apply(h))
		if m.PerToken == 1 { // the weight is always 1
			n.uninfluential(n.Scope() + ".proj")
		}
		each := n.add(n.Scope()+".per_expert_scale", []int{m.Experts}, kernel.T(n.Float(), m.Experts))
		weights, chosen = n.Apply(kernel.WeighExperts{}, routed[0], routed[1], each), routed[1]
	})
	return n.mixture(x, weights, n.sortByExpert(m.Experts, chosen, real), m, n.Scope()+".experts", true)
}

// FusedExperts describes a mixture of experts whose gate and up projections are one matrix.
type FusedExperts struct {
	Experts, PerToken, Inner int
	Layers                   bool // the checkpoint has a linear layer for each expert's matrix
}

// FusedMoE is gpt-oss's mixture of experts, [M,C] -> [M,C]: a router [Experts,C] with a bias, and experts with biases
// whose gate and up projections are one matrix [C,2*inner]. The matrices are unquantised, or in the checkpoint's MXFP4,
// or a linear layer for each expert. The run's adapter may wrap each projection. Padding is handled as in MoE.
func (n *Net) FusedMoE(name string, x, real *Value, m FusedExperts) *Value {
	var y *Value
	experts, perToken, inner := m.Experts, m.PerToken, m.Inner
	n.In(name, func() {
		width := x.Width()
		numbers := func(name string, shape ...int) *Value { // the last dimension is a row
			name = n.Scope() + "." + name
			t := kernel.T(n.Float(), shape...)
			if last := len(shape) - 1; last > 0 {
				t = matrix(n, kernel.T(n.Float(), shape[:last]...).Elems(), shape[last], name)
			}
			return n.add(name, shape, t)
		}
		biases := func(name string, width int) *Value {
			return n.add(n.Scope()+"."+name, []int{experts, width}, kernel.T(n.Float(), experts*width))
		}
		weight := numbers("router.weight", experts, width)
		logits := n.router("router", &Dense{n, width, experts, weight, numbers("router.bias", experts)}).Apply(x)
		n.RouterLogits = append(n.RouterLogits, logits)
		if experts == 1 || perToken == 1 { // the weight is always 1
			n.uninfluential(n.Scope() + ".router")
		}
		routed := n.ApplyAll(kernel.RouteExperts{TopK: perToken, Normalise: true}, logits)
		weights, at := routed[0], n.sortByExpert(experts, routed[1], real)
		multiply := func(x *Value, name string, in, out int) *Value {
			own := expertsFunc{experts, in, out, func(x *Value, at Sorted) *Value {
				name := "experts." + name
				var z *Value
				if m.Layers {
					return n.biasedExperts(name, experts, in, out, x, at)
				}
				if n.inMXFP4(name) {
					z = n.expertsMXFP4(x, at.Starts, name, experts, in, out)
				} else {
					z = n.Apply(kernel.ExpertMatMul{Experts: experts}, x, numbers(name, experts, in, out), at.Starts)
				}
				return n.Apply(kernel.ExpertBias{Experts: experts}, z, biases(name+"_bias", out), at.Starts)
			}}
			return n.parameter(expertParameter(n.Scope()+".experts", gateUpParameter, name), own)[0].Apply(x, at)
		}
		each := n.Apply(kernel.GatherTokens{}, x, at.Rows, at.Source) // [M,C] -> [M*perToken,C]
		gated := n.Apply(kernel.ClampedSwiGLU{}, multiply(each, gateUpParameter, width, 2*inner))
		down := multiply(gated, downParameter, inner, width)
		y = n.Apply(kernel.SumTokens{}, n.Apply(kernel.ScaleSlots{}, down, weights, at.Rows, at.Source),
			at.Rows, at.Source)
	})
	return y
}
