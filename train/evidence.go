package train

import "github.com/tierlora/tierlora/train/replay"

// noteEvidence records the evidence of a step. A run that resumes from an older program's checkpoint has no hash of the
// rows since its first step, so it records none.
func (r *recorder) noteEvidence(w *pendingWindow) {
	p := &r.progress
	if p.Rows != "" || w.Number == 1 {
		p.Rows = replay.ChainRows(p.Rows, w.all)
	}
	if r.asOlder {
		r.padded = replay.ChainPadded(r.padded, w.all)
	}
	if replay.KeepsEvidence(w.Number, r.total) {
		p.Evidence = append(p.Evidence, replay.Evidence{Step: w.Number,
			Losses: replay.HashLosses(p.Losses), Rows: p.Rows})
	}
}

// evidence returns the evidence of the run up to its newest step.
func (r *recorder) evidence() replay.Evidence {
	p := &r.progress
	return replay.Evidence{Step: r.step(), Losses: replay.HashLosses(p.Losses), Rows: p.Rows, Padded: r.padded}
}
