// Package adapter is what is trained beside frozen weights: LoRA and its kin, their configuration, and
// PEFT's file format in and out.
package adapter

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
)

// AllLinear as the only target module means every linear layer but the vocabulary head.
const AllLinear = "all-linear"

// Shared is the vocabulary that the sections of adapter methods have in common, in PEFT's words. A section embeds it, and
// its fields are keys of that section.
type Shared struct {
	// R is the rank of the update. A higher rank can learn more and takes more memory and time.
	R int `yaml:"r" default:"8" range:"[1,4096]" resume:"compared"`
	// Alpha scales the update: the factor is alpha/r, or alpha/sqrt(r) with use_rslora.
	Alpha float64 `yaml:"alpha" default:"16" range:"(0,inf)" resume:"compared"`
	// Dropout is the probability with which inputs of the low-rank branch are zeroed during training. Layers that read
	// the same input, such as q, k and v, share one mask; PEFT draws one for each. Up to 0.5 the losses do not differ
	// measurably; at 0.9 they were 0.04 higher here.
	Dropout float64 `yaml:"dropout" range:"[0,1)" resume:"steers"`
	// TargetModules selects the linear layers to adapt: a list of names (the ends of their paths), one regular
	// expression in Python's syntax that must match a whole path, or all-linear, which means all but the vocabulary
	// head.
	TargetModules Targets `yaml:"target_modules" default:"q_proj v_proj" resume:"compared"`
	// TargetParameters lists parameters to adapt besides TargetModules, which may be []. As in PEFT, these are names
	// or their ends, such as experts.down_proj, or gate.weight for the routers. It needs Dropout 0. TargetModules then
	// no longer matches experts and routers, and gate and up of an expert share one A, as in transformers 5.
	TargetParameters []string `yaml:"target_parameters,omitempty" resume:"compared"`
	// RankPattern maps regular expressions for the end of a layer's path to ranks, for layers whose rank is not R. If
	// several match, the first counts, in the order of the adapter's file if there is one, otherwise by name.
	RankPattern map[string]int `yaml:"rank_pattern,omitempty" range:"[1,4096]" resume:"compared"`
	// AlphaPattern maps regular expressions for the end of a layer's path to alphas, as RankPattern does for ranks.
	AlphaPattern map[string]float64 `yaml:"alpha_pattern,omitempty" range:"(0,inf)" resume:"compared"`
	// InitFrom is the folder of an adapter in PEFT's format to start from, instead of fresh weights.
	InitFrom string `yaml:"init_from,omitempty" form:"path" resume:"free"`
}

// Config is the configuration of an adapter: the shared keys of its method's section, and the method's own.
type Config struct {
	Shared
	// Own is what the section has beside the shared keys. nil stands for the section lora with none of its own keys set.
	Own Settings

	// Task is what the adapter is for; the zero value predicts the next token.
	Task Task

	rankOrder, alphaOrder []string // the patterns' keys as an adapter's file has them; nil = sorted
	selection             selection
	expertLayers          bool         // experts are linear layers whatever TargetParameters name: see tensorNames
	form                  *peftForm    // what adapter_config.json has in place of the targets and patterns above; nil = these
	projections           *projections // VeRA's random matrices as a file has them; nil = those of its key
	sizes                 *layerSizes  // of the adapted layers of a network; nil = not known
	named                 []string     // the names that an expression of TargetModules stands for; nil = they are not known
}

// Settings are the keys of a section that its methods do not share with others.
type Settings interface {
	// section is the section's name.
	section() string
	// scale is the factor of an update with an alpha and a rank.
	scale(alpha, rank float64) float64
	// problems returns an error for each key of c that is wrong, beginning with its name.
	problems(c Config) []error
}

// own returns the settings of the section.
func (c Config) own() Settings {
	if c.Own == nil {
		return LoRASettings{}
	}
	return c.Own
}

// Summary describes in a line what is trained.
func (c Config) Summary() string {
	if s, ok := c.Own.(summariser); ok {
		return s.summary(c)
	}
	return fmt.Sprintf("r %d, alpha %g, on %v", c.R, c.Alpha, slices.Concat(c.TargetModules, c.TargetParameters))
}

// Key returns the full name of a key of the section, such as lora.r.
func (c Config) Key(name string) string { return c.own().section() + "." + name }

// ScaleKeys names the keys that decide the scale of an update.
func (c Config) ScaleKeys() string {
	if _, ok := c.own().(LoRASettings); ok {
		return "lora.r, lora.alpha and lora.use_rslora"
	}
	return c.Key("r") + " and " + c.Key("alpha")
}

// Compared returns what decides an adapter's numbers beside what a checkpoint keeps, by key and as text: two runs of one
// subject have the same. Lists are sorted, for their order means nothing.
func (c Config) Compared() map[string]string {
	all := map[string]string{c.Key("init_from"): c.InitFrom}
	see := func(path string, k keys.Key, value any) {
		if k.Resume == keys.Compared {
			all[c.Key(path)] = comparedText(value)
		}
	}
	if _, standsAlone := c.own().(alone); !standsAlone {
		keys.Each(c.Shared, see)
	}
	keys.Each(c.own(), see)
	return all
}

// comparedText writes a value of the configuration as text that does not depend on the order of a list or map.
func comparedText(value any) string {
	switch v := value.(type) {
	case Targets:
		return strings.Join(slices.Sorted(slices.Values(v)), ",")
	case []string:
		return strings.Join(slices.Sorted(slices.Values(v)), ",")
	case map[string]int:
		return patternText(v)
	case map[string]float64:
		return patternText(v)
	}
	return fmt.Sprint(value)
}

func patternText[V any](patterns map[string]V) string {
	var parts []string
	for _, k := range sortedKeys(patterns) {
		parts = append(parts, fmt.Sprintf("%s: %v", k, patterns[k]))
	}
	return strings.Join(parts, ", ")
}

// Targets is a list of module names, or one element that is a regular expression or all-linear.
type Targets []string

// Default is the section lora with nothing set: PEFT's rank and alpha, on the projections that LoRA's paper adapts.
func Default() (c Config) {
	keys.SetDefaults(&c.Shared)
	return c
}

const maxRank = 4096 // the range of r

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	if s, ok := c.own().(alone); ok {
		return append(keys.Check(c.Key(""), c.own()), s.standalone()...)
	}
	problems := append(keys.Check(c.Key(""), c.Shared), keys.Check(c.Key(""), c.own())...)
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(c.Key("")+format, args...)) }
	if len(c.TargetModules) == 0 && len(c.TargetParameters) == 0 {
		bad("target_modules: name at least one module, a regular expression, or %s", AllLinear)
	}
	c.TargetModules.problems(bad)
	for i, p := range c.TargetParameters {
		if p == "" || slices.Contains(c.TargetParameters[:i], p) {
			bad("target_parameters: %q is empty or stands there twice", p)
		}
	}
	if len(c.TargetParameters) > 0 && c.Dropout != 0 {
		bad("dropout: %v does not go with target_parameters: the update is part of a parameter, whose input can't be dropped apart; write 0", c.Dropout)
	}
	problems = append(problems, c.own().problems(c)...)
	for _, k := range sortedKeys(c.RankPattern) {
		if _, err := ending(k); err != nil {
			bad("rank_pattern: %q is no regular expression: %v", k, err)
		}
	}
	for _, k := range sortedKeys(c.AlphaPattern) {
		if _, err := ending(k); err != nil {
			bad("alpha_pattern: %q is no regular expression: %v", k, err)
		}
	}
	return problems
}

// expression is the regular expression that the targets are, if they are one: a single element with a
// character that no module name has.
func (t Targets) expression() (string, bool) {
	if len(t) == 1 && strings.ContainsAny(t[0], `\()[]{}|*+?^$`) {
		return t[0], true
	}
	return "", false
}

// Match tells whether a linear layer, named by its path such as "model.layers.0.self_attn.q_proj", is a
// target. PEFT's rule: a regular expression must match the whole path; a name must be the path or its end.
func (t Targets) Match(path string) bool {
	if len(t) == 1 && t[0] == AllLinear {
		return path != "lm_head"
	}
	if re, ok := t.expression(); ok {
		p, err := whole(re)
		return err == nil && p.match(path)
	}
	for _, name := range t {
		if path == name || strings.HasSuffix(path, "."+name) {
			return true
		}
	}
	return false
}

// Rank and Scale of a layer's update, patterns applied.
func (c Config) Rank(path string) int {
	path = c.patternName(path)
	return firstMatch(c.RankPattern, c.rankOrder, path, c.R)
}

// Scale is the factor of a layer's update: alpha/r, or as the method's settings have it, patterns applied.
func (c Config) Scale(path string) float64 {
	return c.own().scale(c.alpha(path), float64(c.Rank(path)))
}

// alpha is the alpha of a layer or parameter, patterns applied.
func (c Config) alpha(path string) float64 {
	return firstMatch(c.AlphaPattern, c.alphaOrder, c.patternName(path), c.Alpha)
}

// patternName is the name by which PEFT looks a linear layer up in patterns: its path, or its weight's name where the layer is adapted as
// a parameter.
func (c Config) patternName(path string) string {
	if c.parameterMatches(path + weightSuffix) {
		return nameIn5(path) + weightSuffix
	}
	return path
}

// firstMatch is the value of the first pattern that matches a layer's path, or otherwise.
func firstMatch[V any](patterns map[string]V, order []string, path string, otherwise V) V {
	if order == nil {
		order = sortedKeys(patterns)
	}
	for _, k := range order {
		if patternMatches(k, path) {
			return patterns[k]
		}
	}
	return otherwise
}

// patternMatches is PEFT's rule for rank_pattern and alpha_pattern: the key matches the end of the path,
// after a dot or from its start.
func patternMatches(key, path string) bool {
	p, err := ending(key)
	return err == nil && p.match(path)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
