package optimizer

import (
	"math"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
)

// scheduleFree is schedule-free AdamW (Defazio et al. 2024) as the package schedulefree computes it: steps are taken
// at one sequence of weights, and another one, their average, is evaluated and saved. It keeps three states.
type scheduleFree struct{ Config }

func newScheduleFree(c Config) Optimizer { return scheduleFree{c} }

// Numbers returns the learning rate, the bias correction of the second moment, and t as the bits of a float32 for a
// device that computes the correction itself.
func (s scheduleFree) Numbers(lr float64, t int) [NumbersSize]float64 {
	return [...]float64{lr, 0, 1 - math.Pow(s.Beta2, float64(t)), float64(math.Float32frombits(uint32(t)))}
}

// Unit returns 1: a number's update reads its own states alone.
func (scheduleFree) Unit(Update) int { return 1 }

// Apply declares the average x, the sequence z, the second moments, and the weight of a step in the average.
func (s scheduleFree) Apply(u Update) []string {
	x, z, weight := s.sequences(u)
	v, second := u.state("schedule-free v", "second moments")
	counted := u.Net.Apply(kernel.ScheduleFreeWeight{}, weight, u.Norm, u.Numbers)
	k := kernel.ScheduleFreeAdamW{Beta1: s.Beta1, Beta2: s.Beta2, Eps: s.Epsilon, WeightDecay: u.decay(s.WeightDecay),
		Scaled: u.Scaling != nil}
	u.Net.Apply(k, u.scaled(u.Params, u.Grads, x, z, v, counted, u.Norm, u.Numbers)...)
	return []string{x.Name, z.Name, second, weight.Name}
}

// Show adds the kernel that writes the average, or the weights to train, into the parameters.
func (s scheduleFree) Show(u Update, average bool) {
	x, z, weight := s.sequences(u)
	u.Net.Apply(kernel.ScheduleFreeShow{Beta1: s.Beta1, Average: average}, u.Params, x, z, weight)
}

// sequences declares the states that both a step and Show read.
func (scheduleFree) sequences(u Update) (x, z, weight *graph.Value) {
	x, _ = u.state("schedule-free x", "averaged weights")
	z, _ = u.state("schedule-free z", "weights of plain steps")
	weight = u.Net.State("", u.named("weight of a step"), kernel.T(u.Grads.Type.DType, 4))
	return x, z, weight
}
