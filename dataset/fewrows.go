package dataset

// Packed sequences are shortened where more than wasted of the tokens computed in an epoch would be padding, and where an
// epoch has at most evenBatches batches: of more, the last one's padding is next to nothing.
const wasted = 0.25

// shortened returns the options with shorter packed sequences where the rows are too few to fill those of T tokens: with the
// fewest tokens that make no more batches of an epoch. Rows that fill their batches keep T, and so the batches that they
// had.
func (o Options) shortened(rows Rows) Options {
	if !o.Packing || rows.Len() == 0 || o.check() != nil {
		return o
	}
	tokens, longest := 0, 0 // of a row: a group stays whole
	for i := range rows.Len() {
		n := rows.Length(i)
		tokens, longest = tokens+n, max(longest, n)
	}
	if tokens/o.T/o.BatchSize >= evenBatches || longest > o.T {
		return o
	}
	l, err := NewLoader(rows, o)
	if err != nil || l.Efficiency(0) >= 1-wasted {
		return o
	}
	short := o
	short.Longest = longest
	short = short.evenly(rows)
	unit := budgetUnit(short.BatchSize * short.T)
	if short.T = (short.T + unit - 1) / unit * unit; short.T >= o.T {
		return o
	}
	short.Longest, short.Asked = min(short.T, o.Longest), o.T
	return short
}

// sameRows reports whether a cursor of longer packed sequences means the same rows: an older program did not shorten them, and
// where all rows are one batch each epoch has the same ones.
func (l *Loader) sameRows(s State) bool {
	return l.opt.Asked > 0 && s.T > l.opt.T && s.T <= l.opt.Asked && s.Position == 0 && s.Epoch >= 0 && s.Epoch <= maxEpoch && l.Batches(s.Epoch) == 1
}
