package optimizer

import (
	"errors"
	"slices"

	"github.com/tierlora/tierlora/kernel"
)

// MuonSettings are the keys that muon reads besides learning rate and weight decay.
type MuonSettings struct {
	// MuonMomentum is how much of the running mean of gradients muon keeps from step to step.
	MuonMomentum float64 `yaml:"muon_momentum" default:"0.95" range:"[0,1)" resume:"steers"`
	// MuonNesterov makes muon look ahead by one momentum step (Nesterov).
	MuonNesterov bool `yaml:"muon_nesterov" default:"true" resume:"steers"`
	// MuonAdjustLR is how muon adapts the learning rate to a matrix, named as in torch. match_rms_adamw multiplies it
	// by 0.2 sqrt(max(rows, columns)), so that learning rates of adamw fit. original multiplies it by
	// sqrt(max(1, rows/columns)) and wants larger ones, such as 0.02.
	MuonAdjustLR string `yaml:"muon_adjust_lr" default:"match_rms_adamw" choices:"match_rms_adamw original" resume:"steers"`
}

// muon is Muon (Jordan et al. 2024) as torch's Muon computes it, for matrices. Vectors, embeddings and the heads of
// models get AdamW's update with the same learning rate. A stack of experts is a matrix for each expert.
type muon struct{ Config }

func newMuon(c Config) Optimizer { return muon{c} }

// Numbers returns the numbers of AdamW, whose first one is the learning rate that Muon reads.
func (m muon) Numbers(lr float64, t int) [NumbersSize]float64 { return adamW(m).Numbers(lr, t) }

// Check refuses tensors among which Muon would update none.
func (m muon) Check(tensors []Tensor) error {
	if !slices.ContainsFunc(tensors, Tensor.hidden) {
		return errors.New("training.optimizer: muon updates matrices, and no trained tensor is one (vectors, " +
			"embeddings and heads get adamw's update); take training.optimizer: adamw")
	}
	return nil
}

// Unit returns 1 for a tensor that gets AdamW's update. A matrix of Muon's is orthogonalised whole.
func (m muon) Unit(u Update) int {
	if slices.ContainsFunc(u.Tensors, Tensor.hidden) || u.Tensor == "" {
		return 0
	}
	return 1
}

// Apply updates all tensors at once if each is a matrix, else tensor by tensor.
func (m muon) Apply(u Update) (states []string) {
	if !slices.ContainsFunc(u.Tensors, func(t Tensor) bool { return !t.hidden() }) {
		return []string{m.update(u)}
	}
	for _, t := range u.Tensors {
		if one := u.of(t); t.hidden() {
			states = append(states, m.update(one))
		} else {
			states = append(states, adamW(m).Apply(one)...)
		}
	}
	return states
}

// update adds Muon's kernel for an update of matrices and returns the name of its state.
func (m muon) update(u Update) string {
	var matrices []kernel.Matrix
	for _, t := range u.Tensors {
		matrices = append(matrices, t.matrices()...)
	}
	momentum, name := u.state("muon momentum", "momentum")
	k := kernel.Muon{Matrices: matrices, Momentum: m.MuonMomentum, WeightDecay: u.decay(m.WeightDecay), Nesterov: m.MuonNesterov,
		MatchRMS: m.MuonAdjustLR != "original", Scaled: u.Scaling != nil}
	table := u.matrixTable(matrices, kernel.MuonPlaces)
	u.Net.Apply(k, u.scaled(u.Params, u.Grads, momentum, table, u.Norm, u.Numbers)...)
	return name
}
