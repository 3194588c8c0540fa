package dataset

// wasted is the share of padding in an epoch's computed tokens above which packed sequences are shortened. Only epochs
// of at most evenBatches batches are: with more batches, the padding of the last one is negligible.
const wasted = 0.25

// shortened returns the options with shorter packed sequences if there are too few rows to fill sequences of T tokens:
// the smallest length that needs no more batches an epoch. If the rows fill their batches, T and the batches stay the
// same.
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

// sameRows reports whether a cursor with longer sequences means the same rows. An older program did not shorten packed
// sequences, and where all rows are one batch each epoch has the same rows. An older program also counted a shared prefix
// twice; rows that lie end to end are the same whatever their longest has.
func (l *Loader) sameRows(s State) bool {
	if l.opt.Prefixes && l.opt.flat() && s.T > l.opt.T && s.T <= 2*l.opt.T {
		return true
	}
	return l.opt.Asked > 0 && s.T > l.opt.T && s.T <= l.opt.Asked && s.Position == 0 && s.Epoch >= 0 &&
		s.Epoch <= maxEpoch && l.Batches(s.Epoch) == 1
}
