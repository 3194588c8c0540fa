package adapter

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// loraStarts lists the ways to give LoRA's tensors their first numbers, by lora.init_lora_weights. A name that ends in
// N stands for that name with a number in the place of N.
var loraStarts = map[string]loraStart{
	"":              {fill: startAtRandom},
	"eva":           {fill: startEVA, from: startInputs},
	"gaussian":      {fill: startGaussian},
	"loftq":         {fill: startLoftQ, from: startWeight},
	"loftq_iter_N":  {fill: startIteratedLoftQ, from: startWeight, part: true},
	"olora":         {fill: startOLoRA, from: startWeight, part: true},
	"pissa":         {fill: startPiSSA, from: startWeight, part: true},
	"pissa_niter_N": {fill: startFastPiSSA, from: startWeight, part: true},
}

// loraStart is a way to give LoRA's tensors their first numbers.
type loraStart struct {
	// fill makes A [R,In] and B [Out,R] of a layer, which are zero. n is the number in the name.
	fill func(c Config, f Fresh, a, b Param, n int) error
	// from is what of a linear layer the numbers are computed from: startWeight or startInputs; "" = neither.
	from string
	// part says that the base weight loses s B A of the first numbers, or of what fill gives to Fresh.Take.
	part bool
}

// Values of loraStart.from, as messages name them.
const (
	startWeight = "weight"
	startInputs = "inputs"
)

// LoRAStarts returns the values of lora.init_lora_weights, sorted, N standing for a number.
func LoRAStarts() []string {
	return slices.DeleteFunc(sortedKeys(loraStarts), func(name string) bool { return name == "" })
}

// mostIterations bounds the number of pissa_niter_N: with more the subspace does not change any more.
const mostIterations = 999

// startOf finds the start of a name and the number in it.
func startOf(name string) (s loraStart, n int, err error) {
	if s, ok := loraStarts[name]; ok && !strings.HasSuffix(name, "N") {
		return s, 0, nil
	}
	stem := strings.TrimRight(name, "0123456789")
	s, ok := loraStarts[stem+"N"]
	n, err = strconv.Atoi(name[len(stem):])
	if !ok || err != nil || n > mostIterations {
		return s, 0, fmt.Errorf("lora.init_lora_weights: %q is not one of %s, where N is a number up to %d", name, strings.Join(LoRAStarts(), ", "), mostIterations)
	}
	return s, n, nil
}

// checkLoRAStart returns what does not go together with a start.
func checkLoRAStart(c Config) []error {
	name := c.lora().InitLoRAWeights
	s, _, err := startOf(name)
	if err != nil {
		return []error{err}
	}
	if s.from == "" {
		return nil
	}
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("lora.init_lora_weights: %s "+format, append([]any{name}, args...)...))
	}
	if c.InitFrom != "" {
		bad("does not go with lora.init_from: an adapter to start from has numbers of its own; leave one of the two out")
	}
	if len(c.TargetParameters) > 0 {
		bad("does not go with lora.target_parameters: it starts from the %s of a linear layer; leave one of the two out",
			s.from)
	}
	ranks := []int{c.R}
	for _, k := range sortedKeys(c.RankPattern) {
		ranks = append(ranks, c.RankPattern[k])
	}
	if r := slices.Max(ranks); s.part && r > maxRank/2 {
		bad("goes up to rank %d, not %d: the adapter is saved with twice the rank", maxRank/2, r)
	}
	return problems
}

// initLoRA gives a layer's A and B their first numbers.
func initLoRA(c Config, f Fresh) error {
	s, n, err := startOf(c.lora().InitLoRAWeights)
	if err != nil {
		return err
	}
	if _, b, ok := embeddingPair(f.Layer, f.Tensors); ok {
		return initEmbedding(f, b)
	}
	a, b, err := pairOf(f.Layer, f.Tensors)
	if err != nil {
		return err
	}
	if r, most := a.Shape[0], min(a.Shape[1], b.Shape[0]); s.from == startWeight && r > most {
		return fmt.Errorf("lora.init_lora_weights: %s of rank %d does not fit %s, which has %d inputs and %d outputs: "+
			"lower lora.r, or give the layer a rank in lora.rank_pattern",
			c.lora().InitLoRAWeights, r, f.Layer, a.Shape[1], b.Shape[0])
	}
	return s.fill(c, f, a, b, n)
}

// startAtRandom fills A as PEFT does: kaiming-uniform with a = sqrt(5), which is uniform in ±1/sqrt(In). B stays zero.
func startAtRandom(_ Config, f Fresh, a, _ Param, _ int) error {
	uniform, bound := f.Uniform(a.Name), 1/math.Sqrt(float64(a.Shape[1]))
	for i := range a.Data {
		a.Data[i] = float32((2*uniform() - 1) * bound)
	}
	return nil
}

// startGaussian fills A from the normal distribution with standard deviation 1/r, as PEFT's "gaussian" does. B stays
// zero.
func startGaussian(c Config, f Fresh, a, _ Param, _ int) error {
	normal, deviation := normalFrom(f.Uniform(a.Name)), 1/float64(c.Rank(f.Layer))
	for i := range a.Data {
		a.Data[i] = float32(deviation * normal())
	}
	return nil
}

// loraRebase is how LoRA starts as a part of the base weight W: the base becomes W - s B0 A0. The saved adapter has
// twice the rank, B A - B0 A0 with the same scale, and fits W: the form into which PEFT converts such an adapter.
var loraRebase = &Rebase{
	Needed: func(c Config) bool {
		s, _, err := startOf(c.lora().InitLoRAWeights)
		return err == nil && s.part
	},
	Rest:       lessLoRA,
	FoldConfig: foldLoRAConfig,
	Fold:       foldLoRA,
	Unfold:     unfoldLoRA,
}

// lessLoRA takes s B A off a layer's weight.
func lessLoRA(c Config, layer string, first []Param) (Merger, error) {
	a, b, err := pairOf(layer, first)
	if err != nil {
		return nil, err
	}
	return mergeLoRA(c, layer, []Param{a, negated(b)})
}

// negated returns a tensor with all signs changed.
func negated(p Param) Param {
	p.Data = slices.Clone(p.Data)
	for i, x := range p.Data {
		p.Data[i] = -x
	}
	return p
}

// foldLoRAConfig doubles every rank and keeps every scale.
func foldLoRAConfig(c Config) Config {
	by, own := 2.0, c.lora()
	if own.UseRSLoRA {
		by = math.Sqrt2
	}
	own.InitLoRAWeights = ""
	c.R, c.Alpha, c.Own = 2*c.R, by*c.Alpha, own
	c.RankPattern, c.AlphaPattern = times(c.RankPattern, 2), times(c.AlphaPattern, by)
	if c.form != nil {
		form := *c.form
		form.ranks.values, form.alphas.values = times(form.ranks.values, 2), times(form.alphas.values, by)
		c.form = &form
	}
	return c
}

// times multiplies the values of patterns.
func times[V int | float64](patterns map[string]V, by V) map[string]V {
	if patterns == nil {
		return nil
	}
	all := make(map[string]V, len(patterns))
	for k, v := range patterns {
		all[k] = v * by
	}
	return all
}

// foldLoRA puts A0 [R,In] below A and -B0 [Out,R] beside B.
func foldLoRA(params, first []Param) []Param {
	folded := slices.Clone(params)
	for i, p := range params {
		f := first[i]
		if strings.HasSuffix(p.Name, suffixA) {
			folded[i].Shape, folded[i].Data = []int{2 * p.Shape[0], p.Shape[1]}, slices.Concat(p.Data, f.Data)
			continue
		}
		out, r := p.Shape[0], p.Shape[1]
		f = negated(f)
		folded[i].Shape, folded[i].Data = []int{out, 2 * r}, make([]float32, 0, 2*out*r)
		for o := range out {
			folded[i].Data = append(append(folded[i].Data, p.Data[o*r:(o+1)*r]...), f.Data[o*r:(o+1)*r]...)
		}
	}
	return folded
}

// unfoldLoRA undoes foldLoRA.
func unfoldLoRA(folded []Param) (params, first []Param) {
	params, first = slices.Clone(folded), slices.Clone(folded)
	for i, p := range folded {
		if strings.HasSuffix(p.Name, suffixA) {
			r, half := p.Shape[0]/2, len(p.Data)/2
			params[i].Shape, params[i].Data = []int{r, p.Shape[1]}, p.Data[:half]
			first[i].Shape, first[i].Data = params[i].Shape, p.Data[half:]
			continue
		}
		out, r := p.Shape[0], p.Shape[1]/2
		params[i].Shape, params[i].Data = []int{out, r}, nil
		first[i].Shape, first[i].Data = params[i].Shape, nil
		for o := range out {
			row := p.Data[o*2*r : (o+1)*2*r]
			params[i].Data, first[i].Data = append(params[i].Data, row[:r]...), append(first[i].Data, row[r:]...)
		}
		first[i] = negated(first[i])
	}
	return params, first
}
