package optimizer

import (
	"math"

	"github.com/tierlora/tierlora/kernel"
)

// adamW is AdamW (Loshchilov, Hutter 2019) as torch computes it.
type adamW struct{ Config }

func newAdamW(c Config) Optimizer { return adamW{c} }

// Numbers are the learning rate, the two bias corrections, and t as the bits of a float32 for a device that computes
// the corrections itself.
func (a adamW) Numbers(lr float64, t int) [NumbersSize]float64 {
	return [...]float64{lr, 1 - math.Pow(a.Beta1, float64(t)), 1 - math.Pow(a.Beta2, float64(t)),
		float64(math.Float32frombits(uint32(t)))}
}

// Unit returns 1: a number's update reads its own states alone.
func (adamW) Unit(Update) int { return 1 }

func (a adamW) Apply(u Update) []string {
	m, first := u.state("adam m", "first moments")
	v, second := u.state("adam v", "second moments")
	k := kernel.AdamW{Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Epsilon, WeightDecay: u.decay(a.WeightDecay),
		Scaled: u.Scaling != nil}
	u.Net.Apply(k, u.scaled(u.Params, u.Grads, m, v, u.Norm, u.Numbers)...)
	return []string{first, second}
}
