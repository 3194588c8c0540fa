package optimizer

import "github.com/tierlora/tierlora/kernel"

// SGDSettings are the keys that sgd reads besides learning rate and weight decay.
type SGDSettings struct {
	// SGDMomentum is how much of the last update sgd adds to a new one; 0 is plain gradient descent, which is what
	// transformers' optim: sgd means.
	SGDMomentum float64 `yaml:"sgd_momentum" default:"0.9" range:"[0,1)" resume:"steers"`
	// SGDNesterov makes sgd look ahead by one momentum step (Nesterov).
	SGDNesterov bool `yaml:"sgd_nesterov" resume:"steers"`
}

// sgd is stochastic gradient descent with momentum, as torch's SGD computes it. It keeps one state.
type sgd struct{ Config }

func newSGD(c Config) Optimizer { return sgd{c} }

// Numbers returns the learning rate alone.
func (sgd) Numbers(lr float64, _ int) [NumbersSize]float64 { return [NumbersSize]float64{lr} }

// Unit returns 1: a number's update reads its own states alone.
func (sgd) Unit(Update) int { return 1 }

func (s sgd) Apply(u Update) []string {
	m, name := u.state("sgd momentum", "momentum")
	k := kernel.SGD{Momentum: s.SGDMomentum, Nesterov: s.SGDNesterov, WeightDecay: u.decay(s.WeightDecay),
		Scaled: u.Scaling != nil}
	u.Net.Apply(k, u.scaled(u.Params, u.Grads, m, u.Norm, u.Numbers)...)
	return []string{name}
}
