package dataset

import (
	"encoding/binary"
	"math"

	"github.com/tierlora/tierlora/internal/rescue"
)

// placeTargets appends the targets of the row that fill has just laid out.
func (b *Batch) placeTargets(row Row) {
	if b.TargetEnds == nil && row.Targets == nil {
		return
	}
	for len(b.TargetEnds) < len(b.Rows)-1 { // the rows before it have none
		b.TargetEnds = append(b.TargetEnds, 0)
	}
	b.Targets = append(b.Targets, row.Targets...)
	b.TargetEnds = append(b.TargetEnds, int32(len(b.Targets)))
}

// RowTargets returns Row.Targets of row Rows[k].
func (b Batch) RowTargets(k int) []float32 {
	if b.TargetEnds == nil {
		return nil
	}
	from := int32(0)
	if k > 0 {
		from = b.TargetEnds[k-1]
	}
	return b.Targets[from:b.TargetEnds[k]]
}

// addTargets adds the targets of a row that has some to its hash, behind a number that is no token id.
func (h *rowHash) addTargets(targets []float32) {
	if targets == nil {
		return
	}
	h.add(-1 << 29)
	for _, x := range targets {
		h.add(int32(math.Float32bits(x)))
	}
}

// appendTargets appends the targets of a row that has some to the digest's input, behind a number that is larger than
// the length with which the next row begins.
func appendTargets(buf []byte, targets []float32) []byte {
	if targets == nil {
		return buf
	}
	buf = binary.LittleEndian.AppendUint32(buf, 7<<29)
	for _, x := range targets {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
	}
	return buf
}

// addTargets writes the columns of targets. They begin with the first row that has targets, after zeros for the rows
// before it.
func (w *storeWriter) addTargets(r *booked) error {
	h, counts, targets := &w.head, w.columns[9], w.columns[10]
	if r.targets == nil && h.Targets == 0 {
		return nil
	}
	if h.Targets == 0 {
		if err := counts.zeros(8 * (h.Rows - 1)); err != nil {
			return err
		}
	}
	var field [8]byte
	for _, x := range r.targets {
		binary.LittleEndian.PutUint32(field[:], math.Float32bits(x))
		if _, err := targets.Write(field[:4]); err != nil {
			return err
		}
	}
	h.Targets += uint64(len(r.targets))
	binary.LittleEndian.PutUint64(field[:], h.Targets)
	_, err := counts.Write(field[:])
	return err
}

// aims returns the half-open range of the targets of row i.
func (s *store) aims(i int) (from, to uint64) {
	if i > 0 {
		from = u64(s.aimed, i-1)
	}
	return from, u64(s.aimed, i)
}

// targetsOf returns Row.Targets of row i.
func (s *store) targetsOf(i int) []float32 {
	if s.targets == nil {
		return nil
	}
	from, to := s.aims(i)
	if from > to || to > s.head.Targets { // only in a mapped file that has changed since Verify
		rescue.Stop(s.changed())
	}
	var all []float32
	for ; from < to; from++ {
		all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(s.targets[4*from:])))
	}
	return all
}

// checkTargets reports whether the targets of row i are valid.
func (s *store) checkTargets(i int) bool {
	if s.targets == nil {
		return true
	}
	from, to := s.aims(i)
	if from > to || to > s.head.Targets || i == s.Len()-1 && to != s.head.Targets {
		return false
	}
	for _, x := range s.targetsOf(i) {
		if x-x != 0 {
			return false
		}
	}
	return true
}
