package adapter

import (
	"encoding/json"
	"fmt"

	"github.com/tierlora/tierlora/model/nn"
)

// IA3 is the section ia3 of a run's configuration.
type IA3 struct {
	Layers `yaml:",inline"`
	// FeedforwardModules names the adapted layers whose inputs are scaled in place of their outputs, as target_modules
	// does. Empty means down_proj.
	FeedforwardModules Targets `yaml:"feedforward_modules,omitempty" resume:"compared"`

	noScale `yaml:"-"`
}

// ia3Suffix ends the name of the factors of a layer.
const ia3Suffix = ".ia3_l"

var (
	ia3Targets     = Targets{"down_proj", "k_proj", "v_proj"}
	ia3Feedforward = Targets{"down_proj"}
)

func ia3Section(s Sections) Config { return s.IA3.layersConfig() }

func (s IA3) layersConfig() Config { return s.config(s, ia3Targets, 1, 1) }

func (IA3) section() string { return "ia3" }

func (s IA3) summary(c Config) string { return fmt.Sprintf("factors of %v", []string(c.TargetModules)) }

// standalone returns the section's problems.
func (s IA3) standalone() []error {
	problems := s.targetProblems("ia3")
	if re, ok := s.FeedforwardModules.expression(); ok {
		if _, err := whole(re); err != nil {
			problems = append(problems, fmt.Errorf("ia3.feedforward_modules: %q is no regular expression: %v", re, err))
		}
	}
	return problems
}

// feedforward reports whether the inputs of a layer are scaled.
func (s IA3) feedforward(path string) bool {
	if len(s.FeedforwardModules) == 0 {
		return ia3Feedforward.Match(path)
	}
	return s.FeedforwardModules.Match(path)
}

// ia3 is a linear layer whose outputs, bias included, or inputs have trained factors: y = l base(x), or y = base(l x)
// (Liu et al., "Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context Learning", 2022).
type ia3 struct {
	wrapped
	l      *nn.Value // [In] or [Out]
	inputs bool
}

func wrapIA3(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	in, out := base.Size()
	if settingsOf[IA3](c).feedforward(path) {
		return &ia3{wrapped{n, base}, t.shaped(n, path+ia3Suffix, []int{1, in}, in), true}
	}
	return &ia3{wrapped{n, base}, t.shaped(n, path+ia3Suffix, []int{out, 1}, out), false}
}

func (l *ia3) Apply(x *nn.Value) *nn.Value {
	if l.inputs {
		return l.base.Apply(scaleColumns(l.n, x, l.l))
	}
	return scaleColumns(l.n, l.base.Apply(x), l.l)
}

// initIA3 starts with factors of one: the model computes at first what it did before.
func initIA3(_ Config, f Fresh) error {
	l, err := tensorOf(f.Layer, ia3Suffix, f.Tensors)
	if err != nil {
		return err
	}
	for i := range l.Data {
		l.Data[i] = 1
	}
	return nil
}

// mergeIA3 scales the columns of the weight by the factors of inputs, its rows by those of outputs.
func mergeIA3(c Config, layer string, own []Param) (Merger, error) {
	l, err := tensorOf(layer, ia3Suffix, own)
	if err != nil {
		return nil, err
	}
	if settingsOf[IA3](c).feedforward(layer) {
		in := len(l.Data)
		return func(w []float32, _ int) {
			for ; len(w) >= in; w = w[in:] {
				for i, x := range l.Data {
					w[i] *= x
				}
			}
		}, nil
	}
	in, err := c.width(layer)
	return func(w []float32, from int) {
		for ; len(w) >= in; w, from = w[in:], from+1 {
			for i := range w[:in] {
				w[i] *= l.Data[from]
			}
		}
	}, err
}

// mergeIA3Bias scales the bias of a layer whose outputs have factors.
func mergeIA3Bias(c Config, layer string, own []Param) (Merger, error) {
	if settingsOf[IA3](c).feedforward(layer) {
		return nil, nil
	}
	l, err := tensorOf(layer, ia3Suffix, own)
	return func(bias []float32, from int) {
		for i := range bias {
			bias[i] *= l.Data[from*len(l.Data)+i]
		}
	}, err
}

// ia3Codec reads and writes what PEFT calls an IA3Config.
var ia3Codec = Codec{Type: "IA3", Parse: parseIA3, Format: formatIA3}

func parseIA3(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	var own struct {
		Feedforward any `json:"feedforward_modules"`
		Init        any `json:"init_ia3_weights"`
	}
	return parseMethod(raw, keys, &own, nil, func(l Layers, bad func(format string, args ...any)) Config {
		return IA3{Layers: l, FeedforwardModules: readTargets(own.Feedforward, bad)}.layersConfig()
	})
}

// formatIA3 names the layers whose inputs are scaled by their paths' ends.
func formatIA3(c Config, base string, layers []string) ([]byte, error) {
	forward := []string{}
	for _, l := range layers {
		if settingsOf[IA3](c).feedforward(l) {
			forward = append(forward, l)
		}
	}
	own := c
	own.TargetModules = settingsOf[IA3](c).FeedforwardModules
	if len(own.TargetModules) == 0 {
		own.TargetModules = ia3Feedforward
	}
	return formatMethod(c, base, layers, "IA3", map[string]any{
		"fan_in_fan_out": false, "feedforward_modules": own.fileTargets(forward), "init_ia3_weights": true,
	})
}
