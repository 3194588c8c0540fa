package adapter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// LoKr is the section lokr of a run's configuration.
type LoKr struct {
	Layers `yaml:",inline"`
	// R is the rank of the factors that are split into two. 0 stands for 8.
	R int `yaml:"r,omitempty" range:"[0,4096]" resume:"compared"`
	// Alpha scales the update: the factor is alpha/r. 0 stands for 8.
	Alpha float64 `yaml:"alpha,omitempty" range:"[0,inf)" resume:"compared"`
	// DecomposeBoth also splits the first factor into two of rank R, where R is below half of its longer side.
	DecomposeBoth bool `yaml:"decompose_both,omitempty" resume:"compared"`
	// DecomposeFactor is the size of the first factor: the divisor of the numbers of inputs and outputs nearest below
	// it. 0 stands for divisors nearest to the square roots, which make the fewest trained numbers.
	DecomposeFactor int `yaml:"decompose_factor,omitempty" range:"[0,65536]" resume:"compared"`
}

const (
	lokrSuffix1 = ".lokr_w1"
	lokrSuffix2 = ".lokr_w2"
	lokrDefault = 8 // rank and alpha where none are set, PEFT's
)

func lokrSection(s Sections) Config { return s.LoKr.layersConfig() }

func (s LoKr) layersConfig() Config {
	return s.config(s, Targets{AllLinear}, cmp.Or(s.R, lokrDefault), cmp.Or(s.Alpha, lokrDefault))
}

func (LoKr) section() string { return "lokr" }

func (LoKr) scale(alpha, rank float64) float64 { return alpha / rank }

func (LoKr) problems(Config) []error { return nil }

func (s LoKr) summary(c Config) string {
	return fmt.Sprintf("r %d, alpha %g, on %v", c.R, c.Alpha, []string(c.TargetModules))
}

func (s LoKr) standalone() []error { return s.targetProblems("lokr") }

// lokrShape is the sizes of a layer's factors: w1 [Out1,In1] and w2 [Out2,In2], with Out = Out1 Out2 and In = In1 In2.
type lokrShape struct {
	in1, in2, out1, out2 int
	split1, split2       bool // whether a factor is the product of two of rank r
}

// lokrShapeOf returns the sizes of a layer's factors, as PEFT chooses them.
func lokrShapeOf(s LoKr, r, in, out int) lokrShape {
	var z lokrShape
	z.in1, z.in2 = factorised(in, s.DecomposeFactor)
	z.out1, z.out2 = factorised(out, s.DecomposeFactor)
	z.split1 = s.DecomposeBoth && 2*r < max(z.out1, z.in1)
	z.split2 = 2*r < max(z.out2, z.in2)
	return z
}

// factorised returns two divisors of n whose product it is. The first is near, where near divides n; else the divisor
// at most near, and at most the square root, for which the sum of the two is least. near 0 is no limit.
func factorised(n, near int) (first, second int) {
	if near > 0 && n%near == 0 {
		return near, n / near
	}
	if near == 0 {
		near = n
	}
	first = 1
	for d := 2; d <= near && d*d <= n; d++ {
		if n%d == 0 {
			first = d
		}
	}
	return first, n / first
}

// lokr is a linear layer with the update s (w1 ⊗ w2), where ⊗ is the Kronecker product (Yeh et al., "Navigating
// Text-To-Image Customization: From LyCORIS Fine-Tuning to Model Evaluation", 2024).
type lokr struct {
	wrapped
	shape  lokrShape
	w1, w2 []*nn.Value // the factor, or the two whose product it is
	scale  float64
}

func wrapLoKr(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	in, out := base.Size()
	r := c.Rank(path)
	z := lokrShapeOf(settingsOf[LoKr](c), r, in, out)
	factor := func(name string, split bool, rows, cols int) []*nn.Value {
		if !split {
			return []*nn.Value{t.param(n, name, rows, cols)}
		}
		return []*nn.Value{t.param(n, name+"_a", rows, r), t.param(n, name+"_b", r, cols)}
	}
	return &lokr{wrapped: wrapped{n, base}, shape: z, scale: c.Scale(path),
		w1: factor(path+lokrSuffix1, z.split1, z.out1, z.in1), w2: factor(path+lokrSuffix2, z.split2, z.out2, z.in2)}
}

// Apply builds no matrix of the weight's size: w2 is applied to the In1 parts of each row, and w1 mixes the parts.
func (l *lokr) Apply(x *nn.Value) *nn.Value {
	z, rows := l.shape, x.Type.Shape[0]
	parts := l.n.Shared(x, fmt.Sprintf("in %d parts", z.in1), func() *nn.Value { // [In1*M,In2]
		return l.n.Apply(kernel.SplitHeads{Ranks: z.in1, Heads: z.in1}, x)
	})
	for _, w := range reversed(l.w2) {
		parts = l.n.Apply(kernel.MatMul{TransB: true}, parts, w) // [In1*M,Out2]
	}
	mixed := l.n.Apply(kernel.Reshape{From: z.in1 * rows, To: z.in1}, parts) // [In1,M*Out2]
	for i, w := range reversed(l.w1) {
		k := kernel.MatMul{}
		if i == 0 {
			k.Alpha = l.scale
		}
		mixed = l.n.Apply(k, w, mixed) // [Out1,M*Out2]
	}
	mixed = l.n.Apply(kernel.Reshape{From: z.out1, To: z.out1 * rows}, mixed)
	return l.n.Add(l.base.Apply(x), l.n.Apply(kernel.JoinHeads{Ranks: z.out1, Heads: z.out1}, mixed))
}

// reversed returns the values from the last to the first.
func reversed(values []*nn.Value) []*nn.Value {
	all := make([]*nn.Value, len(values))
	for i, v := range values {
		all[len(values)-1-i] = v
	}
	return all
}

// initLoKr starts with a first factor of zero, so the model computes at first what it did before. Other factors are
// uniform in ±1/sqrt(columns), as PEFT's are.
func initLoKr(_ Config, f Fresh) error {
	zero := f.Layer + lokrSuffix1
	for _, p := range f.Tensors {
		if p.Name == zero || p.Name == zero+"_a" {
			continue
		}
		uniform, bound := f.Uniform(p.Name), 1/math.Sqrt(float64(p.Shape[1]))
		for i := range p.Data {
			p.Data[i] = float32((2*uniform() - 1) * bound)
		}
	}
	return nil
}

// mergeLoKr adds s w1[o / Out2, i / In2] w2[o mod Out2, i mod In2] to W[o, i], in float64 and rounded once.
func mergeLoKr(c Config, layer string, own []Param) (Merger, error) {
	w1, in1, err := lokrFactor(layer, lokrSuffix1, own)
	if err != nil {
		return nil, err
	}
	w2, in2, err := lokrFactor(layer, lokrSuffix2, own)
	if err != nil {
		return nil, err
	}
	in, out2, scale := in1*in2, len(w2)/in2, c.Scale(layer)
	return func(w []float32, from int) {
		for ; len(w) >= in; w, from = w[in:], from+1 {
			left, right := w1[from/out2*in1:][:in1], w2[from%out2*in2:][:in2]
			for i, x := range w[:in] {
				w[i] = float32(float64(x) + scale*float64(left[i/in2]*right[i%in2]))
			}
		}
	}, nil
}

// lokrFactor returns a factor of a layer, row by row, and the number of its columns.
func lokrFactor(layer, suffix string, own []Param) (w []float64, cols int, err error) {
	if p, err := tensorOf(layer, suffix, own); err == nil {
		w = make([]float64, len(p.Data))
		for i, x := range p.Data {
			w[i] = float64(x)
		}
		return w, p.Shape[1], nil
	}
	a, err := tensorOf(layer, suffix+"_a", own)
	if err != nil {
		return nil, 0, err
	}
	b, err := tensorOf(layer, suffix+"_b", own)
	if err != nil {
		return nil, 0, err
	}
	rank, cols := b.Shape[0], b.Shape[1]
	w = make([]float64, a.Shape[0]*cols)
	for o := range a.Shape[0] {
		for r, x := range a.Data[o*rank:][:rank] {
			for i, y := range b.Data[r*cols:][:cols] {
				w[o*cols+i] += float64(float64(x) * float64(y))
			}
		}
	}
	return w, cols, nil
}

// lokrCodec reads and writes what PEFT calls a LoKrConfig.
var lokrCodec = Codec{Type: "LOKR", Parse: parseLoKr, Format: formatLoKr}

func parseLoKr(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	var own struct {
		Alpha         float64 `json:"alpha"`
		DecomposeBoth bool    `json:"decompose_both"`
		Factor        int     `json:"decompose_factor"`
		Init          any     `json:"init_weights"`
		ModuleDropout float64 `json:"module_dropout"`
		R             int     `json:"r"`
		RankDropout   float64 `json:"rank_dropout"`
		DropoutScale  any     `json:"rank_dropout_scale"`
		Effective     any     `json:"use_effective_conv2d"`
	}
	return parseMethod(raw, keys, &own, nil, func(l Layers, bad func(format string, args ...any)) Config {
		checkRank(own.R, bad)
		if own.RankDropout != 0 || own.ModuleDropout != 0 {
			bad("rank_dropout is %v and module_dropout %v: only 0 is supported", own.RankDropout, own.ModuleDropout)
		}
		return LoKr{Layers: l, R: own.R, Alpha: own.Alpha, DecomposeBoth: own.DecomposeBoth,
			DecomposeFactor: max(own.Factor, 0)}.layersConfig()
	})
}

func formatLoKr(c Config, base string, layers []string) ([]byte, error) {
	own := settingsOf[LoKr](c)
	factor := own.DecomposeFactor
	if factor == 0 {
		factor = -1
	}
	return formatMethod(c, base, layers, "LOKR", map[string]any{
		"alpha": c.Alpha, "alpha_pattern": map[string]any{}, "decompose_both": own.DecomposeBoth,
		"decompose_factor": factor, "init_weights": true, "layers_pattern": nil, "layers_to_transform": nil,
		"module_dropout": 0.0, "r": c.R, "rank_dropout": 0.0, "rank_dropout_scale": false,
		"rank_pattern": map[string]any{}, "use_effective_conv2d": false,
	})
}
