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
	Step    int    `json:"step"`
	Losses  string `json:"losses_sha256"` // over the float64 losses of all steps so far, little endian
	Batches string `json:"rows_sha256"`   // over the rows of each step's micro-batches; see chainBatches
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

// chainBatches is the hash of a step's micro-batches behind that of the steps before it: their token ids, labels,
// positions and borders of sequences, each behind its length. The padding behind the last row is not of it: how much there is
// depends on the token budgets, and those on what fits.
func chainBatches(before string, batches []dataset.Batch) string {
	h := sha256.New()
	h.Write([]byte(before))
	for _, b := range batches {
		n := len(b.IDs)
		if b.End > 0 {
			n = b.End
		}
		borders := 0
		for borders < len(b.CuSeqlens) && int(b.CuSeqlens[borders]) < n {
			borders++
		}
		for _, x := range [][]int32{b.IDs[:n], b.Labels[:n], b.Positions[:n], b.CuSeqlens[:borders]} {
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

// noteEvidence keeps what a step had.
func (r *recorder) noteEvidence(w *pendingWindow) {
	p := &r.progress
	if p.Batches == "" && w.Number > 1 { // resumed from a checkpoint of a program that kept none
		return
	}
	p.Batches = chainBatches(p.Batches, w.all)
	if keepsEvidence(w.Number, r.total) {
		p.Evidence = append(p.Evidence, Evidence{w.Number, hashLosses(p.Losses), p.Batches})
	}
}
