package adapter

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model/weights"
)

// Weighted is an adapter with the factor that its update counts by.
type Weighted struct {
	*Saved
	Name   string // in messages
	Weight float64
}

// Combinations are the ways of Combine, by PEFT's names, and what each gives of updates s_i B_i A_i with weights w_i.
var Combinations = map[string]string{
	"cat":    "sum of w_i s_i B_i A_i: the ranks add up, and the updates with them",
	"linear": "(sum of sqrt(w_i s_i) B_i) (sum of sqrt(w_i s_i) A_i): one rank, with products of one adapter's B and another's A",
}

// Combine makes one adapter of several, as PEFT's add_weighted_adapter does with a combination_type of Combinations.
func Combine(parts []Weighted, how string) (*Saved, error) {
	if _, ok := Combinations[how]; !ok {
		return nil, fmt.Errorf("combine adapters: %q is not one of %s", how, strings.Join(sortedKeys(Combinations), ", "))
	}
	if len(parts) == 0 {
		return nil, errors.New("combine adapters: there are none")
	}
	for _, p := range parts {
		switch {
		case math.IsNaN(p.Weight) || math.IsInf(p.Weight, 0) || p.Weight == 0:
			return nil, fmt.Errorf("combine adapters: the weight of %s is %v; it must be a number other than 0", p.Name, p.Weight)
		case how == "linear" && p.Weight < 0:
			return nil, fmt.Errorf("combine adapters: the weight of %s is %v, but linear gives the root of it to A and to B alike, where the sign is lost; use cat",
				p.Name, p.Weight)
		case p.Config.Task.Type != "":
			return nil, fmt.Errorf("combine adapters: %s has task_type %s: it is merged alone, with the weight 1", p.Name,
				p.Config.Task.Type)
		case !p.Method.Sums:
			return nil, fmt.Errorf("combine adapters: %s %s, which has no sum with another update; merge "+
				"one adapter after the other, in fp32", p.Name, p.Method.Update())
		case Beyond(p.Config) != "":
			return nil, fmt.Errorf("combine adapters: %s %s, which have no sum; merge it alone", p.Name,
				Beyond(p.Config))
		case p.Config.FusedExperts():
			return nil, fmt.Errorf("combine adapters: %s adapts target_parameters, for which PEFT has no combination; merge one adapter after the other, in fp32", p.Name)
		}
	}
	var params []Param
	layers := adaptedBy(parts)
	c := Config{Shared: Shared{RankPattern: map[string]int{}, AlphaPattern: map[string]float64{}, TargetParameters: []string{}}}
	ranks := make([]int, len(layers))
	for i, layer := range layers {
		a, b, err := combineLayer(parts, layer, how)
		if err != nil {
			return nil, fmt.Errorf("combine adapters: %s: %w", layer, err)
		}
		params = append(params, a, b)
		ranks[i] = a.Shape[0]
		c.R = max(c.R, ranks[i])
		c.TargetModules = append(c.TargetModules, layer)
	}
	if len(layers) == 0 {
		return nil, errors.New("combine adapters: they hold no tensor of a layer")
	}
	if c.R > maxRank {
		return nil, fmt.Errorf("combine adapters: their ranks add up to %d, at most %d are allowed; use linear, or fewer", c.R, maxRank)
	}
	c.Alpha = float64(c.R)
	for i, layer := range layers {
		if ranks[i] != c.R {
			key := regexp.QuoteMeta(layer)
			c.RankPattern[key], c.AlphaPattern[key] = ranks[i], float64(ranks[i])
		}
	}
	files, err := parts[0].Method.Encode(c, parts[0].BaseModel, layers, params)
	if err != nil {
		return nil, err
	}
	return Decode(files[ConfigFile], files[WeightsFile])
}

// adaptedBy are the layers that at least one of the adapters has, sorted.
func adaptedBy(parts []Weighted) []string {
	var layers []string
	for _, p := range parts {
		for _, name := range p.file.Names() {
			if layer, ok := strings.CutSuffix(strings.TrimPrefix(name, peftPrefix), suffixA); ok {
				layers = append(layers, nameSince452(layer))
			}
		}
	}
	slices.Sort(layers)
	return slices.Compact(layers)
}

// combineLayer is one layer's A and B; an adapter without the layer takes no part.
func combineLayer(parts []Weighted, layer, how string) (a, b Param, err error) {
	a, b = Param{Name: layer + suffixA}, Param{Name: layer + suffixB}
	var sumA, sumB []float64
	var partsB []Param
	for _, p := range parts {
		pa, pb, ok, err := p.pair(layer)
		if err != nil {
			return a, b, fmt.Errorf("%s: %w", p.Name, err)
		}
		if !ok {
			continue
		}
		rank, in, out, s := pa.Shape[0], pa.Shape[1], pb.Shape[0], p.Weight*p.Config.Scale(layer)
		switch {
		case a.Shape == nil:
			a.Shape, b.Shape = []int{0, in}, []int{out, 0}
		case in != a.Shape[1] || out != b.Shape[0]:
			return a, b, fmt.Errorf("%s is of another model: its matrices are [%d,%d] and [%d,%d], the others have %d inputs and %d outputs", p.Name, rank, in, out, rank, a.Shape[1], b.Shape[0])
		case how == "linear" && rank != a.Shape[0]:
			return a, b, fmt.Errorf("%s has rank %d, another %d: linear takes one rank; use cat", p.Name, rank, a.Shape[0])
		}
		if how == "linear" {
			root := math.Sqrt(s)
			sumA, sumB = addScaled(sumA, pa.Data, root), addScaled(sumB, pb.Data, root)
			a.Shape[0], b.Shape[1] = rank, rank
			continue
		}
		for _, x := range pa.Data {
			a.Data = append(a.Data, float32(s*float64(x)))
		}
		partsB = append(partsB, pb)
		a.Shape[0] += rank
		b.Shape[1] += rank
	}
	if how == "linear" {
		a.Data, b.Data = rounded(sumA), rounded(sumB)
		return a, b, nil
	}
	for row := range b.Shape[0] {
		for _, p := range partsB {
			r := p.Shape[1]
			b.Data = append(b.Data, p.Data[row*r:(row+1)*r]...)
		}
	}
	return a, b, nil
}

// pair is an adapter's A [R,In] and B [Out,R] of a layer; ok is false where it has none.
func (s *Saved) pair(layer string) (a, b Param, ok bool, err error) {
	ta, okA := s.file.Tensor(s.tensorName(layer + suffixA))
	tb, okB := s.file.Tensor(s.tensorName(layer + suffixB))
	switch {
	case !okA && !okB:
		return a, b, false, nil
	case !okA || !okB:
		return a, b, false, fmt.Errorf("it lacks %s or %s", suffixA[1:], suffixB[1:])
	case len(ta.Shape) != 2 || len(tb.Shape) != 2 || ta.Shape[0] != tb.Shape[1] || ta.Shape[0] != s.Config.Rank(layer):
		return a, b, false, fmt.Errorf("its matrices have the shapes %v and %v, its configuration the rank %d", ta.Shape, tb.Shape, s.Config.Rank(layer))
	}
	a = Param{Name: layer + suffixA, Shape: ta.Shape, Data: make([]float32, ta.Len())}
	b = Param{Name: layer + suffixB, Shape: tb.Shape, Data: make([]float32, tb.Len())}
	return a, b, true, errors.Join(weights.Float32s(ta, a.Data), weights.Float32s(tb, b.Data))
}

func addScaled(sum []float64, x []float32, by float64) []float64 {
	if sum == nil {
		sum = make([]float64, len(x))
	}
	for i, v := range x {
		sum[i] += by * float64(v)
	}
	return sum
}

func rounded(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
