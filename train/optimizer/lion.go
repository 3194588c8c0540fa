package optimizer

import "github.com/tierlora/tierlora/kernel"

// lion is Lion (Chen et al. 2023): the sign of a mean of gradients, with decoupled weight decay. It keeps half of
// AdamW's states, and wants a learning rate 3 to 10 times smaller.
type lion struct{ Config }

func newLion(c Config) Optimizer { return lion{c} }

// Numbers are the learning rate alone.
func (lion) Numbers(lr float64, _ int) [NumbersSize]float64 { return [NumbersSize]float64{lr} }

// Unit returns 1: a number's update reads its own states alone.
func (lion) Unit(Update) int { return 1 }

func (l lion) Apply(u Update) []string {
	m, name := u.state("lion m", "momentum")
	k := kernel.Lion{Beta1: l.Beta1, Beta2: l.Beta2, WeightDecay: u.decay(l.WeightDecay), Scaled: u.Scaling != nil}
	u.Net.Apply(k, u.scaled(u.Params, u.Grads, m, u.Norm, u.Numbers)...)
	return []string{name}
}
