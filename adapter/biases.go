package adapter

import (
	"fmt"
	"slices"
	"strings"
)

// The values of lora.bias.
const (
	biasNone    = "none"
	biasAll     = "all"
	biasAdapted = "lora_only"
)

// Choices returns the values of keys of the section that are names.
func (LoRASettings) Choices() map[string][]string {
	return map[string][]string{"bias": {"", biasNone, biasAll, biasAdapted}}
}

// Names of biases in PEFT's files. The bias of an adapted layer is its base layer's; that of LoRA's B is trained beside
// it.
const (
	suffixBiasB     = ".lora_B.bias"
	baseLayerSuffix = ".base_layer"
)

// trainsBias reports whether lora.bias trains the bias of this name.
func trainsBias(c Config, name string) bool {
	path, ok := strings.CutSuffix(name, biasSuffix)
	switch c.lora().Bias {
	case biasAll:
		return ok
	case biasAdapted:
		return ok && c.Adapts(path)
	}
	return false
}

// peftTensor returns the name of a trained tensor in PEFT's files.
func peftTensor(c Config, name string) string {
	if path := strings.TrimSuffix(name, biasSuffix); path != name && trainsBias(c, name) && c.Adapts(path) {
		name = path + baseLayerSuffix + biasSuffix
	}
	return c.Task.peftTensor(name)
}

// checkBiases returns what does not go with lora.lora_bias.
func (s LoRASettings) checkBiases(c Config) (problems []error) {
	if !s.LoRABias {
		return nil
	}
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("lora.lora_bias: "+format, args...))
	}
	if start, _, err := startOf(s.InitLoRAWeights); err == nil && start.part {
		bad("it does not go with lora.init_lora_weights: %s, whose adapter is saved as the difference of two: leave one of "+
			"the two out", s.InitLoRAWeights)
	}
	if len(c.TargetParameters) > 0 {
		bad("it does not go with lora.target_parameters, as in PEFT: parameters have no bias; leave one of the two out")
	}
	return problems
}

// checkBiases refuses lora.bias where the network has no such bias.
func checkBiases(t *Trained, c Config) error {
	if c.lora().Bias == "" || c.lora().Bias == biasNone ||
		slices.ContainsFunc(t.base, func(name string) bool { return strings.HasSuffix(name, biasSuffix) }) {
		return nil
	}
	which := "the model has no biases"
	if c.lora().Bias == biasAdapted {
		which = fmt.Sprintf("the layers that lora.target_modules %v adapt have no biases", []string(c.TargetModules))
	}
	return fmt.Errorf("lora.bias: %s trains biases, and %s: write none", c.lora().Bias, which)
}

// mergeLoRABias adds s times the bias of B to the bias of a layer; nil = the layer's B has none.
func mergeLoRABias(c Config, layer string, own []Param) (Merger, error) {
	i := slices.IndexFunc(own, func(p Param) bool { return p.Name == layer+suffixBiasB })
	if i < 0 {
		return nil, nil
	}
	scale := c.Scale(layer)
	return func(bias []float32, _ int) {
		for j := range bias {
			bias[j] = float32(float64(bias[j]) + float64(scale*float64(own[i].Data[j])))
		}
	}, nil
}

// MergesBias returns an error for a layer without a bias whose adapter has one that cannot be left out.
func MergesBias(c Config, layer string) error {
	if !c.lora().LoRABias {
		return nil
	}
	return fmt.Errorf("the adapter has lora_bias, and %s has no bias of its own to which the update's bias could be added, "+
		"which PEFT refuses too: use the adapter beside the model", layer)
}
