package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// magnitudeSuffix ends the name of DoRA's magnitudes.
const magnitudeSuffix = ".lora_magnitude_vector"

// dora is a linear layer whose weight has a trained norm for each row and a low-rank update of the rows' directions:
// y = m / |W + s B A| (W + s B A) x + bias (Liu et al. 2024). The norm is held constant in the backward pass.
type dora struct {
	lora
	base    nn.Plain
	m       *nn.Value // [Out]
	squares *nn.Value // [Out], of the rows of W
}

func wrapDoRA(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	plain, ok := base.(nn.Plain)
	if !ok {
		n.Fail(fmt.Errorf("%s: DoRA does not train this kind of layer", path))
		return base
	}
	_, out := base.Size()
	l := &dora{lora: *newLoRA(t, c, n, path, base), base: plain, squares: nn.RowSquares(n, path+weightSuffix)}
	l.m = t.param(n, path+magnitudeSuffix, out)
	return l
}

// Apply builds no matrix of the weight's size: the norms of its rows come from products of low rank, once for all that
// the layer is applied to.
func (l *dora) Apply(x *nn.Value) *nn.Value {
	inv := l.n.Shared(l.m, "dora", func() *nn.Value {
		gram := l.n.Apply(kernel.MatMul{TransB: true, FP32Out: true}, l.a, l.a)
		return l.n.Apply(kernel.DoRANorm{Scale: l.scale}, l.squares, l.base.Product(l.a, true), gram, l.b)
	})
	u := l.add(l.base.Product(x, false), x)
	return l.base.Biased(l.n.Apply(kernel.DoRAScale{}, u, l.m, inv))
}

// doraParts are a layer's A, B and magnitudes.
func doraParts(layer string, own []Param) (a, b, m Param, err error) {
	i := slices.IndexFunc(own, func(p Param) bool { return p.Name == layer+magnitudeSuffix })
	if i < 0 {
		return a, b, m, fmt.Errorf("layer %s lacks %s", layer, magnitudeSuffix[1:])
	}
	a, b, err = pairOf(layer, slices.Delete(slices.Clone(own), i, i+1))
	return a, b, own[i], err
}

// initDoRA starts as LoRA does, with the norms of the rows of the weight that the network computes with: the model
// computes at first what it did before.
func initDoRA(c Config, f Fresh) error {
	a, b, m, err := doraParts(f.Layer, f.Tensors)
	if err != nil {
		return err
	}
	w, err := f.ComputedWeight()
	if err != nil {
		return err
	}
	for o := range m.Data {
		sum := 0.0
		for _, x := range w.data[o*w.cols:][:w.cols] {
			sum += float64(x) * float64(x)
		}
		m.Data[o] = float32(math.Sqrt(sum))
	}
	s, n, err := startOf(c.lora().InitLoRAWeights)
	if err != nil {
		return err
	}
	return s.fill(c, f, a, b, n)
}

// mergeDoRA is the layer's weight: each row of W + s B A, scaled to its magnitude. A row of zeros stays zero.
func mergeDoRA(c Config, layer string, own []Param) (Merger, error) {
	a, b, m, err := doraParts(layer, own)
	if err != nil {
		return nil, err
	}
	rank, in, scale := a.Shape[0], a.Shape[1], c.Scale(layer)
	return func(w []float32, from int) {
		row := make([]float64, in)
		for ; len(w) >= in; w, from = w[in:], from+1 {
			for i, x := range w[:in] {
				row[i] = float64(x)
			}
			for r, x := range b.Data[from*rank:][:rank] {
				s := scale * float64(x)
				for i, x := range a.Data[r*in:][:in] {
					row[i] += float64(s * float64(x))
				}
			}
			sum := 0.0
			for _, x := range row {
				sum += x * x
			}
			by := 0.0
			if sum > 0 {
				by = float64(m.Data[from]) / math.Sqrt(sum)
			}
			for i, x := range row {
				w[i] = float32(by * x)
			}
		}
	}, nil
}

// doraRate is LoRA+'s rate: B and the magnitudes learn faster than A, as in PEFT.
func doraRate(c Config, name string) float64 {
	if ratio := c.lora().LoRAPlusLRRatio; ratio > 0 && strings.HasSuffix(name, magnitudeSuffix) {
		return ratio
	}
	return loraPlusRate(c, name)
}

// checkDoRA returns what does not go with DoRA.
func checkDoRA(c Config) (problems []error) {
	if s, _, err := startOf(c.lora().InitLoRAWeights); err == nil && s.from == startWeight {
		problems = append(problems, fmt.Errorf("%s: %s does not go with DoRA, whose magnitudes start as the norms of the "+
			"whole weight; leave the key out, or write adapter: lora", c.Key("init_lora_weights"),
			c.lora().InitLoRAWeights))
	}
	if c.lora().LoRABias {
		problems = append(problems, fmt.Errorf("%s: it does not go with DoRA, whose magnitudes scale the weight "+
			"alone; leave the key out, or write adapter: lora", c.Key("lora_bias")))
	}
	if len(c.TargetParameters) > 0 {
		problems = append(problems, fmt.Errorf("%s: DoRA trains linear layers alone; leave the key out, or write "+
			"adapter: lora", c.Key("target_parameters")))
	}
	return problems
}

// doraCodec is LoRA's codec for the files whose use_dora is true.
var doraCodec = Codec{Type: loraCodec.Type, Flag: "use_dora", Parse: parseDoRA, Format: formatDoRA}

func parseDoRA(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	c, base, err := parseLoRA(raw, keys)
	if err == nil {
		err = errors.Join(checkDoRA(c)...)
	}
	return c, base, err
}

func formatDoRA(c Config, base string, layers []string) ([]byte, error) {
	return formatLoRAOf(c, base, layers, true)
}
