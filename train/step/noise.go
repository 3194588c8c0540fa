package step

import (
	"math"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/session"
)

// The batch's values that noise on embeddings (NEFTune) reads.
const (
	nameNoiseRows      = "noise rows"
	nameNoisePositions = "noise positions"
	nameNoiseScale     = "noise scale"
	nameNoiseCounter   = "noise counter"
)

// addNoise makes the network add noise to the embeddings of so many tokens.
func addNoise(n *nn.Net, tokens int) {
	rows := n.Batch(nameNoiseRows, kernel.T(kernel.I32, tokens))
	positions := n.Batch(nameNoisePositions, kernel.T(kernel.I32, tokens))
	scale := n.Batch(nameNoiseScale, kernel.T(n.Float(), tokens))
	counter := n.Batch(nameNoiseCounter, kernel.T(kernel.I32, 2))
	n.Noise = func(x *nn.Value) *nn.Value { return n.Apply(kernel.NEFTune{}, x, rows, positions, scale, counter) }
}

// noise is what the host writes for noise on embeddings. A token's noise depends on seed, step, row and position, so
// that neither packing, accumulation nor the number of ranks changes it.
type noise struct {
	alpha           float64
	width           int       // of embeddings
	rows, positions []int32   // [M]
	scale           []float32 // [M]
	counter         []int32   // [2]
}

// bindNoise finds the values in the memory of a plan; nil = the step has no noise.
func (s *Step) bindNoise(b *session.Batch) (*noise, error) {
	if s.options.NEFTuneAlpha == 0 {
		return nil, nil
	}
	o := &noise{alpha: s.options.NEFTuneAlpha, width: s.width}
	var err error
	if o.rows, err = b.Int32s(nameNoiseRows); err != nil {
		return nil, err
	}
	if o.positions, err = b.Int32s(nameNoisePositions); err != nil {
		return nil, err
	}
	if o.scale, err = b.Float32s(nameNoiseScale); err != nil {
		return nil, err
	}
	o.counter, err = b.Int32s(nameNoiseCounter)
	return o, err
}

// fill writes the noise of a part of a batch. Noise lies in [-m, m), m = alpha / sqrt(L d) for a sequence of L tokens and
// embeddings of d numbers; padding has none.
func (o *noise) fill(b dataset.Batch, own session.Part, seed uint64, step int) {
	if own == (session.Part{}) {
		own.To = len(b.IDs)
	}
	o.counter[0], o.counter[1] = int32(session.Mix(seed)), int32(step)
	clear(o.scale)
	for k, row := range b.Rows {
		start, n := b.Starts[k], b.Length(k)
		borders, from := b.Borders(k), 0
		for s := range len(borders) + 1 {
			to := n
			if s < len(borders) {
				to = int(borders[s])
			}
			m := float32(o.alpha / math.Sqrt(float64(to-from)*float64(o.width)))
			for p := from; p < to; p++ {
				if t := start + p - own.From; t >= 0 && t < own.To-own.From {
					o.rows[t], o.positions[t], o.scale[t] = int32(row), int32(p), m
				}
			}
			from = to
		}
	}
}
