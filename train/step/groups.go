package step

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
)

// Group is a set of trained tensors with a learning rate or a weight decay of their own.
type Group struct {
	Pattern string  // Pattern matches the tensors' names; "" = norms and biases of the base model, which do not decay.
	Rate    float64 // Rate is the multiple of the step's learning rate; meaningless unless the pattern sets it.
	Decay   float64 // Decay is the weight decay; meaningless unless the pattern sets it.
	OfRate  bool    // OfRate says that the pattern sets the rate, and not the decay.
	Tensors int     // Tensors is the number of tensors.
	Numbers int64   // Numbers is how many numbers they have.
}

// group sets the learning rates and weight decays that patterns give, and records the groups.
func (b *builder) group() error {
	b.decays = map[int]float64{}
	plain := Group{}
	for i, undecayed := range b.trained.Undecayed {
		if undecayed {
			b.decays[i] = 0
			plain.add(int64(b.trained.Params[i].Type.Elems()))
		}
	}
	if plain.Tensors > 0 {
		b.Groups = append(b.Groups, plain)
	}
	for _, of := range []struct {
		key    string
		values map[string]float64
		set    func(i int, value float64)
	}{
		{"training.learning_rate_pattern", b.options.Rates, func(i int, x float64) { b.trained.Rates[i] = x }},
		{"training.weight_decay_pattern", b.options.Decays, func(i int, x float64) { b.decays[i] = x }},
	} {
		matched := map[int]string{}
		for _, pattern := range slices.Sorted(maps.Keys(of.values)) {
			value := of.values[pattern]
			g := Group{Pattern: pattern, Rate: value, Decay: value, OfRate: of.key == "training.learning_rate_pattern"}
			for i, p := range b.trained.Params {
				if !adapter.MatchesBetween(pattern, p.Name) {
					continue
				}
				if other, twice := matched[i]; twice {
					return fmt.Errorf("%s: both %q and %q match the trained tensor %s: let one of them match less",
						of.key, other, pattern, p.Name)
				}
				matched[i] = pattern
				of.set(i, value)
				g.add(int64(p.Type.Elems()))
			}
			if g.Tensors == 0 {
				return fmt.Errorf("%s: %q matches none of the %d trained tensors, such as %s", of.key, pattern,
					len(b.trained.Params), b.someNames())
			}
			b.Groups = append(b.Groups, g)
		}
	}
	return nil
}

func (g *Group) add(numbers int64) { g.Tensors, g.Numbers = g.Tensors+1, g.Numbers+numbers }

// someNames returns the names of a few trained tensors.
func (b *builder) someNames() string {
	var names []string
	for _, p := range b.trained.Params[:min(3, len(b.trained.Params))] {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}
