package nn

import "github.com/tierlora/tierlora/kernel"

// LongRoPETable is a table of rotary angles for positions below positions of short sequences, in its first rows, and of
// sequences of more than limit tokens, in as many rows behind them; and the positions of a batch's tokens in it.
func (n *Net) LongRoPETable(positions, limit int, short, long []float64, scale float64, in Batch) (table, places *Value) {
	const name = "rope"
	v := n.Frozen(name, kernel.T(n.Float(), 2*positions, 2*len(short)))
	if !n.seen[name] {
		n.seen[name] = true
		n.weights = append(n.weights, Weight{Into: []string{name}, fill: func(_ Reader, dst []kernel.Tensor) error {
			fillAngles(dst[0], 0, positions, short, scale)
			fillAngles(dst[0], positions, positions, long, scale)
			return nil
		}})
	}
	return v, n.Apply(kernel.PositionsByLength{Limit: limit, Offset: positions, Ranks: n.ranks}, in.Positions, in.CuQ)
}
