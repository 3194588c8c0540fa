package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"math"
	"slices"

	"github.com/tierlora/tierlora/dataset"
)

// Evidence is what a run had done up to a step, which another run of the same configuration must equal bit for bit.
// Hashes are SHA-256 in hexadecimal.
type Evidence struct {
	Step   int    `json:"step"`
	Losses string `json:"losses_sha256"`         // over the float64 losses of all steps so far, little endian
	Rows   string `json:"rows_sha256,omitempty"` // over the rows of each step's micro-batches; see chainRows
	// Padded is chainPadded of all steps, in manifests of older programs. It depends on the token budgets that a layout
	// leaves room for.
	Padded string `json:"batches_sha256,omitempty"`
}

// keepsEvidence tells after which steps there is an Evidence: the first hundred, then some hundreds over the whole run,
// and the last.
func keepsEvidence(step, total int) bool {
	every := 10
	for total/every > 400 {
		every *= 10
	}
	return step <= 100 || step%every == 0 || step == total
}

// chainRows is the hash of a step's micro-batches behind that of the steps before it: how many rows each has, and of
// each row its token ids and labels, and where it is a group of several sequences their borders, behind their lengths.
// Where a row lies and how much padding there is are the layout's.
func chainRows(before string, batches []dataset.Batch) string {
	h := sha256.New()
	h.Write([]byte(before))
	for _, b := range batches {
		writeInts(h, []int32{int32(len(b.Rows))})
		for k := range b.Rows {
			ids, labels := b.Row(k)
			writeInts(h, ids)
			writeInts(h, labels)
			if borders := b.Borders(k); borders != nil {
				writeInts(h, borders)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// chainPadded is chainRows as older programs had it: over ids, labels, positions and borders of sequences of whole
// micro-batches, padding too.
func chainPadded(before string, batches []dataset.Batch) string {
	h := sha256.New()
	h.Write([]byte(before))
	for _, b := range batches {
		for _, x := range [][]int32{b.IDs, b.Labels, b.Positions, b.CuSeqlens} {
			writeInts(h, x)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeInts(h hash.Hash, x []int32) {
	raw := binary.LittleEndian.AppendUint32(make([]byte, 0, 4*len(x)+4), uint32(len(x)))
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(v))
	}
	h.Write(raw)
}

func hashLosses(losses []float64) string {
	raw := make([]byte, 0, 8*len(losses))
	for _, l := range losses {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(l))
	}
	return hashBytes(raw)
}

// hashFiles is over names and contents, in the order of the names.
func hashFiles(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range [][]byte{[]byte(name), files[name]} {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// noteEvidence keeps what a step had. A run that goes on from an older program's checkpoint has no hash of the rows
// from its first step on, so none is kept.
func (r *recorder) noteEvidence(w *pendingWindow) {
	p := &r.progress
	if p.Rows != "" || w.Number == 1 {
		p.Rows = chainRows(p.Rows, w.all)
	}
	if r.asOlder {
		r.padded = chainPadded(r.padded, w.all)
	}
	if keepsEvidence(w.Number, r.total) {
		p.Evidence = append(p.Evidence, Evidence{Step: w.Number, Losses: hashLosses(p.Losses), Rows: p.Rows})
	}
}
