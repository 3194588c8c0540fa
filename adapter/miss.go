package adapter

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// MiSS is the section miss of a run's configuration.
type MiSS struct {
	Layers `yaml:",inline"`
	// R is the number of rows of the trained block: inputs k, k + r, k + 2r and so on share a row. 0 stands for 64.
	R int `yaml:"r,omitempty" range:"[0,4096]" resume:"compared"`
	// Dropout is the probability with which inputs of the update are zeroed during training.
	Dropout float64 `yaml:"dropout,omitempty" range:"[0,1)" resume:"steers"`

	noScale `yaml:"-"`
}

// missSuffix ends the name of a layer's block.
const missSuffix = ".miss_block"

// missRank is the rank where none is set, PEFT's.
const missRank = 64

func missSection(s Sections) Config { return s.MiSS.layersConfig() }

func (s MiSS) layersConfig() Config {
	c := s.config(s, Targets{AllLinear}, cmp.Or(s.R, missRank), 1)
	c.Dropout = s.Dropout
	return c
}

func (MiSS) section() string { return "miss" }

func (s MiSS) summary(c Config) string {
	return fmt.Sprintf("r %d, on %v", c.R, []string(c.TargetModules))
}

func (s MiSS) standalone() []error { return s.targetProblems("miss") }

// wrapMiSS adds M [R,Out] to the rows of inputs: y = base(x) + fold(x) M, where fold sums the inputs k, k + r, k + 2r and
// so on (Kang and Yin, "Balancing LoRA Performance and Efficiency with Simple Shard Sharing", 2024). The fold is a GEMM
// with a constant matrix of zeros and ones, which costs as much as A of LoRA.
func wrapMiSS(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	in, out := base.Size()
	r := c.Rank(path)
	if r > in {
		n.Fail(fmt.Errorf("%s: %d is more than the %d inputs of %s: lower it", c.Key("r"), r, in, path))
		return base
	}
	fold := nn.Constant(n, fmt.Sprintf("fold of %d inputs into %d", in, r), func(dst []float64) {
		for k := range in {
			dst[k%r*in+k] = 1
		}
	}, r, in)
	return &miss{wrapped: wrapped{n, base}, fold: fold, block: t.param(n, path+missSuffix, r, out), dropout: newDropout(n, c)}
}

// miss is a linear layer with MiSS's update.
type miss struct {
	wrapped
	fold, block *nn.Value // [R,In], [R,Out]
	dropout     dropout
}

func (l *miss) Apply(x *nn.Value) *nn.Value {
	dropped := l.dropout.of(l.n, x)
	folded := l.n.Shared(dropped, "times "+l.fold.Name, func() *nn.Value { // [M,In] -> [M,R]
		return l.n.Apply(kernel.MatMul{TransB: true}, dropped, l.fold)
	})
	return l.n.Add(l.base.Apply(x), l.n.Apply(kernel.MatMul{}, folded, l.block))
}

// initMiSS leaves the block zero: the model computes at first what it did before.
func initMiSS(_ Config, f Fresh) error {
	_, err := tensorOf(f.Layer, missSuffix, f.Tensors)
	return err
}

// mergeMiSS adds M[k mod r, o] to W[o, k].
func mergeMiSS(c Config, layer string, own []Param) (Merger, error) {
	m, err := tensorOf(layer, missSuffix, own)
	if err != nil {
		return nil, err
	}
	in, err := c.width(layer)
	r, out := m.Shape[0], m.Shape[1]
	return func(w []float32, from int) {
		for ; len(w) >= in; w, from = w[in:], from+1 {
			for k, x := range w[:in] {
				w[k] = x + m.Data[k%r*out+from]
			}
		}
	}, err
}

// missCodec reads and writes what PEFT calls a MissConfig.
var missCodec = Codec{Type: "MISS", Parse: parseMiSS, Format: formatMiSS}

func parseMiSS(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	var own struct {
		Dropout float64 `json:"miss_dropout"`
		R       int     `json:"r"`
		Init    any     `json:"init_weights"`
		MiniR   int     `json:"mini_r"`
	}
	return parseMethod(raw, keys, &own, nil, func(l Layers, bad func(format string, args ...any)) Config {
		if v := own.Init; v != nil && v != true && v != false {
			bad("init_weights is %v: only true is supported; bat and mini are other updates", v)
		}
		checkRank(own.R, bad)
		return MiSS{Layers: l, R: own.R, Dropout: own.Dropout}.layersConfig()
	})
}

func formatMiSS(c Config, base string, layers []string) ([]byte, error) {
	return formatMethod(c, base, layers, "MISS", map[string]any{
		"bias": "none", "init_weights": true, "layers_pattern": nil, "layers_to_transform": nil, "mini_r": 1,
		"miss_dropout": c.Dropout, "r": c.R,
	})
}
